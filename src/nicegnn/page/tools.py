"""Tools for assistants over the Model Context Protocol: explain, compare, change, list models."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

from nicegnn import __version__
from nicegnn.errors import NicegnnError
from nicegnn.page.answers import Explained
from nicegnn.page.desk import MOST_ATOMS, Desk, ModelName, Shelf, Smiles

_INSTRUCTIONS = (
    "Says what a graph neural network predicts for a molecule, and which bonds and atoms the "
    "prediction rests on. It explains the model, which may be wrong about chemistry. Report the "
    "verdict, its words and the notes beside every explanation."
)


def make_tools(shelf: Shelf, most_atoms: int = MOST_ATOMS) -> MCPServer[Any]:
    """Returns the server of the tools; ``run("stdio")`` serves one assistant."""
    desk = Desk(shelf, most_atoms)
    server: MCPServer[Any] = MCPServer(
        "nicegnn", version=__version__, instructions=_INSTRUCTIONS, log_level="WARNING"
    )

    def explain(smiles: Smiles, model: ModelName = "") -> Explained:
        """What a model predicts for a molecule, and which bonds and atoms this rests on."""
        return desk.case(smiles, model).explained()

    tools: dict[str, Callable[..., Any]] = {"list_models": desk.models, "explain": explain}
    for name, work in (tools | {"compare": desk.compare, "changes": desk.changes}).items():
        server.add_tool(_in_our_words()(work), name=name)
    return server


@contextmanager
def _in_our_words() -> Iterator[None]:
    """Tells an assistant our errors, which say what to do; others are only in the log."""
    try:
        yield
    except (NicegnnError, ImportError) as error:
        raise ToolError(str(error)) from error
