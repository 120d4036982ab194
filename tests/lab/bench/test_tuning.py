"""Tuning: every candidate is tried once, the best is found, the truth is not read."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from typer.testing import CliRunner

from nicegnn.errors import ConfigError, NotFittedError, StoreError
from nicegnn_lab.bench import pack, read_rows
from nicegnn_lab.bench.run import RunReport, Work
from nicegnn_lab.bench.tuning import (
    Tuning,
    best_settings,
    best_trials,
    read_search,
    run_tuning,
    settings_toml,
)
from nicegnn_lab.cli.main import app
from nicegnn_lab.rivals.refine import ReFine
from tests.lab.bench.small_bench import World, use_world

fit_units = ReFine._fit_units


@pytest.fixture(autouse=True)
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return use_world(monkeypatch)


def run(world: World, out: Path, space: dict[str, Any], **changes: Any) -> RunReport:
    given: dict[str, Any] = {
        "out": out,
        "targets_folder": world.targets,
        "device": "cpu",
        "fit_graphs": 60,
        "num_graphs": 12,
        "num_draws": 2,
    }
    return run_tuning(space, ["benzene"], **(given | changes))


def criterion(out: Path) -> pd.Series:
    """The rule's value by the tried settings."""
    rows = read_rows(out, where={"metric": "criterion"}).astype({"setting": "str"})
    return rows.set_index("setting")["value"]


def test_all_combinations_are_candidates(tmp_path: Path) -> None:
    file = tmp_path / "search.toml"
    file.write_text('[pgexplainer]\nsize = [0.1, 0.2]\nlayers = ["last", "all"]\nsteps = 3\n')
    assert read_search(file)["pgexplainer"] == [
        {"size": 0.1, "layers": "last", "steps": 3},
        {"size": 0.1, "layers": "all", "steps": 3},
        {"size": 0.2, "layers": "last", "steps": 3},
        {"size": 0.2, "layers": "all", "steps": 3},
    ]


def test_trials_that_are_no_product_are_written_one_by_one(tmp_path: Path) -> None:
    file = tmp_path / "search.toml"
    file.write_text(
        "[refine]\nsteps = 3\n[[refine.trial]]\nsize = 0.1\n"
        "[[refine.trial]]\nsize = [0.2, 0.3]\nsteps = 5\n[[refine.trial]]\n"
        "[[random.trial]]\n"
    )
    assert read_search(file) == {
        "refine": [
            {"steps": 3, "size": 0.1},
            {"steps": 5, "size": 0.2},  # its own steps, not the shared ones
            {"steps": 5, "size": 0.3},
            {"steps": 3},
        ],
        "random": [{}],
    }


@pytest.mark.parametrize(
    "text",
    [
        "[nobody]\nx = [1]\n",
        "not toml",
        "[pgexplainer\n",
        "[refine]\ntrial = [1, 2]\n",
        "[refine.trial]\nsize = 0.1\n",
    ],
)
def test_bad_search_files_are_named(tmp_path: Path, text: str) -> None:
    file = tmp_path / "search.toml"
    file.write_text(text)
    with pytest.raises(ConfigError):
        read_search(file)


