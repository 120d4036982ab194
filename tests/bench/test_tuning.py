"""Tuning: every candidate is tried once, the best is found, the truth is not read."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from nicegnn.bench import tuning
from nicegnn.bench.targets import load_target, target_path
from nicegnn.bench.tuning import TuneConfig, best_settings, read_search, settings_toml, tune
from nicegnn.cli.main import app
from nicegnn.errors import ConfigError, NotFittedError, StoreError
from nicegnn.rivals.refine import ReFine
from tests.bench.small_bench import make_world

fit_units = ReFine._fit_units
CONFIG = TuneConfig(num_graphs=12, fit_graphs=60, num_draws=2)


def run(name: str, candidates: list[dict], log: Path, config: TuneConfig = CONFIG):
    world = make_world()
    target = load_target(target_path(world.targets, "benzene", "gin"))
    return tune(world.dataset(), target, name, candidates, config, log=log, progress=False)


def test_all_combinations_are_candidates(tmp_path: Path) -> None:
    file = tmp_path / "search.toml"
    file.write_text('[pgexplainer]\nsize = [0.1, 0.2]\nlayers = ["last", "all"]\nsteps = 3\n')
    assert read_search(file)["pgexplainer"] == [
        {"size": 0.1, "layers": "last", "steps": 3},
        {"size": 0.1, "layers": "all", "steps": 3},
        {"size": 0.2, "layers": "last", "steps": 3},
        {"size": 0.2, "layers": "all", "steps": 3},
    ]


@pytest.mark.parametrize("text", ["[nobody]\nx = [1]\n", "not toml", "[pgexplainer\n"])
def test_bad_search_files_are_named(tmp_path: Path, text: str) -> None:
    file = tmp_path / "search.toml"
    file.write_text(text)
    with pytest.raises(ConfigError):
        read_search(file)


def test_best_first_and_a_second_call_tries_nothing(tmp_path, monkeypatch) -> None:
    log = tmp_path / "log.json"
    candidates = [{"absolute": True}, {"absolute": False}]
    trials = run("saliency", candidates, log)
    assert sorted(map(str, (t.settings for t in trials))) == sorted(map(str, candidates))
    assert trials[0].criterion >= trials[1].criterion
    for trial in trials:
        assert 0 < trial.criterion < 1
        assert trial.criterion == pytest.approx(sum(trial.kept.values()) / 2)

    def never(*_):
        raise AssertionError("tried again")

    monkeypatch.setattr(tuning, "_try", never)
    assert run("saliency", candidates, log) == trials
    best = {"benzene": {"saliency": trials[0].settings}}
    assert best_settings(tmp_path) == best
    other = json.loads(log.read_text()) | {"target": "gcn"}
    (tmp_path / "other.json").write_text(json.dumps(other))
    assert best_settings(tmp_path) == best | {"gcn": best}


def test_truth_and_labels_are_not_read(tmp_path, monkeypatch) -> None:
    """Graphs without truth and with other labels give the same numbers."""
    plain = run("occlusion", [{}], tmp_path / "a.json")
    wrong = tuning._validation_graphs

    def blind(*args):
        batch = wrong(*args)
        batch.edge_truth = ~batch.edge_truth
        batch.y = 1 - batch.y
        return batch

    monkeypatch.setattr(tuning, "_validation_graphs", blind)
    assert run("occlusion", [{}], tmp_path / "b.json")[0].kept == plain[0].kept


def test_a_setting_that_fails_is_recorded_and_comes_last(tmp_path) -> None:
    trials = run("pgexplainer", [{"size": -1.0}, {"steps": 2}], tmp_path / "log.json")
    assert trials[0].settings == {"steps": 2}
    assert "size" in trials[1].error
    json.loads((tmp_path / "log.json").read_text())


def test_log_of_another_search_is_refused(tmp_path) -> None:
    log = tmp_path / "log.json"
    run("saliency", [{}], log)
    with pytest.raises(StoreError, match="config"):
        run("saliency", [{}], log, TuneConfig(num_graphs=5))
    log.write_text("{")
    with pytest.raises(StoreError, match="damaged"):
        run("saliency", [{}], log)
    with pytest.raises(StoreError, match=r"log\.json is damaged"):
        best_settings(tmp_path)


def test_command_writes_settings_that_can_be_read(tmp_path, monkeypatch) -> None:
    world = make_world()
    for key, value in world.environment.items():
        monkeypatch.setenv(key, value)
    search, chosen = tmp_path / "search.toml", tmp_path / "chosen.toml"
    search.write_text("[saliency]\nabsolute = [true, false]\n")
    options = {
        "--dataset": "benzene",
        "--search": search,
        "--targets-folder": world.targets,
        "--out": tmp_path / "logs",
        "--chosen": chosen,
        "--num-graphs": 6,
        "--device": "cpu",
    }
    words = [str(word) for pair in options.items() for word in pair]
    result = CliRunner().invoke(app, ["tune", *words])
    assert result.exit_code == 0, result.output
    assert "2 trials" in result.output
    table = tomllib.loads(chosen.read_text())
    assert set(table["benzene"]["saliency"]) == {"absolute"}


def test_settings_survive_toml() -> None:
    one = {"pgexplainer+nc": {"layers": "all", "size": 0.005, "steps": 3}, "occlusion": {}}
    settings = {"benzene": one, "gin-mean": {"benzene": one}}
    assert tomllib.loads(settings_toml(settings)) == settings


def test_settings_of_explaining_share_a_fit(tmp_path, monkeypatch) -> None:
    """Only `fine_tune_steps` differs: one fit, and the same numbers as two."""
    candidates = [{"fine_tune_steps": 0}, {"fine_tune_steps": 3}]
    config = TuneConfig(num_graphs=12, fit_graphs=60, num_draws=2, steps=4)
    apart = [
        run("refine", [one], tmp_path / f"{k}.json", config) for k, one in enumerate(candidates)
    ]
    fits = []
    monkeypatch.setattr(
        ReFine, "_fit_units", lambda self, *args: fits.append(1) or fit_units(self, *args)
    )
    together = run("refine", candidates, tmp_path / "both.json", config)
    assert len(fits) == 1
    by_steps = {t.settings["fine_tune_steps"]: t.criterion for t in together}
    assert by_steps == {t.settings["fine_tune_steps"]: t.criterion for [t] in apart}
    assert by_steps[0] != by_steps[3]


def test_steps_shorten_every_fit(tmp_path, monkeypatch) -> None:
    """And the log says so: it does not go on from trials of another length."""
    seen = []
    monkeypatch.setattr(
        ReFine,
        "_fit_units",
        lambda self, *args: seen.append(self.config.steps) or fit_units(self, *args),
    )
    log = tmp_path / "log.json"
    short = TuneConfig(num_graphs=12, fit_graphs=60, num_draws=2, steps=2)
    [trial] = run("refine", [{"size": 0.1}], log, short)
    assert seen == [2]
    assert trial.settings == {"size": 0.1}
    with pytest.raises(StoreError, match="another search"):
        run("refine", [{"size": 0.1}], log)


def test_an_explainer_of_another_model_cannot_be_adopted() -> None:
    world = make_world()
    one, other = (load_target(target_path(world.targets, "benzene", "gin")).model for _ in "ab")
    with pytest.raises(NotFittedError, match="another model"):
        ReFine(one).adopt(ReFine(other))
