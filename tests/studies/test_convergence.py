"""Convergence of BIG: the reference agrees with itself, more nodes close the gap."""

from __future__ import annotations

from pathlib import Path

import pytest

from nicegnn.bench.study_rows import read_experiment
from nicegnn.config import AttributionConfig
from nicegnn.figures.convergence import PANELS, figure
from nicegnn.figures.style import caption_of
from nicegnn.studies import convergence
from nicegnn.studies.convergence import BASES, EXPERIMENT
from tests.studies.small_runs import FIT, quick, small_subject, use_world


@pytest.fixture(autouse=True)
def _small_world(monkeypatch: pytest.MonkeyPatch) -> None:
    use_world(monkeypatch)


def test_a_reference_agrees_with_itself(tmp_path: Path) -> None:
    best = AttributionConfig(path="joint", num_nodes=4, num_draws=8)
    path = convergence._Path(
        small_subject(), BASES["nice"].with_(**FIT), best, 0, tmp_path, fit_graphs=40
    )
    found = path.compare(path.reference, path.reference)
    assert found["error"] == 0
    assert found["spearman"] == pytest.approx(1)
    assert 0 <= found["roc_auc/strict"] <= 1


def test_gap_closes_with_nodes_and_parts_go_on(tmp_path: Path, monkeypatch) -> None:
    settings = quick(
        tmp_path,
        settings=FIT,
        fit_graphs=40,
        bases=("nice",),
        nodes=(2, 128),
        draws=(4, 8),
        quadratures=("riemann", "gauss"),
        reference_nodes=12,
        reference_draws=32,
    )
    convergence.compute(**settings)
    rows = read_experiment(tmp_path, EXPERIMENT)
    assert not rows["value"].isna().any()
    gap = rows[rows["metric"] == "gap"].set_index(["setting", "level"])["value"]
    # with shared draws the gap is quadrature alone; that of Riemann falls with the root of nodes
    for rule in ("riemann", "gauss"):
        assert gap[f"nice/{rule}/shared/8", 128] < 0.5 * gap[f"nice/{rule}/shared/8", 2]
    assert gap["nice/gauss/shared/8", 128] < 0.01
    assert gap["nice/gauss/shared/8", 128] < gap["nice/riemann/shared/8", 128]
    error = rows[rows["metric"] == "error"].set_index(["setting", "level"])["value"]
    assert error["nice/reference", 12] < error["nice/riemann/fresh/4", 2]
    table = convergence.table(tmp_path)
    assert len(table.rows) == 2 * 2 * 2 * 2 + 1
    drawn = figure(tmp_path)
    assert len(drawn.axes) == len(PANELS)
    assert "seeds: 1" in caption_of(drawn)

    def never(*_: object) -> None:
        raise AssertionError("computed again")

    monkeypatch.setattr(convergence, "fit_once", never)
    convergence.compute(**settings)
