"""Cases from rows: the right values on the right bonds, without data or scores."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
import torch

from nicegnn.errors import StoreError
from nicegnn_lab.bench.rows import read_rows
from nicegnn_lab.bench.targets import load_target, target_path
from nicegnn_lab.figures.molecules import cases_from_rows
from nicegnn_lab.rivals import get_explainer
from tests.lab.bench.small_bench import PAPER, make_world, run_bench, use_world


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("bench")
    with pytest.MonkeyPatch.context() as patch:
        use_world(patch)
        config = make_world().config(out, "nice-paper", "saliency", max_graphs=12)
        run_bench(config)
    return out


@pytest.fixture(scope="module")
def rows(bench: Path) -> pd.DataFrame:
    return read_rows(bench)


def test_values_are_those_of_the_explainer(rows: pd.DataFrame, monkeypatch) -> None:
    world = use_world(monkeypatch)
    model = load_target(target_path(world.targets, "benzene", "gin")).model
    nice = get_explainer("nice-paper", model, **PAPER).fit(world.dataset().train, progress=False)
    cases = cases_from_rows(rows, "benzene")
    assert 0 < len(cases) <= 3
    for case in cases:
        graph = world.dataset().test[int(case.title.rpartition(" ")[2])]
        assert case.about["smiles"] == graph.smiles
        found = nice.explain(graph, target=1)
        assert torch.equal(case.bond_index, found.bond_index)
        near = {"rtol": 1e-3, "atol": 1e-4, "check_dtype": False}
        torch.testing.assert_close(case.values["bond_score"], found.ranking, **near)
        torch.testing.assert_close(case.values["bond_gate"], found.bond_gate, **near)
        is_true = found.bonds.sum(graph.edge_truth.float()) > 0
        assert torch.equal(case.truth, is_true)
        assert 0 < int(case.truth.sum()) < case.truth.numel()
        assert 0.5 < case.about["probability"] <= 1  # predicted right


def test_missing_rows_are_named(rows: pd.DataFrame) -> None:
    with pytest.raises(StoreError, match="nicegnn lab bench -d indole"):
        cases_from_rows(rows, "indole")
    with pytest.raises(StoreError, match="bond_gate"):
        cases_from_rows(rows, "benzene", explainer="saliency")
