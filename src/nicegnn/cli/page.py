"""A page in the browser: ``nicegnn serve``."""

from __future__ import annotations

from typing import Annotated

import typer

from nicegnn.cli import options
from nicegnn.cli.molecules import Classes, Featurizer, Model, Seed, Task, Weights, readable_end
from nicegnn.cli.options import opt, split_commas

LOCAL = ("127.0.0.1", "localhost", "::1")


def serve(
    model: Model = "",
    weights: Weights = "",
    featurizer: Featurizer = "",
    task: Task = "classification",
    classes: Classes = None,
    explainer: Annotated[
        str, opt("Name (see `nicegnn explainers`), or file of `nicegnn fit`.", "--explainer", "-e")
    ] = "",
    host: Annotated[str, opt("Address to listen at; the default is this machine alone.")] = LOCAL[
        0
    ],
    port: Annotated[int, opt("Port; 0 takes the first free one.", min=0, max=65535)] = 0,
    open: Annotated[bool, opt("Open the page in the browser.", "--open")] = False,
    megabytes: Annotated[int, opt("Largest file that may be sent.", min=1)] = 5,
    molecules: Annotated[int, opt("Most molecules of a file.", min=1)] = 1000,
    atoms: Annotated[int, opt("Most atoms of a molecule.", min=1)] = 200,
    seconds: Annotated[int, opt("Most time for a file.", min=1)] = 120,
    seed: Seed = 0,
    plugins: options.Plugins = None,
) -> None:
    """Show a page in the browser: paste a molecule or send a file, see the explanation.

    \b
    nicegnn serve
    nicegnn serve --model active.safetensors --port 8000
    """
    if not model and (weights or featurizer or classes or explainer):
        raise options.WordError("`--model` must be named for these options (got none).")
    with readable_end():
        from nicegnn.page.app import serve as show
        from nicegnn.page.asking import Limits, Shelf
        from nicegnn.screening.loading import ModelConfig

        own = None
        if model:
            own = ModelConfig(
                model=model,
                weights=weights,
                featurizer=featurizer,
                task=task,  # type: ignore[arg-type]  # ModelConfig checks it
                classes=tuple(split_commas(classes)),
                explainer=explainer,
                seed=seed,
            )
        limits = Limits(megabytes=megabytes, molecules=molecules, atoms=atoms, seconds=seconds)
        with options.typed_words("`nicegnn serve --help` says more."):
            shelf = Shelf(own, seed)
        if host not in LOCAL:
            typer.echo("Everybody who can reach this address can use the page.", err=True)
        show(shelf, limits, host=host, port=port, opens_browser=open, say=typer.echo)
