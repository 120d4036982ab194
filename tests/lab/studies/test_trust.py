"""Warnings beside the truth: rows of each graph, two seeds."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from nicegnn import NICE, Flag, NICEConfig
from nicegnn.seeding import mix
from nicegnn_lab.studies.bond_scores import explained_batch
from nicegnn_lab.studies.trust import JUDGED, TrustStudy, overlap, warned
from tests.lab.studies.small_runs import rows_of_run, run, small_job, use_world


@pytest.fixture(autouse=True)
def _small_world(monkeypatch: pytest.MonkeyPatch) -> None:
    use_world(monkeypatch)


def test_rows_hold_what_the_explanation_says_of_each_graph(tmp_path: Path) -> None:
    study = TrustStudy(ways=("instant", "eight draws"))
    run(study, tmp_path)
    rows = rows_of_run(tmp_path, "trust")
    wide = rows.pivot_table(index=["setting", "graph"], columns="metric", values="value")
    job = small_job(study, tmp_path)
    nice = NICE(job.model, NICEConfig.instant())
    batch = explained_batch(job)
    first, second = (nice.explain(batch, seed=seed) for seed in (0, mix(0, "again")))
    mine = wide.loc["instant"].loc[job.positions.tolist()]
    assert first.trust is not None
    assert mine["overlap"].tolist() == pytest.approx(first.trust.overlap.tolist(), abs=1e-5)
    assert mine["kept"].tolist() == pytest.approx(first.trust.kept.tolist(), rel=1e-3, abs=1e-4)
    assert mine["overlap_seen"].tolist() == pytest.approx(overlap(first, second).tolist())
    assert [Flag(int(value)) for value in mine["flags"]] == list(first.status.flags)
    assert mine["roc_auc"].dropna().between(0, 1).all()
    assert len(wide.loc["eight draws"]) == len(mine) == 5


def test_overlap_by_hand(tmp_path: Path) -> None:
    job = small_job(TrustStudy(), tmp_path)
    out = NICE(job.model, NICEConfig.instant()).explain(explained_batch(job))
    assert torch.equal(overlap(out, out), torch.ones(5))


def test_flags_are_read_from_numbers() -> None:
    assert warned([0.0, 64.0, 192.0], Flag.NO_BETTER_THAN_RANDOM) == [False, True, True]
    assert Flag.NO_EDGES not in JUDGED
