"""Tools for assistants over the Model Context Protocol: explain, compare, change, list models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, TypeVar

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import Field

from nicegnn import __version__
from nicegnn.errors import NicegnnError
from nicegnn.page.answers import Change, Comparison, Explained, Model, compare, list_models
from nicegnn.page.asking import Limits, Shelf
from nicegnn.page.desk import Desk

T = TypeVar("T")
Smiles = Annotated[str, Field(description="A SMILES, such as CC(=O)Nc1ccc(O)cc1.")]
Name = Annotated[str, Field(description="A model of list_models; empty for the first.")]
_INSTRUCTIONS = (
    "Says what a graph neural network predicts for a molecule, and which bonds and atoms the "
    "prediction rests on. It explains the model, which may be wrong about chemistry. Report the "
    "verdict, its words and the notes beside every explanation."
)


def make_tools(shelf: Shelf, limits: Limits) -> MCPServer[Any]:
    """Returns the server of the tools; ``run("stdio")`` serves one assistant."""
    desk = Desk(shelf, limits)
    server: MCPServer[Any] = MCPServer(
        "nicegnn", version=__version__, instructions=_INSTRUCTIONS, log_level="WARNING"
    )

    @server.tool(name="list_models")
    def models() -> list[Model]:
        """Lists the models: what each predicts, and how good it is."""
        return list_models(shelf)

    @server.tool()
    def explain(smiles: Smiles, model: Name = "") -> Explained:
        """Says what a model predicts for a molecule and which bonds and atoms this rests on."""
        return _told(lambda: desk.case(smiles, model).explained())

    @server.tool(name="compare")
    def comparison(
        smiles: Smiles, smiles2: Smiles, model: Name = "", model2: Name = ""
    ) -> Comparison:
        """Explains two molecules, or one by two models, and says what differs."""

        def work() -> Comparison:
            return compare(desk.case(smiles, model), desk.case(smiles2, model2 or model))

        return _told(work)

    @server.tool(name="changes")
    def changes(smiles: Smiles, atom: int, model: Name = "") -> list[Change]:
        """Says what is predicted if one atom of a molecule is another; atoms count from 0."""
        return _told(lambda: desk.changes(smiles, model, atom))

    return server


def _told(work: Callable[[], T]) -> T:
    """Returns the result; an assistant is told the words of our errors."""
    try:
        return work()
    except (NicegnnError, ImportError) as error:
        raise ToolError(str(error)) from error
