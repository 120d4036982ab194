"""Parts and levels change what their names say, equal fits are shared, rows are complete."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from nicegnn.explain.nice import NICE
from nicegnn.graph.case import make_case
from nicegnn.intervention.mechanisms import NoiseCorruption
from nicegnn.intervention.query import Query
from nicegnn.seeding import mix
from nicegnn_lab.studies.ablation import (
    SWEEPS,
    AblationStudy,
    SensitivityStudy,
    boundary_quality,
)
from tests.lab.studies.small_runs import PAPER as QUICK
from tests.lab.studies.small_runs import rows_of_run, run, small_job, use_world

BY_NAME = {sweep.name: sweep for sweep in SWEEPS}


@pytest.fixture(autouse=True)
def _small_world(monkeypatch: pytest.MonkeyPatch) -> None:
    use_world(monkeypatch)


def test_every_part_is_fitted_once_and_measured_whole(tmp_path: Path, monkeypatch) -> None:
    fits = []
    plain = NICE.fit
    monkeypatch.setattr(NICE, "fit", lambda *a, **k: fits.append(1) or plain(*a, **k))
    names = ("paper", "paper/no-compactness", "propagated")
    study = AblationStudy(names, QUICK, num_draws=4, removals=("em",))
    run(study, tmp_path)
    assert len(fits) == 3
    rows = rows_of_run(tmp_path, "ablation")
    value = rows.set_index(["setting", "metric", "protocol"])["value"]
    for name in names:
        for metric, protocol in (
            *(("degradation_mean", ""), ("degradation_std", ""), ("restored", "")),
            *(("roc_auc", "paper"), ("roc_auc", "strict"), ("kept_area", "em")),
        ):
            assert value[name, metric, protocol] == value[name, metric, protocol]  # no nan
        (status,) = rows.loc[(rows["setting"] == name) & (rows["metric"] == "fit_status"), "note"]
        assert status
    assert set(rows.loc[rows["setting"] == "paper", "explainer"]) == {"nice-paper"}
    assert run(study, tmp_path).num_measured == 0  # all there
    assert len(fits) == 3


def test_boundary_is_judged_by_draws_of_its_own(tmp_path: Path) -> None:
    """Mean and spread of single graphs, one after the other, are those of the batch."""
    job = small_job(AblationStudy(("paper",), QUICK), tmp_path, fit_graphs=40)
    nice, out = job.explainer, job.scores()
    assert isinstance(nice, NICE)
    found = {block.metric: block.value for block in boundary_quality(job, out, 6)}
    means, spreads = [], []
    for row, position in enumerate(job.positions):
        case = make_case(job.batch(position.view(1)))
        some = out.bonds.batch == row
        with nice.target.frozen(), torch.no_grad():
            noise = NoiseCorruption(mix(0, "boundary quality"), anchor="clean")
            query = Query(nice.target, case, noise)
            lost = query.sample(out.bond_gate[some], 6, mix(0, "judged draws"))
        means.append(float(lost.mean()))
        spreads.append(float(lost.std(correction=0)))
    assert found["degradation_mean"] == pytest.approx(sum(means) / len(means), rel=1e-3)
    assert found["degradation_std"] == pytest.approx(sum(spreads) / len(spreads), rel=1e-3)
    assert found["restored"] == pytest.approx(float(out.restored.mean()))


def test_seeds_are_added_and_agreement_is_over_noise_and_over_fits(tmp_path: Path) -> None:
    sweep = replace(BY_NAME["penalty"], levels=(0.0, 30.0))
    study = SensitivityStudy((sweep,), QUICK | {"boundary__learning_rate": 0.1}, num_draws=4)
    run(study, tmp_path)
    report = run(study, tmp_path, seeds=(0, 1))  # adds a seed
    assert len(report.finished) == report.num_measured == 4
    rows = rows_of_run(tmp_path, "sensitivity")
    assert set(rows["setting"]) == {"paper/penalty", "propagated/penalty"}
    assert set(rows.loc[rows["metric"] == "agreement_fit", "seed"]) == {1}
    assert rows[rows["metric"].str.startswith("agreement")]["value"].between(-1, 1).all()
    restored = rows[rows["metric"] == "restored"].set_index(["setting", "seed", "level"])["value"]
    for seed in (0, 1):  # a heavy price of open gates shuts them
        assert restored["paper/penalty", seed, 30.0] < restored["paper/penalty", seed, 0.0]
