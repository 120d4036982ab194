"""A page in the browser, ``nicegnn serve``; tools for assistants, ``nicegnn mcp``."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from nicegnn.cli.options import Plugins, one_thread, opt, takes
from nicegnn.screening.settings import ModelConfig

_LOCAL = "127.0.0.1"
Atoms = Annotated[int, opt("Most atoms of a molecule.", min=1)]


@takes(ModelConfig)
def serve(
    config: ModelConfig,
    host: Annotated[str, opt("Address to listen at; the default is this machine alone.")] = _LOCAL,
    port: Annotated[int, opt("Port; 0 takes the first free one.", min=0, max=65535)] = 0,
    open: Annotated[bool, opt("Open the page in the browser.", "--open")] = False,
    atoms: Atoms = 200,
    plugins: Plugins = None,
) -> None:
    """Show a page in the browser: draw a molecule, see what the prediction rests on.

    The same answers are there as JSON; the page /docs of the server describes them.

    \b
    nicegnn serve
    nicegnn serve --model active.safetensors --port 8000
    """
    shelf = _shelf(config, fastapi="page", uvicorn="page")
    from nicegnn.page.server import LOCAL
    from nicegnn.page.server import serve as show

    if host not in LOCAL:
        typer.echo("Everybody who can reach this address can use the page.", err=True)
    show(shelf, atoms, host=host, port=port, opens_browser=open, say=typer.echo)


@takes(ModelConfig)
def mcp(config: ModelConfig, atoms: Atoms = 200, plugins: Plugins = None) -> None:
    """Serve tools for an assistant on standard input and output: explain, compare, list models.

    \b
    nicegnn mcp --model active.safetensors
    """
    shelf = _shelf(config, fastapi="page", mcp="assistants")
    from nicegnn.page.tools import make_tools

    make_tools(shelf, atoms).run("stdio")


def _shelf(config: ModelConfig, **packages: str) -> Any:
    """Returns the models that were named; what is missing is told before the page is there."""
    from nicegnn.molecule.smiles import require, require_rdkit

    require_rdkit()
    for package, extra in packages.items():
        require(package, extra)
    from nicegnn.page.desk import Shelf

    one_thread()
    return Shelf(config)
