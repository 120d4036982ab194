"""Chemprop models on the tasks of the study of atoms: the same atoms, their scores, the tables."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("chemprop", reason="needs `pip install 'nicegnn[chemprop]'`")
pytest.importorskip("myerson")

import chemprop_atoms as script

from nicegnn.target.training import TrainConfig
from nicegnn_lab.studies.atom_scores import Ground, lay_ground
from tests.lab.studies.test_atoms import CLIFF, data  # noqa: F401

QUICK = TrainConfig(learning_rate=0.01, batch_size=16, epochs=1)


@pytest.fixture(autouse=True)
def place(monkeypatch: pytest.MonkeyPatch, data: Path) -> None:  # noqa: F811
    monkeypatch.setenv("NICEGNN_DATA", str(data))


def test_atoms_are_those_of_the_study() -> None:
    (ethanol,) = script.ChempropTask("crippen", 0).parts.test
    oxygen = ethanol.x[:, 8 - 1] == 1  # columns of atomic numbers come first
    assert ethanol.num_nodes == 9  # hydrogens are atoms
    assert ethanol.atom_truth[oxygen].tolist() == pytest.approx([-0.2893])
    for graph in script.ChempropTask("N_minus_O", 0).parts.test:
        assert torch.equal(graph.atom_truth, graph.x[:, 7 - 1] - graph.x[:, 8 - 1])


def test_scores_are_what_they_are_said_to_be() -> None:
    """One atom exchanged by hand; Myerson values about add up to the prediction."""
    task = script.ChempropTask("N_minus_O", 0, width=8)
    model = task.model("chemprop")
    task.train(model, QUICK)
    some = task.parts.test[:3]
    ground = lay_ground(model, "regression", some, task.parts.train, 0)
    scores = script.scores_of(ground, [task.point(one) for one in some], 1000)
    loss, last = [], some[2].clone()
    for kind in ground.background.features["x"]:
        last.x[1] = kind
        loss.append(float((value(ground, some[2]) - value(ground, last)).detach()))
    atom = int(ground.batch.ptr[2]) + 1
    assert float(scores["NICE"]()[atom]) == pytest.approx(sum(loss) / len(loss), abs=1e-4)
    shared = scores["Myerson"]().split([one.num_nodes for one in some])
    total = [float(one.sum()) for one in shared]
    assert total == pytest.approx(ground.clean.tolist(), abs=0.03)  # samples


def value(ground: Ground, graph: Any) -> torch.Tensor:
    bonds = graph.edge_index, graph.edge_attr
    return ground.query.target.model(graph.x, *bonds, torch.zeros(graph.num_nodes).long())[0, 0]


def test_a_line_for_each_model_is_measured_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    runs, out = tmp_path / "runs.jsonl", tmp_path / "out.json"
    words = ["script", "--runs", str(runs), "--out", str(out), "--tasks", "N_minus_O", CLIFF]
    words += ["--seeds", "0", "--epochs", "1", "--width", "8", "--steps", "5", "--molecules", "6"]
    monkeypatch.setattr(sys, "argv", words)
    script.main()
    lines = runs.read_text()
    script.main()
    assert runs.read_text() == lines
    assert lines.count("\n") == 2
    monkeypatch.setattr(sys, "argv", ["script", "--out", str(out), "--table"])
    capsys.readouterr()
    script.main()
    printed = capsys.readouterr().out
    assert "| Chemprop's Myerson values, 5 steps |" in printed
    assert "| score | N_minus_O | mean | N_minus_O, down | cliffs: direction | seconds |" in printed


def test_tables_hold_means_over_seeds_and_tasks() -> None:
    def run(task: str, seed: int, **metrics: float) -> dict[str, Any]:
        quality = {"r2": 0.5 + seed / 4, "valid_r2": 0.5, "rmse": 1.0}
        told = {"task": task, "seed": seed, "explained": 40, "pairs": 0, "quality": quality}
        return told | {"scores": dict.fromkeys(script.LABELS, metrics)}

    runs = [
        run("amide", 0, positive_auc=0.5, seconds=0.25),
        run("N", 1, positive_auc=1.0, seconds=0.5),
        run("N", 0, positive_auc=0.8, seconds=0.5),
    ]
    content = {"settings": {"steps": 20}, **script.collected(runs)}
    models, scores = (table.rows for table in script.tables(content))
    assert models == [
        ["N", "R2", "0.500", "0.625", "1.00", "-", "2", "80"],
        ["amide", "R2", "0.500", "0.500", "1.00", "-", "1", "40"],
    ]
    assert list(scores[1]) == [
        "Chemprop's Myerson values, 20 steps",
        *("90.0", "50.0", "70.0", "0.375"),
    ]
