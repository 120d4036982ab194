"""The rows in results/: one schema, plain names, and keys that the present code finds again."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nicegnn_lab.bench.plan import CHOSEN_FILE, read_settings
from nicegnn_lab.bench.rows import COLUMNS, cells_in, finished_cells, read_rows
from nicegnn_lab.bench.study import content_hash, name_of
from nicegnn_lab.bench.tuning import best_settings, settings_toml
from nicegnn_lab.tables.sources import older_rows
from tests.lab.bench.small_bench import Asked

ROOT = Path(__file__).parents[3]
RESULTS = ROOT / "results"
FILES = [path for path in sorted(RESULTS.glob("**/*.parquet")) if path.parent.name != "rows"]
SMALL = sorted({path.parent for path in FILES if path.parent.name != "bench"})
STAND_INS = {"indole", "pains", "rings-count", "rings-max"}


def test_every_family_is_packed() -> None:
    names = {path.parent.relative_to(RESULTS).as_posix() for path in FILES}
    assert {"bench", "tuning", "studies/ablation", "studies/wide", "studies/scale"} <= names


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_cells_are_named_by_their_identity(path: Path) -> None:
    cells = cells_in(path)
    assert [cell.name for cell in cells] == sorted(cell.name for cell in cells)
    for cell in cells:
        about, identity = cell.description["cell"], cell.description["identity"]
        assert cell.key == content_hash(identity)
        assert cell.name == name_of(about)
        assert about["study"] == identity["study"] == path.parent.name
        assert about["stand_in"] == (about["dataset"] in STAND_INS)
        scores = identity["scores"]
        assert (scores["dataset"], scores["target"]) == (about["dataset"], about["target"])
        assert scores["seed"] == about["seed"]
        assert scores.get("explainer", "") == about["explainer"]
        assert scores.get("mechanism", "") == about["mechanism"]
        assert identity.get("setting", "") == about["setting"]
        assert identity.get("level") == about["level"]


@pytest.mark.parametrize("folder", SMALL, ids=lambda folder: folder.name)
def test_metrics_are_plain_names_and_no_row_is_there_twice(folder: Path) -> None:
    rows = read_rows(folder)
    assert tuple(rows.columns) == COLUMNS
    assert set(rows["study"]) == {folder.name}
    for metric in rows["metric"].unique():
        assert str(metric).isidentifier(), metric
    assert not rows.duplicated([name for name in COLUMNS if name not in ("value", "note")]).any()
    assert rows[rows["metric"] == "fit_status"]["note"].ne("").all()


def test_benchmark_holds_four_targets_and_is_read_by_the_piece() -> None:
    rows = read_rows(RESULTS / "bench", where={"metric": ["f1", "fit_status"], "seed": 0})
    assert set(rows["target"]) == {"gin", "gin-mean", "gcn", "gat"}
    assert rows.groupby("dataset", observed=True)["stand_in"].nunique().eq(1).all()
    assert set(rows[rows["stand_in"]]["dataset"]) == STAND_INS
    curve = read_rows(
        RESULTS / "bench", where={"metric": "kept", "dataset": "mutagenicity", "target": "gin"}
    )
    assert sorted(curve["level"].unique()) == [n / 10 for n in range(1, 10)]


def test_chosen_settings_are_those_of_the_committed_trials() -> None:
    chosen = settings_toml(best_settings(RESULTS / "tuning"))
    assert chosen == CHOSEN_FILE.read_text(encoding="utf-8")


@pytest.mark.skipif(
    "NICEGNN_DATA" not in os.environ, reason="NICEGNN_DATA names no folder with the benchmarks"
)
def test_committed_cells_of_present_defaults_are_finished() -> None:
    """Keys of rivals and of the paper's method still fit; rows of older defaults are told apart."""
    stored = {cell.key for cell in finished_cells(RESULTS / "bench").values()}
    config = Asked(
        datasets=("alkane-carbonyl", "mutagenicity"),
        explainers=("nice", "nice-paper", "nice-propagated", "random", "pgexplainer", "refine+nc"),
        seeds=(0, 1, 2, 3, 4),
        max_graphs=200,
        fit_graphs=10_000,
        targets_folder=RESULTS / "targets",
        settings=read_settings(CHOSEN_FILE),
        device="cpu",
    )
    assert not older_rows(RESULTS / "bench")
    assert {cell.key for cell in config.cells()} <= stored
