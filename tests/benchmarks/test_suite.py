"""A tiny run of the suite."""

from __future__ import annotations

import json
from pathlib import Path

import large
import literal_paper
import pyg_rivals
import pytest
import suite
import timing
from contenders import NAMES, Effort
from material import generated

from nicegnn.store import write_json


@pytest.mark.filterwarnings("ignore:Converting a tensor with requires_grad")  # in PyG
def test_a_run_measures_every_contender(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("rdkit")
    pytest.importorskip("captum")
    monkeypatch.setattr(pyg_rivals, "GNN_EPOCHS", 2)
    monkeypatch.setattr(literal_paper, "NUM_NODES", 2)
    monkeypatch.setattr(timing, "LEAST", 0.0)
    material = generated(6, 2, suite.device_of("cpu"), epochs=0)
    path = tmp_path / "suite-cpu.json"
    write_json(tmp_path / "kills.json", {"kills": 20})  # another measurement is passed over
    result = suite.run(Effort(1, 2, 1), material, NAMES, path)
    assert json.loads(path.read_text()).keys() == result.keys()
    assert set(result["explainers"]) == set(NAMES)
    assert all(times["explain"] > 0 for times in result["explainers"].values())
    assert result["explainers"]["occlusion"]["ratio"]["occlusion"]["explain"] == 1
    assert result["background"]["graphs"] == 6
    shown = suite.all_runs(tmp_path)
    assert "A background of 6 graphs takes" in shown
    assert "| literal-paper | " in shown


def test_slope_of_a_power_is_its_exponent() -> None:
    assert large.slope({1: 3.0, 2: 12.0, 4: 48.0}) == pytest.approx(2)
