"""Reading rows: each cell once, the newest settings; means by hand."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from nicegnn.bench import COLUMNS, read_rows, run_bench, summarise
from nicegnn.errors import ConfigError
from tests.bench.small_bench import QUICK, World, use_world

NAMES = [name for name in COLUMNS if name != "value"]


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return use_world(monkeypatch)


def mean_of(rows: pd.DataFrame, metric: str) -> float:
    return float(rows[rows["metric"] == metric]["value"].mean())


def test_no_row_counts_twice_and_the_last_settings_asked_for_count(
    world: World, tmp_path: Path
) -> None:
    config = world.config(tmp_path, "random", "saliency")
    wide = replace(config, metrics=replace(QUICK, top=1.0))
    run_bench(config)
    narrow_rows = read_rows(tmp_path)
    run_bench(wide)
    wide_rows = read_rows(tmp_path)
    assert len(list((tmp_path / "rows").iterdir())) == 4
    for rows in (narrow_rows, wide_rows):
        assert not rows.duplicated(NAMES).any()
    assert mean_of(wide_rows, "recall") == 1.0  # everything is selected
    assert mean_of(narrow_rows, "recall") < 1.0
    run_bench(config)  # computes nothing, yet is what was asked for last
    assert read_rows(tmp_path).equals(narrow_rows)
    assert read_rows(tmp_path, metrics=wide.metrics).equals(wide_rows)
    assert len(read_rows(tmp_path, metrics=replace(QUICK, top=0.123))) == 0


def test_other_settings_of_an_explainer_or_selection_replace_the_older_rows(
    world: World, tmp_path: Path
) -> None:
    config = world.config(tmp_path, "integrated-gradients", "random")
    run_bench(config)
    before = read_rows(tmp_path)
    run_bench(replace(config, explainers=("random",), max_graphs=3))
    rows = read_rows(tmp_path)
    assert not rows.duplicated(NAMES).any()
    in_em = rows[rows["protocol"] == "em"].groupby("explainer", observed=True)["graph"].nunique()
    assert in_em["random"] == 3
    assert in_em["integrated-gradients"] > 3  # still as it was asked for
    run_bench(config)
    assert read_rows(tmp_path).equals(before)


def test_unfinished_cell_is_missing_rather_than_mixed_in(world: World, tmp_path: Path) -> None:
    config = world.config(tmp_path, "random", "saliency")
    run_bench(config)
    report = run_bench(replace(config, max_graphs=3))
    cell = next(c for c in report.cells if c.explainer == "random")
    (tmp_path / "rows" / f"{cell.row_key(config.metrics)}.parquet").unlink()
    assert set(read_rows(tmp_path)["explainer"]) == {"saliency"}


def test_files_without_a_record_of_their_run_are_read_too(world: World, tmp_path: Path) -> None:
    config = world.config(tmp_path / "one", "random")
    run_bench(config)
    run_bench(replace(config, metrics=replace(QUICK, top=1.0)))
    expected = read_rows(tmp_path / "one")
    shutil.copytree(tmp_path / "one" / "rows", tmp_path / "two" / "rows")
    assert read_rows(tmp_path / "two").equals(expected)  # the newest of two
    (tmp_path / "two" / "rows" / "foreign.parquet").write_bytes(b"PAR1")
    assert read_rows(tmp_path / "two").equals(expected)


def test_rows_are_small_in_memory(world: World, tmp_path: Path) -> None:
    run_bench(world.config(tmp_path, "random", "saliency", seeds=(0, 1)))
    rows = read_rows(tmp_path)
    assert tuple(rows.columns) == COLUMNS
    assert rows["value"].dtype == np.float32
    assert rows["graph"].dtype == np.int32
    assert all(rows[name].dtype == "category" for name in ("dataset", "metric", "protocol"))


def test_rows_can_be_chosen_while_reading(world: World, tmp_path: Path) -> None:
    run_bench(world.config(tmp_path, "random", "saliency", seeds=(0, 1)))
    rows = read_rows(tmp_path)
    some = read_rows(tmp_path, where={"metric": ["f1", "recall"], "seed": 1, "protocol": "paper"})
    expected = rows[
        rows["metric"].isin(["f1", "recall"]) & (rows["seed"] == 1) & (rows["protocol"] == "paper")
    ]
    assert len(some) == len(expected) > 0
    assert some["value"].sum() == pytest.approx(expected["value"].sum())
    with pytest.raises(ConfigError, match="colour"):
        read_rows(tmp_path, where={"colour": ["red"]})


def test_folder_without_results_gives_no_rows(tmp_path: Path) -> None:
    rows = read_rows(tmp_path)
    assert tuple(rows.columns) == COLUMNS
    assert len(rows) == 0
    assert len(summarise(rows)) == 0


def hand_rows() -> pd.DataFrame:
    """Two seeds on three graphs; graph 2 is undefined for seed 1."""
    values = {0: [0.0, 0.5, 1.0], 1: [0.5, 1.0, np.nan]}
    rows = [
        ("benzene", "gin", "a", "em", seed, graph, "paper", "f1", value)
        for seed, list_ in values.items()
        for graph, value in enumerate(list_)
    ]
    rows += [("benzene", "gin", "a", "em", s, -1, "", "fit_seconds", 2.0 + 2 * s) for s in (0, 1)]
    return pd.DataFrame(rows, columns=list(COLUMNS))


def test_summary_by_hand() -> None:
    table = summarise(hand_rows(), num_resamples=2000).set_index("metric")
    f1 = table.loc["f1"]
    assert f1["mean"] == pytest.approx((0.5 + 0.75) / 2)  # of the seeds' means over graphs
    assert f1["std"] == pytest.approx(0.25 / 2**0.5)
    assert (f1["num_seeds"], f1["num_graphs"], f1["num_nan"]) == (2, 3, 1)
    # graphs' means over seeds are 0.25, 0.75 and 1: resampled means lie between
    assert 0.25 <= f1["low"] < 2 / 3 < f1["high"] <= 1.0
    seconds = table.loc["fit_seconds"]
    assert seconds["mean"] == 3.0
    assert seconds["num_graphs"] == 0
    assert np.isnan(seconds["low"])
    assert summarise(hand_rows(), num_resamples=0)["low"].isna().all()


def test_summary_of_one_seed_has_no_spread_over_seeds() -> None:
    rows = hand_rows()
    table = summarise(rows[rows["seed"] == 0]).set_index("metric")
    assert np.isnan(table.loc["f1", "std"])
    assert table.loc["f1", "mean"] == 0.5
