"""Convergence of BIG: the reference agrees with itself, more nodes close the gap."""

from __future__ import annotations

from pathlib import Path

import pytest

from nicegnn_lab.studies import convergence
from nicegnn_lab.studies.convergence import ConvergenceStudy
from tests.lab.studies.small_runs import FIT, rows_of_run, run, small_job, use_world


@pytest.fixture(autouse=True)
def _small_world(monkeypatch: pytest.MonkeyPatch) -> None:
    use_world(monkeypatch)


def test_a_reference_agrees_with_itself(tmp_path: Path) -> None:
    job = small_job(ConvergenceStudy(("nice",), settings=FIT), tmp_path, fit_graphs=40)
    nice = job.explainer()
    paths = convergence.ends_of_paths(job, nice)
    found = convergence.integrate(paths, nice.config.attribution, 0)
    blocks = list(convergence.compare(job, paths, found, found))
    values = {(block.metric, block.protocol): block.value for block in blocks}
    assert values["error", ""] == 0
    assert values["spearman", ""] == pytest.approx(1)
    assert 0 <= values["roc_auc", "strict"] <= 1


def test_gap_closes_with_nodes(tmp_path: Path) -> None:
    study = ConvergenceStudy(
        paths=("nice",),
        nodes=(2, 128),
        draws=(4, 8),
        quadratures=("riemann", "gauss"),
        reference_nodes=12,
        reference_draws=32,
        settings=FIT,
    )
    run(study, tmp_path)
    rows = rows_of_run(tmp_path, "convergence")
    assert not rows["value"].isna().any()
    gap = rows[rows["metric"] == "gap"].set_index(["setting", "level"])["value"]
    assert len(gap) == 2 * 2 * 2 * 2 + 1
    # with shared draws the gap is quadrature alone; that of Riemann falls with the root of nodes
    for rule in ("riemann", "gauss"):
        assert gap[f"nice/{rule}/shared/8", 128] < 0.5 * gap[f"nice/{rule}/shared/8", 2]
    assert gap["nice/gauss/shared/8", 128] < 0.01
    assert gap["nice/gauss/shared/8", 128] < gap["nice/riemann/shared/8", 128]
    error = rows[rows["metric"] == "error"].set_index(["setting", "level"])["value"]
    assert error["nice/reference", 12] < error["nice/riemann/fresh/4", 2]
