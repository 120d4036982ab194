"""Rows: blocks become rows of one schema; each cell once, with the settings asked for last."""

from __future__ import annotations

import math
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from nicegnn.errors import ConfigError
from nicegnn_lab.bench import (
    COLUMNS,
    Block,
    Cell,
    Variant,
    mean_blocks,
    read_rows,
    run_bench,
    summarise,
)
from nicegnn_lab.bench.rows import Folder, table_of, write_rows
from tests.lab.bench.small_bench import QUICK, World, use_world

NAMES = [name for name in COLUMNS if name != "value"]
nan = math.nan


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return use_world(monkeypatch)


def mean_of(rows: pd.DataFrame, metric: str) -> float:
    return float(rows[rows["metric"] == metric]["value"].mean())


def small_cell(**changes: object) -> Cell:
    variant = Variant("base/beta", 0.3, "nice", "nc")
    cell = Cell("sweep", "indole", True, "gin", variant, 4, identity={"scores": {}})
    return replace(cell, **changes)  # type: ignore[arg-type]


def test_blocks_become_rows_of_their_cell() -> None:
    blocks = [
        Block("fit_status", 1.0, note="ok"),
        Block("roc_auc", torch.tensor([0.5, nan]), "paper", torch.tensor([3, 8])),
        Block("kept", torch.tensor([0.25]), "em", torch.tensor([3]), level=0.1),
        Block("gap", 2.0, setting="base/reference", level=nan, explainer="random", mechanism=""),
        Block("bond_score", torch.ones(2), "", torch.tensor([3, 3]), level=torch.arange(2)),
    ]
    rows = table_of(small_cell(), blocks).to_pandas()
    assert tuple(rows.columns) == COLUMNS
    same = rows[["study", "dataset", "stand_in", "target", "seed"]].drop_duplicates()
    assert same.values.tolist() == [["sweep", "indole", True, "gin", 4]]
    shown = ["metric", "protocol", "graph", "setting", "level", "explainer", "mechanism", "note"]
    assert rows[shown].fillna(-1.0).values.tolist() == [
        ["fit_status", "", -1, "base/beta", 0.3, "nice", "nc", "ok"],
        ["roc_auc", "paper", 3, "base/beta", 0.3, "nice", "nc", ""],
        ["roc_auc", "paper", 8, "base/beta", 0.3, "nice", "nc", ""],
        ["kept", "em", 3, "base/beta", 0.1, "nice", "nc", ""],
        ["gap", "", -1, "base/reference", -1.0, "random", "", ""],
        ["bond_score", "", 3, "base/beta", 0.0, "nice", "nc", ""],
        ["bond_score", "", 3, "base/beta", 1.0, "nice", "nc", ""],
    ]
    assert rows["value"].fillna(-1.0).tolist() == [1.0, 0.5, -1.0, 0.25, 2.0, 1.0, 1.0]
    assert rows["value"].dtype == np.float32
    with pytest.raises(ConfigError, match="one position per value"):
        table_of(small_cell(), [Block("f1", torch.ones(2), graph=torch.tensor([1]))])


def test_means_are_over_graphs_with_a_value_and_keep_levels_apart() -> None:
    blocks = [
        Block("f1", torch.tensor([0.0, nan, 1.0]), "paper", torch.arange(3)),
        Block("kept", torch.tensor([0.5]), "em", torch.tensor([0]), level=0.1),
        Block("f1", torch.tensor([2.0]), "paper", torch.tensor([7])),  # the next batch
        Block("kept", torch.tensor([1.0]), "em", torch.tensor([0]), level=0.2),
        Block("seconds", 3.0),
    ]
    assert list(mean_blocks(blocks)) == [
        Block("f1", 1.0, "paper"),
        Block("kept", 0.5, "em", level=0.1),
        Block("kept", 1.0, "em", level=0.2),
        Block("seconds", 3.0),
    ]
    with pytest.raises(ConfigError, match="must be one number"):
        list(mean_blocks([Block("bond_score", torch.ones(2), level=torch.arange(2))]))


def test_cells_of_a_study_are_told_apart_by_setting_and_level(tmp_path: Path) -> None:
    cells = [
        small_cell(variant=Variant(setting, level), identity={"at": [setting, str(level)]})
        for setting, level in (("b", nan), ("a", 2.0), ("a", 10.0), ("a", nan))
    ]
    for number, cell in enumerate(cells):
        write_rows(Folder(tmp_path).rows(cell.key), cell, [Block("gap", float(number))])
    rows = read_rows(tmp_path)
    assert rows["value"].tolist() == [3.0, 1.0, 2.0, 0.0]  # by setting, then by level
    assert rows["setting"].tolist() == ["a", "a", "a", "b"]
    assert read_rows(tmp_path, where={"level": 10.0})["value"].tolist() == [2.0]
    assert read_rows(tmp_path, where={"stand_in": False}).empty
    assert len(read_rows(tmp_path, where={"stand_in": True, "setting": ["a"]})) == 3


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
    (tmp_path / "rows" / f"{cell.key}.parquet").unlink()
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
    assert all(rows[name].dtype == "category" for name in ("dataset", "metric", "protocol", "note"))


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
