"""The command ``nicegnn``: parses, calls the library, prints; no logic of its own."""

from __future__ import annotations

import logging
from importlib.metadata import entry_points
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from nicegnn import __version__
from nicegnn.cli import options
from nicegnn.cli.learning import fit, train
from nicegnn.cli.many import explain_many
from nicegnn.cli.molecule_options import CODES, one_thread
from nicegnn.cli.molecules import explain, models, summary
from nicegnn.cli.options import (
    Json,
    WordError,
    console,
    opt,
    plain_errors,
    print_json,
    to_folder,
    typed_words,
)
from nicegnn.cli.page import serve

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
    help="Explains graph neural networks by scale-stable noise corruption of their messages.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def demo(
    out: Annotated[Path, to_folder("Folder for tables, model and gallery.")] = Path("demo-output"),
    group: Annotated[str, opt("What labels the molecules: NAME=SMARTS.")] = "benzene=c1ccccc1",
    num: Annotated[int, opt("Molecules to train on.", min=50)] = 2000,
    epochs: Annotated[int, opt("Most epochs of the training.", min=1)] = 15,
    steps: Annotated[int, opt("Steps of the explainer's fit.", min=1)] = 150,
    seed: options.AnySeed = 0,
    json: Json = False,
) -> None:
    """Generate molecules, train a GNN, explain new ones, and write a page to look at.

    \b
    nicegnn demo
    nicegnn demo --group "indole=c1ccc2[nH]ccc2c1" --out indole-demo
    """
    from nicegnn.screening.demo import DemoConfig, run_demo

    one_thread()
    config = DemoConfig(group=group, num_molecules=num, epochs=epochs, fit_steps=steps, seed=seed)
    with typed_words("`nicegnn demo --help` says more."):
        found = run_demo(out, config, say=(lambda _: None) if json else console.print)
    if json:
        print_json(vars(found))
        return
    console.print(
        f"\nThe model is right on {found.accuracy:.1%} of held-out molecules. In "
        f"{found.best_in_group:.0%} of {found.num_judged} new molecules the best bond lies in the "
        f"group; by chance {found.by_chance:.0%}. {found.seconds:.0f} s in all."
    )
    console.print(f"[bold]Look at[/bold] {found.gallery}", soft_wrap=True)


def explainers(plugins: options.Plugins = None, json: Json = False) -> None:
    """List all explainers: what each one is, what it costs, where it comes from.

    \b
    nicegnn explainers
    nicegnn explainers --plugin mine.py --json
    """
    from nicegnn.explain.registry import EXPLAINERS

    if json:
        told = ("group", "summary", "cost", "mechanisms", "citation")
        print_json(
            {one.name: {key: getattr(one, key) for key in told} for one in EXPLAINERS.values()}
        )
        return
    for entry in EXPLAINERS.values():
        mechanisms = f"; mechanisms {', '.join(entry.mechanisms)}" if entry.mechanisms else ""
        console.print(f"[bold]{entry.name}[/bold] ({entry.group}): {entry.summary}")
        console.print(f"    {entry.cost}{mechanisms}; {entry.citation}", style="dim")


def version(json: Json = False) -> None:
    """Print the version.

    \b
    nicegnn version
    """
    print_json({"nicegnn": __version__}) if json else typer.echo(__version__)


for first in (explain, explain_many, fit, train, summary, models):
    app.command(epilog=CODES)(first)
for other in (serve, demo, explainers, version):
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
    """Runs the command; errors of nicegnn are one readable message, not a traceback."""
    with plain_errors():
        app()


if __name__ == "__main__":
    main()
