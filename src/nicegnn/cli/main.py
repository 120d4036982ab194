"""The command ``nicegnn``: parses, calls the library, prints; no logic of its own."""

from __future__ import annotations

import logging
import signal
from importlib.metadata import entry_points
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from nicegnn import __version__
from nicegnn.cli.molecules import explain, models, summary, train
from nicegnn.cli.options import CODES, Plugins, WordError, opt, plain_errors
from nicegnn.cli.page import mcp, serve

GROUP = "nicegnn.commands"  # entry points of installed packages that add command groups

log = logging.getLogger(__name__)


class Commands(TyperGroup):
    """The commands; a group that is not installed says so."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args[0] == "lab" and "lab" not in self.commands:
            raise WordError(
                "`nicegnn lab` measures explainers. It is a package of its own, which is not "
                "installed. Run in a clone of the repository: pip install -e src/nicegnn_lab"
            )
        return super().resolve_command(ctx, args)


app = typer.Typer(
    name="nicegnn",
    cls=Commands,
    help="Explains graph neural networks: what a prediction loses when bonds say what others say.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def show_version(asked: bool) -> None:
    if asked:
        typer.echo(f"nicegnn {__version__}")
        raise typer.Exit


@app.callback()
def nicegnn(
    version: Annotated[
        bool,
        opt("Show the version and exit.", "--version", callback=show_version, is_eager=True),
    ] = False,
) -> None:
    pass


def explainers(plugins: Plugins = None) -> None:
    """List all explainers: what each one is, what it costs, where it comes from.

    \b
    nicegnn explainers --plugin mine.py
    """
    from nicegnn.explain.registry import EXPLAINERS

    for one in EXPLAINERS.values():
        mechanisms = f"; mechanisms {', '.join(one.mechanisms)}" if one.mechanisms else ""
        typer.echo(f"{one.name} ({one.group}): {one.summary}")
        typer.echo(f"    {one.cost}{mechanisms}; {one.citation}")


for first in (explain, train, summary, models):
    app.command(epilog=CODES)(first)
for other in (serve, mcp, explainers):
    app.command()(other)


def add_groups() -> None:
    """Adds the command groups of installed packages, such as the laboratory's ``nicegnn lab``."""
    for entry in entry_points(group=GROUP):
        try:
            app.add_typer(entry.load(), name=entry.name)
        except ImportError as error:
            log.warning("The commands `nicegnn %s` are left out: %s", entry.name, error)


add_groups()


def main() -> None:
    """Runs the command; errors are one readable message, and SIGTERM stops it as Ctrl-C does."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with plain_errors():
        app()


if __name__ == "__main__":
    main()