def test_best_is_chosen_and_a_second_call_tries_nothing(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    candidates = [{"absolute": True}, {"absolute": False}]
    assert run(world, tmp_path, {"saliency": candidates}).num_measured == 2
    rows = read_rows(tmp_path)
    assert set(rows["study"]) == {"tuning"}
    assert set(rows["setting"]) == {json.dumps(candidate) for candidate in candidates}
    for _, trial in rows.groupby("setting", observed=True):
        by_name = trial.set_index(["metric", "protocol"])["value"]
        assert 0 < by_name["criterion", ""] < 1
        kept = by_name["kept", "em"] + by_name["kept", "nc"]
        assert by_name["criterion", ""] == pytest.approx(kept / 2)
        assert by_name["explain_seconds", ""] > 0
    (best,) = best_trials(tmp_path)
    assert best.criterion == criterion(tmp_path).max()
    assert best.worst == criterion(tmp_path).min()
    assert best.num_trials == 2
    assert criterion(tmp_path)[json.dumps(best.settings)] == best.criterion

    def never(self: Work, cell: object) -> None:
        raise AssertionError("tried again")

    monkeypatch.setattr(Work, "__call__", never)
    assert len(run(world, tmp_path, {"saliency": candidates}).found) == 2
    assert best_settings(tmp_path) == {"benzene": {"saliency": best.settings}}
    pack(tmp_path)
    for path in (tmp_path / "rows").iterdir():
        path.unlink()
    assert best_settings(tmp_path) == {"benzene": {"saliency": best.settings}}
    assert len(run(world, tmp_path, {"saliency": candidates}).found) == 2


def test_mechanisms_and_targets_have_tables_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = ["dataset", "target", "explainer", "mechanism", "setting", "value"]
    rows = pd.DataFrame(
        [
            ("benzene", "gin", "gnnexplainer", "em", '{"size": 1.0}', 0.5),
            ("benzene", "gin", "gnnexplainer", "em", '{"size": 2.0}', 0.6),
            ("benzene", "gin", "gnnexplainer", "nc", '{"size": 1.0}', 0.4),
            ("benzene", "gin", "gnnexplainer", "nc", '{"size": 2.0}', float("nan")),
            ("benzene", "gcn", "random", "", "{}", 0.1),
        ],
        columns=columns,
    )
    monkeypatch.setattr("nicegnn_lab.bench.tuning.read_rows", lambda folder, where: rows)
    assert best_settings(tmp_path) == {
        "benzene": {"gnnexplainer": {"size": 2.0}, "gnnexplainer+nc": {"size": 1.0}},
        "gcn": {"benzene": {"random": {}}},
    }


def test_truth_and_labels_are_not_read(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Graphs without truth and with other labels give the same numbers."""
    run(world, tmp_path / "a", {"occlusion": [{}]})
    plain = Tuning._graphs

    def blind(self: Tuning, job: Any) -> Any:
        batch = plain(self, job)
        batch.edge_truth = ~batch.edge_truth
        batch.y = 1 - batch.y
        return batch

    monkeypatch.setattr(Tuning, "_graphs", blind)
    run(world, tmp_path / "b", {"occlusion": [{}]})
    assert criterion(tmp_path / "a")["{}"] == criterion(tmp_path / "b")["{}"]


def test_a_setting_that_fails_is_recorded_and_comes_last(world: World, tmp_path: Path) -> None:
    bad = {"steps": 2, "learning_rate": 1e300}
    report = run(world, tmp_path, {"gnnexplainer": [bad, {"steps": 2}]})
    assert report.failed == ()  # it is a result
    assert best_settings(tmp_path) == {"benzene": {"gnnexplainer": {"steps": 2}}}
    rows = read_rows(tmp_path, where={"setting": json.dumps(bad)})
    assert rows["metric"].tolist() == ["criterion"]
    assert rows["value"].isna().all()
    assert rows["note"].iloc[0].startswith("RuntimeError: ")
    with pytest.raises(ConfigError, match="colour"):
        run(world, tmp_path, {"gnnexplainer": [{"colour": 1}]})


def test_trials_of_another_search_are_not_mixed_in(world: World, tmp_path: Path) -> None:
    run(world, tmp_path, {"saliency": [{}]})
    first = criterion(tmp_path)["{}"]
    assert run(world, tmp_path, {"saliency": [{}]}, num_graphs=5).num_measured == 1
    assert len(criterion(tmp_path)) == 1
    assert criterion(tmp_path)["{}"] != first
    with pytest.raises(StoreError, match="nicegnn lab tune"):
        best_settings(tmp_path / "nowhere")


def test_command_writes_settings_that_can_be_read(world: World, tmp_path: Path) -> None:
    search, chosen = tmp_path / "search.toml", tmp_path / "chosen.toml"
    search.write_text("[saliency]\nabsolute = [true, false]\n")
    options = {
        "--dataset": "benzene",
        "--search": search,
        "--targets-folder": world.targets,
        "--out": tmp_path / "trials",
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


def test_settings_of_explaining_share_a_fit(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only `fine_tune_steps` differs: one fit, and the same numbers as two."""
    candidates = [{"fine_tune_steps": 0}, {"fine_tune_steps": 3}]
    for number, candidate in enumerate(candidates):
        run(world, tmp_path / str(number), {"refine": [candidate]}, steps=4)
    fits: list[int] = []
    monkeypatch.setattr(
        ReFine, "_fit_units", lambda self, *args: fits.append(1) or fit_units(self, *args)
    )
    run(world, tmp_path / "both", {"refine": candidates}, steps=4)
    assert len(fits) == 1
    together = criterion(tmp_path / "both")
    for number, candidate in enumerate(candidates):
        name = json.dumps(candidate)
        assert together[name] == criterion(tmp_path / str(number))[name]
    assert together.nunique() == 2


def test_steps_shorten_every_fit(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And trials of another length are other trials."""
    seen: list[int] = []
    monkeypatch.setattr(
        ReFine,
        "_fit_units",
        lambda self, *args: seen.append(self.config.steps) or fit_units(self, *args),
    )
    run(world, tmp_path, {"refine": [{"size": 0.1}]}, steps=2)
    run(world, tmp_path, {"refine": [{"size": 0.1}]}, steps=3)
    assert seen == [2, 3]
    assert best_settings(tmp_path) == {"benzene": {"refine": {"size": 0.1}}}


def test_an_explainer_of_another_model_cannot_be_adopted(world: World) -> None:
    from nicegnn_lab.bench.targets import load_target, target_path

    one, other = (load_target(target_path(world.targets, "benzene", "gin")).model for _ in "ab")
    with pytest.raises(NotFittedError, match="another model"):
        ReFine(one).adopt(ReFine(other))
