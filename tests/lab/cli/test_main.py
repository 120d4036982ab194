"""The laboratory's commands: their help, and the demo."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from nicegnn_lab.cli.main import app


def run(*arguments: str):  # type: ignore[no-untyped-def]
    return CliRunner().invoke(app, list(arguments), catch_exceptions=False)


@pytest.mark.parametrize("command", [(), ("bench",), ("data",), ("experiment",)])
def test_help_waits_for_no_heavy_package(command: tuple[str, ...]) -> None:
    words = [sys.executable, "-X", "importtime", "-m", "nicegnn_lab.cli.main", *command, "--help"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Usage" in done.stdout
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "nicegnn.cli.options" in imported
    assert not imported & {"torch", "pandas", "torch_geometric", "rdkit", "matplotlib", "numpy"}


def test_every_command_has_an_example() -> None:
    group = typer.main.get_command(app)
    data = group.commands["data"]
    own = {name: one for name, one in group.commands.items() if name != "data"}
    commands = own | {f"data {name}": one for name, one in data.commands.items()}
    assert len(commands) >= 10
    lacking = [
        name for name, one in commands.items() if f"\nnicegnn lab {name}" not in str(one.help)
    ]
    assert lacking == []


def test_demo_finds_what_the_model_looks_at(tmp_path: Path) -> None:
    script = Path(__file__).parents[3] / "examples" / "demo.py"
    words = [sys.executable, str(script), "--num", "300", "--epochs", "8", "--out", str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    told = re.search(r"best bond is a true one in ([\d.]+)% \(by chance ([\d.]+)%\)", done.stdout)
    assert told, done.stdout
    assert float(told[1]) > 2 * float(told[2])
    area = re.search(r"AUC of true bonds ([\d.]+)\.", done.stdout)
    assert area, done.stdout
    assert float(area[1]) > 0.8
    page = (tmp_path / "page.html").read_text()
    assert "<svg" in page
    assert told[0] in page
    assert (tmp_path / "picture.png").stat().st_size > 1000
