"""Parts and levels change what their names say, equal fits are shared, rows are complete."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from nicegnn.config import NICEConfig
from nicegnn.errors import ConfigError
from nicegnn.explain.nice import NICE
from nicegnn.intervention.mechanisms import NoiseCorruption
from nicegnn.seeding import mix
from nicegnn_lab.studies.ablation import (
    BASES,
    PARTS,
    SWEEPS,
    AblationStudy,
    SensitivityStudy,
    boundary_quality,
)
from nicegnn_lab.studies.bond_scores import explained_batch, query_of
from tests.lab.studies.small_runs import NICE as QUICK
from tests.lab.studies.small_runs import rows_of_run, run, small_job, use_world

BY_NAME = {sweep.name: sweep for sweep in SWEEPS}


@pytest.fixture(autouse=True)
def _small_world(monkeypatch: pytest.MonkeyPatch) -> None:
    use_world(monkeypatch)


def test_every_part_changes_its_base_in_its_own_way() -> None:
    configs = {}
    for name, (_, changes) in PARTS.items():
        readings = {"paper": NICEConfig.paper(), "propagated": NICEConfig.paper("propagated")}
        base = readings.get(name.partition("/")[0], NICEConfig())
        configs[name] = base.with_(**changes).to_toml()
        assert (configs[name] == base.to_toml()) == (name in ("paper", "propagated", "nice"))
    assert len(set(configs.values())) == len(configs)


def test_variants_of_one_fit_share_it_and_its_boundary(tmp_path: Path, monkeypatch) -> None:
    fits = []
    plain = NICE.fit
    monkeypatch.setattr(NICE, "fit", lambda *a, **k: fits.append(1) or plain(*a, **k))
    names = ("paper", "paper/no-compactness", "nice", "nice/score-gate", "nice/joint-path-clean")
    study = AblationStudy(names, QUICK, num_draws=4, removals=("em",))
    run(study, tmp_path)
    assert len(fits) == 3
    rows = rows_of_run(tmp_path, "ablation")
    value = rows.set_index(["setting", "metric", "protocol"])["value"]
    of_boundary = [("degradation_mean", ""), ("degradation_std", ""), ("restored", "")]
    for name in names:
        has_boundary = "paper" in name or "joint" in name
        assert ("restored" in value[name]) == has_boundary
        for metric, protocol in (
            *(of_boundary if has_boundary else ()),
            ("roc_auc", "paper"),
            ("roc_auc", "strict"),
            ("kept_area", "em"),
        ):
            assert value[name, metric, protocol] == value[name, metric, protocol]  # no nan
        (status,) = rows.loc[(rows["setting"] == name) & (rows["metric"] == "fit_status"), "note"]
        assert status
    assert set(rows.loc[rows["setting"] == "paper", "explainer"]) == {"nice-paper"}
    assert run(study, tmp_path).num_explained == 0  # all there
    assert len(fits) == 3


def test_boundary_is_judged_by_draws_of_its_own(tmp_path: Path) -> None:
    """Mean and spread of single graphs, one after the other, are those of the batch."""
    job = small_job(AblationStudy(("paper",), QUICK), tmp_path, fit_graphs=40)
    nice = job.explainer()
    scores = job.scores(nice)
    found = {block.metric: block.value for block in boundary_quality(job, nice, scores, 6)}
    means, spreads = [], []
    for row, position in enumerate(job.positions):
        batch = explained_batch(job, position.view(1))
        some = slice(int(scores.bond_ptr[row]), int(scores.bond_ptr[row + 1]))
        with nice.target.frozen(), torch.no_grad():
            noise = NoiseCorruption(mix(0, "boundary quality"), anchor="clean")
            query = query_of(nice, batch).under(noise)
            lost = query.sample(scores.extras["bond_gate"][some], 6, mix(0, "judged draws"))
        means.append(float(lost.mean()))
        spreads.append(float(lost.std(correction=0)))
    assert found["degradation_mean"] == pytest.approx(sum(means) / len(means), rel=1e-3)
    assert found["degradation_std"] == pytest.approx(sum(spreads) / len(spreads), rel=1e-3)
    assert found["restored"] == pytest.approx(float(scores.extras["restored"].mean()))


def test_unknown_part_is_named() -> None:
    with pytest.raises(ConfigError, match="no-such"):
        AblationStudy(("nice", "no-such"))


def test_every_level_is_a_configuration_and_the_defaults_are_among_them() -> None:
    for sweep in SWEEPS:
        assert list(sweep.levels) == sorted(set(sweep.levels))
        for base in sweep.bases:
            explainer, mechanism, settings = BASES[base]
            start = NICEConfig() if explainer == "nice" else NICEConfig.paper()
            plain = start.with_(mechanism=mechanism, **settings)
            configs = [plain.with_(**dict.fromkeys(sweep.settings, v)) for v in sweep.levels]
            assert plain in configs, (sweep.name, base)
            assert len({config.to_toml() for config in configs}) == len(configs)


def test_seeds_are_added_and_agreement_is_over_noise_and_over_fits(tmp_path: Path) -> None:
    sweep = replace(BY_NAME["risk_target"], levels=(0.05, 0.3))
    study = SensitivityStudy((sweep,), QUICK, num_draws=4)
    run(study, tmp_path)
    report = run(study, tmp_path, seeds=(0, 1))  # adds a seed
    assert len(report.found) == len(report.outcomes) == 2
    rows = rows_of_run(tmp_path, "sensitivity")
    assert set(rows.loc[rows["metric"] == "agreement_fit", "seed"]) == {1}
    assert rows[rows["metric"].str.startswith("agreement")]["value"].between(-1, 1).all()
    restored = rows[rows["metric"] == "restored"].set_index(["seed", "level"])["value"]
    for seed in (0, 1):  # a larger stated risk never needs more bonds
        assert restored[seed, 0.05] >= restored[seed, 0.3]


def test_without_noise_explanations_agree_with_themselves(tmp_path: Path) -> None:
    sweep = replace(BY_NAME["beta"], levels=(0.1,), bases=("nice",))
    study = SensitivityStudy((sweep,), QUICK, num_draws=2)
    job = small_job(study, tmp_path, fit_graphs=40)
    job.cell = replace(job.cell, variant=replace(job.variant, mechanism="em"))
    found = {block.metric: block.value for block in study.measure(job)}
    assert found["agreement_noise"] == pytest.approx(1)
