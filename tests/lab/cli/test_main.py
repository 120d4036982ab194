"""The laboratory's commands: their help, the diagnosis."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import typer
from typer.testing import CliRunner

from nicegnn.errors import ConfigError, GraphError
from nicegnn_lab.cli.main import app
from nicegnn_lab.figures.registry import FIGURES
from nicegnn_lab.tables.registry import TABLES
from tests.conftest import random_graph


def run(*arguments: str):  # type: ignore[no-untyped-def]
    return CliRunner().invoke(app, list(arguments), catch_exceptions=False)


@pytest.mark.parametrize("gate", ["truth", "random", "0.5"])
def test_diagnosis_prints_the_theorem_and_its_propagated_form(gate: str) -> None:
    done = run("diagnose", "--num", "40", "--gate", gate, "--draws", "4", "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.output[done.output.index("{") :])
    assert len(found["layers"]) == 3
    assert found["em_log_drift_fixed"][-1] >= found["drift_bound"] >= 0
    assert all(0 <= value <= 1 for value in found["em_fixed"])
    assert all(0.5 < value < 1.5 for value in found["nc_fixed"])
    if gate == "0.5":
        assert found["em_fixed"] == pytest.approx([0.25] * 3, rel=1e-4)


def test_diagnosis_of_gcn_tells_about_clean_self_loops() -> None:
    done = run("diagnose", "--model", "gcn", "--num", "40", "--draws", "2")
    assert done.exit_code == 0
    assert "Self-loops" in done.output
    assert "EM log-drift" in done.output


def test_diagnosis_of_a_users_own_model_and_graphs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine_for_test.py").write_text(
        "import torch\nfrom nicegnn.target.zoo import GIN\n\n\n"
        "def make():\n    torch.manual_seed(0)\n    return GIN(5, 3)\n"
    )
    torch.save([random_graph(6, seed=s) for s in range(3)], tmp_path / "graphs.pt")
    monkeypatch.chdir(tmp_path)
    model = ("diagnose", "--model", "mine_for_test:make", "--graphs", "graphs.pt")
    done = run(*model, "--gate", "0.2", "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.output[done.output.index("{") :])["num_graphs"] == 3
    with pytest.raises(GraphError, match="edge_truth"):
        run(*model, "--gate", "truth")
    with pytest.raises(ConfigError, match="can be imported"):
        run("diagnose", "--model", "mine_for_test:absent", "--graphs", "graphs.pt")
    with pytest.raises(ConfigError, match="must be one of"):
        run("diagnose", "--model", "unknown", "--graphs", "graphs.pt")
    with pytest.raises(ConfigError, match="'truth', 'random' or a number"):
        run(*model, "--gate", "half")
    (tmp_path / "graphs.pt").write_bytes(b"damaged")
    with pytest.raises(GraphError, match="Cannot read graphs"):
        run(*model)


@pytest.mark.parametrize("command", [(), ("bench",), ("data",), ("experiment",)])
def test_help_waits_for_no_heavy_package(command: tuple[str, ...]) -> None:
    words = [sys.executable, "-X", "importtime", "-m", "nicegnn_lab.cli.main", *command, "--help"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Usage" in done.stdout
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "nicegnn.cli.options" in imported
    assert not imported & {"torch", "pandas", "torch_geometric", "rdkit", "matplotlib", "numpy"}


def test_every_command_has_an_example_and_json() -> None:
    group = typer.main.get_command(app)
    data = group.commands["data"]
    own = {name: one for name, one in group.commands.items() if name != "data"}
    commands = own | {f"data {name}": one for name, one in data.commands.items()}
    assert len(commands) > 15
    lacking = [
        name for name, one in commands.items() if f"\nnicegnn lab {name}" not in str(one.help)
    ]
    assert lacking == []
    lacking = [n for n, one in commands.items() if "json" not in {p.name for p in one.params}]
    assert lacking == []


@pytest.mark.parametrize(("command", "known"), [("table", TABLES), ("figure", FIGURES)])
def test_help_lists_all_names(command: str, known: dict[str, object]) -> None:
    shown = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "1000"}).output
    assert f"{', '.join(known)}, or all." in shown
