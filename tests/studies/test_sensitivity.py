"""Sensitivity: levels reach the settings, agreement is what it says, the figure has all panels."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from nicegnn.bench.study_rows import read_experiment
from nicegnn.explain.nice import NICE
from nicegnn.figures.sensitivity import PANELS, figure
from nicegnn.figures.style import caption_of
from nicegnn.studies import sensitivity
from nicegnn.studies.sensitivity import BASES, EXPERIMENT, SWEEPS
from tests.studies.small_runs import NICE as QUICK
from tests.studies.small_runs import quick, use_world

BY_NAME = {sweep.name: sweep for sweep in SWEEPS}


@pytest.fixture(autouse=True)
def _small_world(monkeypatch: pytest.MonkeyPatch) -> None:
    use_world(monkeypatch)


def test_every_level_is_a_configuration_and_the_defaults_are_among_them() -> None:
    for sweep in SWEEPS:
        assert list(sweep.levels) == sorted(set(sweep.levels))
        for base in sweep.bases:
            configs = [sweep.config(base, level, {}) for level in sweep.levels]
            assert BASES[base] in configs, (sweep.name, base)
            assert len({config.to_toml() for config in configs}) == len(configs)


def test_parts_go_on_and_stability_is_over_noise_and_over_fits(tmp_path: Path, monkeypatch) -> None:
    sweeps = [
        replace(BY_NAME["risk_target"], levels=(0.05, 0.3)),
        replace(BY_NAME["num_nodes"], levels=(1, 2), bases=("paper",)),
    ]
    settings = quick(
        tmp_path, sweeps=sweeps, settings=QUICK, fit_graphs=40, num_draws=4, seeds=(0,)
    )
    sensitivity.compute(**settings)
    sensitivity.compute(**settings | {"seeds": (0, 1)})  # adds a seed
    rows = read_experiment(tmp_path, EXPERIMENT)
    value = rows.set_index(["setting", "level", "seed", "metric"])["value"]
    assert rows.groupby(["setting", "level", "seed"]).ngroups == 8
    with_fit = rows[rows["metric"] == "agreement_fit"]
    assert set(with_fit["seed"]) == {1}
    assert rows[rows["metric"].str.startswith("agreement")]["value"].between(-1, 1).all()
    for seed in (0, 1):  # a larger stated risk never needs more bonds
        restored = [
            value["nice-joint/risk_target", level, seed, "restored"] for level in (0.05, 0.3)
        ]
        assert restored[0] >= restored[1]
    table = sensitivity.table(tmp_path)
    assert [row[:3] for row in table.rows] == [
        ["nice-joint", BY_NAME["risk_target"].title, "0.05"],
        ["nice-joint", BY_NAME["risk_target"].title, "0.3"],
        ["paper", BY_NAME["num_nodes"].title, "1"],
        ["paper", BY_NAME["num_nodes"].title, "2"],
    ]
    drawn = figure(tmp_path)
    assert "seeds: " in caption_of(drawn)
    assert len(drawn.axes) == 2 * len(PANELS)

    def never(*_: object, **__: object) -> None:
        raise AssertionError("explained again")

    monkeypatch.setattr(NICE, "explain", never)
    sensitivity.compute(**settings | {"seeds": (0, 1)})


def test_a_mechanism_without_noise_agrees_with_itself(tmp_path: Path) -> None:
    sensitivity.compute(
        **quick(
            tmp_path,
            sweeps=[replace(BY_NAME["beta"], levels=(0.1,), bases=("nice",))],
            settings=QUICK | {"mechanism": "em"},
            fit_graphs=40,
            num_draws=2,
        )
    )
    rows = read_experiment(tmp_path, EXPERIMENT).set_index("metric")["value"]
    assert rows["agreement_noise"] == pytest.approx(1)
