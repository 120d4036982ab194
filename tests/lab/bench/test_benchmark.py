"""Settings of a benchmark, and what it writes beside agreement and fidelity."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from nicegnn_lab.bench.rows import read_rows
from tests.lab.bench.small_bench import World, run_bench, use_world


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return use_world(monkeypatch)


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
