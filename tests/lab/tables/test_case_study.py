"""Cases from rows: the right values on the right bonds, without data or scores."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
import torch

from nicegnn.errors import StoreError
from nicegnn.graph.case import find_bonds
from nicegnn_lab.bench import read_rows, run_bench
from nicegnn_lab.bench.measure import load_scores
from nicegnn_lab.datasets import load_dataset
from nicegnn_lab.tables.case_study import MoleculeCase, cases_from_rows
from tests.lab.bench.small_bench import make_world, use_world


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("bench")
    with pytest.MonkeyPatch.context() as patch:
        use_world(patch)
        config = make_world().config(out, "nice-paper", "saliency", max_graphs=12)
        run_bench(config, progress=False)
    return out


@pytest.fixture(scope="module")
def rows(bench: Path) -> pd.DataFrame:
    return read_rows(bench)


def test_values_are_those_of_the_explainer(bench: Path, rows: pd.DataFrame, monkeypatch) -> None:
    use_world(monkeypatch)
    data = load_dataset("benzene")
    stored = [load_scores(path) for path in (bench / "scores").glob("*.safetensors")]
    (scores,) = (one for one in stored if "bond_gate" in one.extras)
    cases = cases_from_rows(rows, "benzene")
    assert 0 < len(cases) <= 3
    for case in cases:
        position = int(case.title.rpartition(" ")[2])
        row = scores.positions.tolist().index(position)
        some = slice(int(scores.bond_ptr[row]), int(scores.bond_ptr[row + 1]))
        graph = data.test[position]
        assert case.smiles == graph.smiles
        # bond by bond through the ends of the bond in the dataset's graph
        bonds = find_bonds(graph.edge_index, torch.zeros_like(graph.edge_index[0]))
        ends = [tuple(sorted(pair)) for pair in bonds.index.t().tolist()]
        for number, pair in enumerate(case.bond_index.t().tolist()):
            place = ends.index(tuple(sorted(pair)))
            assert case.score[number] == scores.bond_score[some][place]
            assert case.gate[number] == scores.extras["bond_gate"][some][place]
            assert case.big[number] == scores.extras["bond_loss"][some][place]
            is_true = bool(graph.edge_truth[bonds.edge_bond == place].any())
            assert bool(case.truth[number]) == is_true
        assert 0 < int(case.truth.sum()) < case.truth.numel()
        assert 0.5 < case.probability <= 1  # predicted right


def test_missing_rows_are_named(rows: pd.DataFrame) -> None:
    with pytest.raises(StoreError, match="nicegnn lab bench -d indole"):
        cases_from_rows(rows, "indole")
    with pytest.raises(StoreError, match="bond_gate"):
        cases_from_rows(rows, "benzene", explainer="saliency")


def test_auc_of_a_case_is_over_its_bonds() -> None:
    truth = torch.tensor([True, False, True, False])
    value = torch.tensor([0.9, 0.1, 0.5, 0.5])
    nothing = torch.full((4,), torch.nan)
    ends = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 4]])
    case = MoleculeCase("one", "CCCCC", ends, truth, nothing, -value, value, probability=1)
    assert case.auc("score") == 0.875  # three pairs of four are right, one is a tie
    assert case.auc("big") == 0.125
    assert case.auc("gate") != case.auc("gate")  # nan
