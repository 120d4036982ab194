"""Sensitivity: levels reach the settings, and agreement is what it says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from nicegnn.config import NICEConfig
from nicegnn.studies.sensitivity import BASES, SWEEPS, SensitivityStudy
from tests.studies.small_runs import NICE as QUICK
from tests.studies.small_runs import rows_of_run, run, small_job, use_world

BY_NAME = {sweep.name: sweep for sweep in SWEEPS}


@pytest.fixture(autouse=True)
def _small_world(monkeypatch: pytest.MonkeyPatch) -> None:
    use_world(monkeypatch)


def test_every_level_is_a_configuration_and_the_defaults_are_among_them() -> None:
    for sweep in SWEEPS:
        assert list(sweep.levels) == sorted(set(sweep.levels))
        for base in sweep.bases:
            explainer, mechanism, settings = BASES[base]
            start = NICEConfig.paper() if explainer == "nice-paper" else NICEConfig()
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
