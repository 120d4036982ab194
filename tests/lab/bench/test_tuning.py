"""Tuning: every candidate is tried once, the best is found, the truth is not read."""

from __future__ import annotations

import json
import tomllib
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from torch import Tensor
from typer.testing import CliRunner

from nicegnn.errors import ConfigError
from nicegnn.intervention.query import Query
from nicegnn.molecule.splits import TEST
from nicegnn_lab.bench.rows import pack, read_rows
from nicegnn_lab.bench.run import RunReport, run_study
from nicegnn_lab.bench.task import MoleculeTask
from nicegnn_lab.bench.tuning import Tuning, best_settings, best_trials, read_search
from nicegnn_lab.cli.main import app
from nicegnn_lab.datasets.dataset import MoleculeDataset
from nicegnn_lab.metrics.agreement import Truth
from nicegnn_lab.rivals.gnnexplainer import GNNExplainer
from tests.lab.bench.small_bench import PAPER, World, use_world


@pytest.fixture(autouse=True)
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return use_world(monkeypatch)


def run(world: World, out: Path, space: dict[str, Any], **changes: Any) -> RunReport:
    study = Tuning(space, **({"num_graphs": 12} | changes))
    given: dict[str, Any] = {"targets_folder": world.targets, "device": "cpu", "fit_graphs": 60}
    return run_study(study, ["benzene"], out=out, **given)


def criterion(out: Path) -> pd.Series:
    """The rule's value by the tried settings."""
    rows = read_rows(out, where={"metric": "criterion"}).astype({"setting": "str"})
    return rows.set_index("setting")["value"]


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

    monkeypatch.setattr(Tuning, "measure", lambda *_: pytest.fail("tried again"))
    assert len(run(world, tmp_path, {"saliency": candidates}).finished) == 2
    assert best_settings(tmp_path) == {"benzene": {"saliency": best.settings}}
    pack(tmp_path)
    for path in (tmp_path / "rows").iterdir():
        path.unlink()
    assert best_settings(tmp_path) == {"benzene": {"saliency": best.settings}}
    assert len(run(world, tmp_path, {"saliency": candidates}).finished) == 2


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
        "gcn.benzene": {"random": {}},
    }


def hide(monkeypatch: pytest.MonkeyPatch) -> None:
    """Turns every truth and label into its opposite; whoever asks for a test graph fails."""
    plain: dict[str, Any] = {name: getattr(MoleculeDataset, name) for name in ("get", "batch")}

    def opposite(self: MoleculeDataset, name: str, part: Tensor, *given: Any) -> Any:
        assert not bool((part == TEST).any()), "a test graph was read"
        found = plain[name](self, *given)
        found.edge_truth, found.y = ~found.edge_truth, 1 - found.y
        return found

    def get(self: MoleculeDataset, idx: int) -> Any:
        return opposite(self, "get", self._part[[idx]], idx)

    def batch(self: MoleculeDataset, positions: Tensor | None = None) -> Any:
        part = self.part if positions is None else self.part[positions]
        return opposite(self, "batch", part, positions)

    def label(self: MoleculeDataset) -> Tensor:
        assert not bool((self.part == TEST).any()), "labels of test graphs were read"
        return 1 - plain_label(self)

    plain_label: Any = MoleculeDataset.y.fget  # type: ignore[attr-defined]
    monkeypatch.setattr(MoleculeDataset, "y", property(label))
    monkeypatch.setattr(MoleculeDataset, "get", get)
    monkeypatch.setattr(MoleculeDataset, "batch", batch)
    monkeypatch.setattr(Truth, "from_graphs", lambda *_: pytest.fail("a truth was read"))


SPACE: dict[str, Any] = {
    "occlusion": [{}],
    "pgexplainer": [{"steps": 4}],
    "refine": [{"steps": 4}],
    "nice-paper-tuned": [PAPER],
}


def test_tuning_and_fitting_read_no_test_graph_no_truth_and_no_label(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With every truth and label turned round, and without test graphs, the numbers are equal."""
    run(world, tmp_path / "seen", SPACE)
    hide(monkeypatch)
    report = run(world, tmp_path / "hidden", SPACE)
    assert report.failed == ()
    assert criterion(tmp_path / "hidden").notna().all()
    pd.testing.assert_series_equal(criterion(tmp_path / "seen"), criterion(tmp_path / "hidden"))


@pytest.mark.parametrize("fault", ["tunes on test graphs", "fits on test graphs", "sees the truth"])
def test_a_tuning_that_cheats_is_noticed(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    hide(monkeypatch)
    if fault == "tunes on test graphs":
        monkeypatch.setattr(Tuning, "part", "test")
    elif fault == "fits on test graphs":
        monkeypatch.setattr(MoleculeTask, "training", lambda self, most=None: self.part("test"))
    else:
        plain = Tuning._graphs

        def graphs(self: Tuning, job: Any) -> Any:
            Truth.from_graphs(job.graphs.batch())
            return plain(self, job)

        monkeypatch.setattr(Tuning, "_graphs", graphs)
    space = {"pgexplainer": [{"steps": 4}]}
    with pytest.raises(pytest.fail.Exception) if fault == "sees the truth" else nullcontext():
        assert len(run(world, tmp_path, space).failed) == 1


def test_a_setting_that_fails_is_recorded_and_comes_last(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = GNNExplainer._edge_score

    def edge_score(self: GNNExplainer, query: Query, seed: int) -> Tensor:
        if self.config.learning_rate > 1:
            raise RuntimeError("the mask is nan")
        return plain(self, query, seed)

    monkeypatch.setattr(GNNExplainer, "_edge_score", edge_score)
    bad = {"steps": 2, "learning_rate": 2.0}
    report = run(world, tmp_path, {"gnnexplainer": [bad, {"steps": 2}]})
    assert report.failed == ()  # it is a result
    assert best_settings(tmp_path) == {"benzene": {"gnnexplainer": {"steps": 2}}}
    rows = read_rows(tmp_path, where={"setting": json.dumps(bad)})
    assert rows["metric"].tolist() == ["criterion"]
    assert rows["value"].isna().all()
    assert rows["note"].iloc[0].startswith("RuntimeError: ")
    with pytest.raises(ConfigError, match="colour"):
        run(world, tmp_path, {"gnnexplainer": [{"colour": 1}]})


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
