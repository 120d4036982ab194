"""The command line: its help, what it says without the laboratory."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

import nicegnn
import nicegnn_lab
from nicegnn.cli import main as commands
from nicegnn.cli.main import app
from nicegnn.explain.registry import EXPLAINERS


def run(*arguments: str):  # type: ignore[no-untyped-def]
    return CliRunner().invoke(app, list(arguments), catch_exceptions=False)


def test_version_is_the_packages() -> None:
    assert run("--version").output.strip() == f"nicegnn {nicegnn.__version__}"


def test_help_has_a_short_name() -> None:
    assert run("-h").output == run("--help").output
    assert "no-version" not in run("-h").output
    assert run("explain", "-h").exit_code == 0


@pytest.mark.parametrize("command", [(), ("explain",), ("train",), ("serve",)])
def test_help_waits_for_no_heavy_package(command: tuple[str, ...]) -> None:
    words = [sys.executable, "-X", "importtime", "-m", "nicegnn.cli.main", *command, "--help"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Usage" in done.stdout
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "nicegnn.cli.options" in imported
    assert not imported & {"torch", "pandas", "torch_geometric", "rdkit", "matplotlib", "numpy"}


def test_every_command_has_an_example() -> None:
    group = typer.main.get_command(app)
    commands = {name: one for name, one in group.commands.items() if name != "lab"}
    assert len(commands) >= 7
    lacking = [name for name, one in commands.items() if f"\nnicegnn {name}" not in str(one.help)]
    assert lacking == []


def without_lab(monkeypatch: pytest.MonkeyPatch, entries: list[EntryPoint]) -> None:
    """Leaves the command line with the groups of these entry points alone."""
    monkeypatch.setattr(app, "registered_groups", [])
    monkeypatch.setattr(commands, "entry_points", lambda group: entries)
    commands.add_groups()


def test_a_laboratory_that_is_not_installed_is_one_line_with_code_two(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    without_lab(monkeypatch, [])
    monkeypatch.setattr("sys.argv", ["nicegnn", "lab", "bench", "-d", "benzene"])
    with pytest.raises(SystemExit) as stop:
        commands.main()
    assert stop.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "is not installed" in line
    assert "pip install" in line
    assert "lab" not in typer.main.get_command(app).commands  # type: ignore[attr-defined]


def test_installed_packages_add_groups_and_a_broken_one_stops_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    told = tomllib.loads((Path(nicegnn_lab.__path__[0]) / "pyproject.toml").read_text())
    ((name, where),) = told["project"]["entry-points"][commands.GROUP].items()
    broken = EntryPoint("broken", "nosuchpackage.cli:app", commands.GROUP)
    without_lab(monkeypatch, [broken, EntryPoint(name, where, commands.GROUP)])
    assert "The commands `nicegnn broken` are left out" in caplog.text
    assert "bench" in run("lab", "--help").output


def test_explainers_are_listed_with_their_cost() -> None:
    lines = run("explainers").stdout.splitlines()
    entry = EXPLAINERS["occlusion"]
    assert (
        f"    {entry.cost};"
        in lines[lines.index(f"occlusion ({entry.group}): {entry.summary}") + 1]
    )
    assert len(lines) == 2 * len(EXPLAINERS)
