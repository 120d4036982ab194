"""Settings of a benchmark, and what it writes beside agreement and fidelity."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
import torch

from nicegnn.explain.trust import Flag
from nicegnn_lab.bench.rows import read_rows
from nicegnn_lab.bench.targets import load_target, target_path
from nicegnn_lab.metrics.agreement import Truth, truth_metrics
from nicegnn_lab.rivals import get_explainer
from tests.lab.bench.small_bench import PAPER, World, run_bench, use_world


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return use_world(monkeypatch)


def test_rows_tell_what_became_of_gates(world: World, tmp_path: Path) -> None:
    """The agreement of gate and attribution is that of the explanation, computed by itself."""
    run_bench(world.config(tmp_path, "nice-paper", "random", seeds=(3,)))
    rows = read_rows(tmp_path)
    assert not rows["stand_in"].any()
    model = load_target(target_path(world.targets, "benzene", "gin")).model
    nice = get_explainer("nice-paper", model, **PAPER, seed=3)
    nice.fit(world.dataset().train, seed=3, progress=False)
    own = rows[rows["explainer"] == "nice-paper"]
    positions = torch.tensor(own[own["metric"] == "restored"]["graph"].to_numpy())
    test = world.dataset().test
    found = nice.explain(test.batch(positions.long()), target=1, seed=3)
    truth = Truth.from_graphs(test.batch(positions.long()))

    def values(metric: str) -> torch.Tensor:
        return torch.tensor(own[own["metric"] == metric]["value"].to_numpy())

    for name, score in (("gate", found.bond_gate), ("big", found.bond_loss)):
        expected = truth_metrics(score, found.bonds, truth, protocol="paper", seed=3)["roc_auc"]
        assert torch.allclose(values(f"{name}_roc_auc"), expected.float(), equal_nan=True)
    assert torch.allclose(values("restored"), found.restored)
    assert torch.allclose(values("risk_boundary"), found.risk_boundary)
    left = [float(Flag.NOT_RESTORED in flag) for flag in found.status.flags]
    assert values("not_restored").tolist() == left
    status = own[own["metric"] == "fit_status"]
    assert status["note"].tolist() == [nice.fit_report.status]  # type: ignore[attr-defined]
    other = set(rows[rows["explainer"] == "random"]["metric"])
    assert not other & {"gate_roc_auc", "big_roc_auc", "restored", "not_restored", "fit_status"}


def shown(rows: pd.DataFrame, explainer: str) -> pd.DataFrame:
    of_bonds = rows["metric"].astype(str).str.startswith("bond_")
    return rows[(rows["explainer"] == explainer) & of_bonds]


def test_gallery_needs_neither_data_nor_scores(world: World, tmp_path: Path) -> None:
    run_bench(world.config(tmp_path, "nice-paper", "ground-truth", seeds=(0, 1)))
    rows = read_rows(tmp_path)
    molecules = rows[rows["metric"] == "molecule"]
    assert set(molecules["seed"]) == {0}  # one seed is enough for pictures
    test = world.dataset().test
    explained = set(rows[(rows["explainer"] == "nice-paper") & (rows["metric"] == "f1")]["graph"])
    positions = molecules[molecules["explainer"] == "nice-paper"]["graph"].tolist()
    assert len(positions) == min(12, len(explained))
    assert set(positions) <= explained
    for position, note in zip(positions, molecules["note"], strict=False):
        about, graph = json.loads(note), test[position]
        assert about["smiles"] == graph.smiles
        assert about["label"] == about["explained"] == 1
        assert len(about["atoms"]) == graph.num_nodes
        assert len(about["bonds"]) == graph.num_edges // 2
        for number, (one, other, kind) in enumerate(about["bonds"]):
            assert {one, other} == set(graph.edge_index[:, 2 * number].tolist())
            assert graph.edge_attr[2 * number].argmax() == kind
        is_true = graph.edge_truth[::2].nonzero().view(-1).tolist()
        assert about["true"] == is_true
        truth = shown(rows, "ground-truth")
        truth = truth[truth["graph"] == position].sort_values("level")
        assert truth["level"].tolist() == list(range(len(about["bonds"])))
        assert truth["value"].gt(0.5).to_numpy().nonzero()[0].tolist() == is_true
    assert set(shown(rows, "nice-paper")["metric"]) == {"bond_score", "bond_gate", "bond_big"}
    assert set(shown(rows, "ground-truth")["metric"]) == {"bond_score"}
