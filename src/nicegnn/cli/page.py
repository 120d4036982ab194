"""A page in the browser: ``nicegnn serve``."""

from __future__ import annotations

from typing import Annotated

import typer

from nicegnn.cli import options
from nicegnn.cli.molecule_options import (
    MORE,
    OF_MODEL,
    Classes,
    Featurizer,
    Method,
    Model,
    Saved,
    Task,
    Weights,
    chosen,
    readable_end,
)
from nicegnn.cli.options import opt

LOCAL = ("127.0.0.1", "localhost", "::1")
_LIMITS = ("megabytes", "molecules", "atoms", "seconds")


def serve(
    ctx: typer.Context,
    model: Model = "",
    weights: Weights = "",
    featurizer: Featurizer = "",
    task: Task = "classification",
    classes: Classes = None,
    explainer: Method = "",
    host: Annotated[str, opt("Address to listen at; the default is this machine alone.")] = LOCAL[
        0
    ],
    port: Annotated[int, opt("Port; 0 takes the first free one.", min=0, max=65535)] = 0,
    open: Annotated[bool, opt("Open the page in the browser.", "--open")] = False,
    megabytes: Annotated[int, opt("Largest file that may be sent.", min=1)] = 5,
    molecules: Annotated[int, opt("Most molecules of a file.", min=1)] = 1000,
    atoms: Annotated[int, opt("Most atoms of a molecule.", min=1)] = 200,
    seconds: Annotated[int, opt("Most time for a file.", min=1)] = 120,
    seed: options.AnySeed = 0,
    settings: Saved = None,
    plugins: options.Plugins = None,
) -> None:
    """Show a page in the browser: paste a molecule or send a file, see the explanation.

    \b
    nicegnn serve
    nicegnn serve --model active.safetensors --port 8000
    nicegnn serve --settings explained/settings.toml
    """
    if not (model or settings) and (weights or featurizer or classes or explainer):
        raise options.WordError("`--model` must be named for these options (got none).")
    with readable_end():
        from nicegnn.molecule.smiles import require_rdkit
        from nicegnn.page.app import serve as show
        from nicegnn.page.asking import Limits, Shelf
        from nicegnn.screening.run import ExplainConfig

        names = {name: f"model__{name}" for name in OF_MODEL if name in ctx.params}
        given = chosen(ctx, settings, ExplainConfig(), {**names, "explainer": "model__explainer"})
        require_rdkit()  # before the page is there
        limits = Limits(**{name: ctx.params[name] for name in _LIMITS})
        with options.typed_words(MORE.format("serve")):
            shelf = Shelf(given.model if model or settings else None, given.model.seed)
        if host not in LOCAL:
            typer.echo("Everybody who can reach this address can use the page.", err=True)
        show(shelf, limits, host=host, port=port, opens_browser=open, say=typer.echo)
