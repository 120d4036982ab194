"""A page in the browser, ``nicegnn serve``; tools for assistants, ``nicegnn mcp``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nicegnn.cli import options
from nicegnn.cli.molecule_options import (
    MORE,
    Classes,
    Featurizer,
    Method,
    Model,
    Saved,
    Task,
    Weights,
    chosen,
    one_thread,
    readable_end,
)
from nicegnn.cli.options import opt

if TYPE_CHECKING:
    from nicegnn.page.asking import Limits, Shelf

_LOCAL = "127.0.0.1"
_LIMITS = ("megabytes", "molecules", "atoms", "seconds", "per_minute")
_NEED_MODEL = ("weights", "featurizer", "classes", "explainer")
Atoms = Annotated[int, opt("Most atoms of a molecule.", min=1)]
Seconds = Annotated[int, opt("Most time for an answer or a file.", min=1)]


def serve(
    ctx: typer.Context,
    model: Model = "",
    weights: Weights = "",
    featurizer: Featurizer = "",
    task: Task = "classification",
    classes: Classes = None,
    explainer: Method = "",
    host: Annotated[str, opt("Address to listen at; the default is this machine alone.")] = _LOCAL,
    port: Annotated[int, opt("Port; 0 takes the first free one.", min=0, max=65535)] = 0,
    open: Annotated[bool, opt("Open the page in the browser.", "--open")] = False,
    megabytes: Annotated[int, opt("Largest file that may be sent.", min=1)] = 5,
    molecules: Annotated[int, opt("Most molecules of a file.", min=1)] = 500,
    atoms: Atoms = 200,
    seconds: Seconds = 120,
    per_minute: Annotated[int, opt("Most requests of one address in a minute.", min=1)] = 1200,
    seed: options.AnySeed = 0,
    settings: Saved = None,
    plugins: options.Plugins = None,
) -> None:
    """Show a page in the browser: draw a molecule, see what the prediction rests on.

    The same answers are there as JSON; the page /docs of the server describes them.

    \b
    nicegnn serve
    nicegnn serve --model active.safetensors --port 8000
    nicegnn serve --settings explained/settings.toml
    """
    with readable_end():
        from nicegnn.page.server import LOCAL
        from nicegnn.page.server import serve as show

        shelf, limits = _prepared(ctx, settings, "serve")
        if host not in LOCAL:
            typer.echo("Everybody who can reach this address can use the page.", err=True)
        show(shelf, limits, host=host, port=port, opens_browser=open, say=typer.echo)


def mcp(
    ctx: typer.Context,
    model: Model = "",
    weights: Weights = "",
    featurizer: Featurizer = "",
    task: Task = "classification",
    classes: Classes = None,
    explainer: Method = "",
    atoms: Atoms = 200,
    seconds: Seconds = 120,
    seed: options.AnySeed = 0,
    settings: Saved = None,
    plugins: options.Plugins = None,
) -> None:
    """Serve tools for an assistant on standard input and output: explain, compare, list models.

    \b
    nicegnn mcp
    nicegnn mcp --model active.safetensors
    """
    with readable_end():
        from nicegnn.page.tools import make_tools

        make_tools(*_prepared(ctx, settings, "mcp")).run("stdio")


def _prepared(ctx: typer.Context, settings: Path | None, command: str) -> tuple[Shelf, Limits]:
    """Returns the models and limits that were typed."""
    from nicegnn.molecule.smiles import require_rdkit
    from nicegnn.page.asking import Limits, Shelf
    from nicegnn.screening.run import RunConfig

    has_model = ctx.params["model"] or settings
    if not has_model and any(ctx.params[name] for name in _NEED_MODEL):
        raise options.WordError("`--model` must be named for these options (got none).")
    given = chosen(ctx, settings, RunConfig(), part="model")
    require_rdkit()  # before the page is there
    one_thread()
    limits = Limits(**{name: ctx.params[name] for name in _LIMITS if name in ctx.params})
    with options.typed_words(MORE.format(command)):
        return Shelf(given.model if has_model else None, given.model.seed), limits
