"""A tiny run of the suite."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import growth
import literal_paper
import pyg_rivals
import pytest
import suite
import timing
from contenders import NAMES, Effort
from material import Material, chained, generated
from tables import all_runs

from nicegnn.store import write_json

TINY = replace(
    suite.QUICK,
    effort=Effort(repeats=1, fit_steps=2, looped_graphs=1),
    sweep=growth.Sweep(
        graphs=(1, 2), bonds=(8, 50), draws=(2, 4), layers=(1, 2), width=(4, 8), num_graphs=1
    ),
    grown=("nice-paper",),
)


@pytest.fixture
def material(monkeypatch: pytest.MonkeyPatch) -> Material:
    pytest.importorskip("rdkit")
    monkeypatch.setattr(pyg_rivals, "GNN_EPOCHS", 2)
    monkeypatch.setattr(literal_paper, "NUM_NODES", 2)
    monkeypatch.setattr(timing, "LEAST", 0.0)
    return generated(6, 2, suite.device_of("cpu"), epochs=0)


@pytest.mark.filterwarnings("ignore:Converting a tensor with requires_grad")  # in PyG
def test_a_run_measures_every_contender(material: Material, tmp_path: Path) -> None:
    pytest.importorskip("captum")
    path = tmp_path / "suite-cpu.json"
    result = suite.run(TINY, material, NAMES, path)
    assert json.loads(path.read_text()).keys() == result.keys()
    assert set(result["explainers"]) == set(NAMES)
    assert all(times["explain"] > 0 for times in result["explainers"].values())
    assert result["explainers"]["occlusion"]["ratio"]["occlusion"]["explain"] == 1
    assert set(result["growth"]["nice-paper"]) == {"graphs", "bonds", "draws", "layers", "width"}
    assert result["floor"]["rows"]["nice"]["madds"] > 0
    assert "literal-paper" in all_runs(tmp_path)


def test_runs_with_times_alone_are_shown_and_other_files_passed_over(tmp_path: Path) -> None:
    """As ``results/speed`` has them."""
    write_json(tmp_path / "kills.json", {"kills": 20})
    row = {"fit": 2.0, "steps": 5, "explain": 0.5}
    known = {"machine": "m", "dataset": "d", "target": "t", "graphs": 1, "train": 1, "torch": "2"}
    write_json(tmp_path / "cpu.json", known | {"explainers": {"nice": row}})
    assert "| nice | 2 | 1 | 500 | 1 | - | - | - |" in all_runs(tmp_path)


def test_slope_of_a_power_is_its_exponent() -> None:
    assert growth.slope({1: 3.0, 2: 12.0, 4: 48.0}) == pytest.approx(2)


def test_chained_molecules_are_one_graph_of_paired_edges(material: Material) -> None:
    graph = chained(material.test, 60)
    assert graph.num_edges >= 2 * 59
    assert not graph.has_isolated_nodes()
    assert (graph.edge_index[:, ::2] == graph.edge_index[:, 1::2].flip(0)).all()
