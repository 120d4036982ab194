"""Junk of any kind gives a named error: command lines, settings, molecules."""

from __future__ import annotations

import contextlib
import io
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import typer
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from nicegnn.cli.main import app, main
from nicegnn.config import NICEConfig
from nicegnn.errors import ConfigError
from nicegnn.explain.registry import EXPLAINERS
from nicegnn.molecule.featurizers import graphs_from_smiles
from nicegnn.molecule.smiles import MoleculeError

QUIET = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
few = settings(max_examples=80, deadline=None, suppress_health_check=QUIET, derandomize=True)

#: Commands that run for long in an empty folder too, or ask the network.
LONG = {"serve", "mcp", "lab data download"}


def command_names(group: Any, before: str = "") -> list[str]:
    """Returns all commands that end at once in an empty folder."""
    found: list[str] = []
    for name, one in group.commands.items():
        inner = command_names(one, f"{before}{name} ") if hasattr(one, "commands") else []
        found += inner or [f"{before}{name}"]
    return [name for name in found if name not in LONG]


COMMANDS = command_names(typer.main.get_command(app))
WORDS = (
    *("benzene", "gin", "random", "nice+nc", "all", "none", "quality", "ablation", "cost"),
    *("0", "1", "-1", "0.3", "1e400", "nan", "0,1", ",", "", " ", "nosuch", "a=b", "é", "\udcff"),
    *("/proc/nosuch", ".", "file.txt", "cuda:99", "--", "-", "-d", "*", "'"),
    *("CCO", "C(", "[Na+].[Cl-]", "mutagenicity", "saliency", "elements", "nosuch:thing"),
)


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("NICEGNN_DATA", "NICEGNN_CACHE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    (tmp_path / "file.txt").write_text("no settings, no rows, no molecules")
    return tmp_path


def options_of(command: str) -> list[str]:
    found = typer.main.get_command(app)
    for word in command.split():
        found = found.commands[word]  # type: ignore[attr-defined]
    return [option for parameter in found.params for option in parameter.opts if option[0] == "-"]


@st.composite
def command_lines(draw: st.DrawFn) -> list[str]:
    command = draw(st.sampled_from(COMMANDS))
    known = [option for option in options_of(command) if option != "--plugin"]
    word = st.sampled_from(WORDS) | st.text(st.characters(exclude_characters="\0"), max_size=8)
    part = st.tuples(st.sampled_from(known or ["--nosuch"]), word).map(list) | word.map(
        lambda w: [w]
    )
    parts = draw(st.lists(part, max_size=5))
    return [*command.split(), *(item for some in parts for item in some)]


def run(words: list[str]) -> tuple[object, str]:
    """Returns exit code and output of a command; anything but an exit is an error."""
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="backslashreplace")
    with (
        mock.patch.object(sys, "argv", ["nicegnn", *words]),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(out),
    ):
        try:
            main()
            code: object = 0
        except SystemExit as stop:
            code = stop.code
    out.seek(0)
    return code, out.read()


@few
@given(words=command_lines())
@example(words=["bench", "-d", "benzene", "-e", "random", "--device", "cuda:99"])
@example(words=["bench", "-d", "benzene", "-e", "random", "--top", "nan"])
@example(words=["targets", "--figure", "file.txt"])
@example(words=["table", "quality", "--rows", "file.txt"])
@example(words=["pack", "--rows", "file.txt"])
@example(words=["tune", "-d", "benzene", "--search", "file.txt"])
@example(words=["bench", "-d", "benzene", "-e", "random", "--config", "file.txt"])
def test_any_command_line_ends_with_a_code_and_no_traceback(empty: Path, words: list[str]) -> None:
    code, said = run(words)
    assert code in (0, 1, 2, 3), (code, said)  # 3: some molecules were rejected
    assert "Traceback" not in said
    if code:
        assert said.strip()  # a reason
    assert sorted(path.name for path in empty.rglob("*.part")) == []


# --- settings ------------------------------------------------------------------------------------

plain = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6)
values = st.recursive(
    plain, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner)
)


@few
@given(junk=st.binary(max_size=40) | st.text(max_size=40).map(str.encode))
def test_any_bytes_are_settings_or_refused_by_name(empty: Path, junk: bytes) -> None:
    path = empty / "junk.toml"
    path.write_bytes(junk)
    with contextlib.suppress(ConfigError):
        NICEConfig.from_toml(path)


@few
@given(name=st.sampled_from(list(EXPLAINERS)), junk=values, data=st.data())
def test_any_value_of_any_setting_is_taken_or_refused_by_name(
    name: str, junk: object, data: st.DataObject
) -> None:
    config = EXPLAINERS[name].defaults()
    plain = config.to_dict()
    parts = {k: v for k, v in plain.items() if isinstance(v, dict)}
    keys = [k for k in plain if k not in parts]
    keys += [f"{part}__{key}" for part, inside in parts.items() for key in inside]
    with contextlib.suppress(ConfigError):
        config.with_(**{data.draw(st.sampled_from(keys)): junk})


# --- molecules -----------------------------------------------------------------------------------

SMILES = "CNOc1[]()=#+-@/\\.%0123456789[H]{}$:~*BrClFISPb "


@settings(few, max_examples=500)
@given(smiles=st.text(SMILES, max_size=25) | st.text(max_size=15))
@example(smiles="\udcff")
@example(smiles="\0")
@example(smiles="C\0C")
@example(smiles="C" * 3000)
@example(smiles="C" * 10_000_000)  # refused before it is read
@example(smiles="C1" * 200)
@example(smiles="(" * 2000)
@example(smiles="[999C]")
@example(smiles="C%99C%99")
@example(smiles="C->N")
@example(smiles="C |$a$|")
def test_any_string_is_a_molecule_or_a_molecule_error(smiles: str) -> None:
    with contextlib.suppress(MoleculeError):
        (graph,) = graphs_from_smiles(smiles)
        assert graph.num_nodes >= 1
        assert graph.num_edges % 2 == 0
