"""Tools for assistants: typed results on standard input and output, errors in our words."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import pytest

from nicegnn.page.desk import Shelf
from nicegnn.screening.settings import ModelConfig

pytest.importorskip("rdkit", reason="needs RDKit")
pytest.importorskip("mcp.server.mcpserver", reason="needs mcp (extra 'assistants')")


def test_tools_over_standard_input_and_output() -> None:
    from mcp import ClientSession, StdioServerParameters
    from mcp.client.stdio import stdio_client

    words = ["-m", "nicegnn.cli.main", "mcp", "--model", "benzene"]
    server = StdioServerParameters(command=sys.executable, args=words)

    async def talk() -> tuple[Any, ...]:
        async with stdio_client(server) as streams, ClientSession(*streams) as session:
            await session.initialize()
            tools = await session.list_tools()
            found = await session.call_tool("explain", {"smiles": "Cc1ccccc1"})
            both = {"smiles": "Cc1ccccc1", "smiles2": "CC1CCCCC1"}
            compared = await session.call_tool("compare", both)
            changed = await session.call_tool("changes", {"smiles": "CCO", "atom": 2})
            bad = await session.call_tool("explain", {"smiles": "C1CC("})
            return tools, found, compared, changed, bad

    tools, found, compared, changed, bad = asyncio.run(talk())
    assert {tool.name for tool in tools.tools} == {"list_models", "explain", "compare", "changes"}
    assert all(tool.output_schema for tool in tools.tools)
    assert found.structured_content["prediction"] == "benzene ring"
    assert len(found.structured_content["bonds"]) == 7
    assert compared.structured_content["change"] < -0.9
    assert any(one["smiles"] == "CCN" for one in changed.structured_content["result"])
    assert bad.is_error
    assert "RDKit can read" in bad.content[0].text


def test_limits_hold_for_assistants_too() -> None:
    from mcp.server.mcpserver.exceptions import ToolError

    from nicegnn.page.desk import make_tools

    server = make_tools(Shelf(ModelConfig(model="benzene")), most_atoms=5)
    with pytest.raises(ToolError, match="at most 5 atoms"):
        asyncio.run(server.call_tool("explain", {"smiles": "CCCCCCC"}))
