"""Rows: blocks become rows of one schema; each cell once, from its newest file; means by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from nicegnn.errors import ConfigError, StoreError
from nicegnn_lab.bench.rows import (
    COLUMNS,
    Block,
    Folder,
    mean_blocks,
    read_rows,
    summarise,
    table_of,
    write_rows,
)
from nicegnn_lab.bench.study import Cell, Variant
from tests.lab.bench.small_bench import run_bench, use_world

nan = math.nan


def small_cell(**changes: object) -> Cell:
    variant = Variant("base/beta", 0.3, "nice", "nc")
    cell = Cell("sweep", "indole", True, "gin", variant, 4, identity={"scores": {}})
    return replace(cell, **changes)  # type: ignore[arg-type]


def test_blocks_become_rows_of_their_cell() -> None:
    blocks = [
        Block("fit_status", 1.0, note="ok"),
        Block("roc_auc", torch.tensor([0.5, nan]), "paper", torch.tensor([3, 8])),
        Block("kept", torch.tensor([0.25]), "em", torch.tensor([3]), level=0.1),
        Block("gap", 2.0, setting="base/reference", level=nan),
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
        ["gap", "", -1, "base/reference", -1.0, "nice", "nc", ""],
        ["bond_score", "", 3, "base/beta", 0.0, "nice", "nc", ""],
        ["bond_score", "", 3, "base/beta", 1.0, "nice", "nc", ""],
    ]
    assert rows["value"].fillna(-1.0).tolist() == [1.0, 0.5, -1.0, 0.25, 2.0, 1.0, 1.0]
    assert (rows["value"].dtype, rows["graph"].dtype) == (np.float32, np.int32)
    assert rows["metric"].dtype == "category"
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


def test_cells_of_a_study_are_told_apart_and_rows_can_be_chosen(tmp_path: Path) -> None:
    cells = [
        small_cell(variant=Variant(setting, level), identity={"at": [setting, str(level)]})
        for setting, level in (("b", None), ("a", 2.0), ("a", 10.0), ("a", None))
    ]
    for number, cell in enumerate(cells):
        write_rows(Folder(tmp_path).file("rows", cell.key), cell, [Block("gap", float(number))])
    rows = read_rows(tmp_path)
    assert rows["value"].tolist() == [3.0, 1.0, 2.0, 0.0]  # by setting, then by level
    assert rows["setting"].tolist() == ["a", "a", "a", "b"]
    assert read_rows(tmp_path, where={"level": 10.0})["value"].tolist() == [2.0]
    assert read_rows(tmp_path, where={"stand_in": False}).empty
    assert len(read_rows(tmp_path, where={"stand_in": True, "setting": ["a"]})) == 3
    with pytest.raises(ConfigError, match="colour"):
        read_rows(tmp_path, where={"colour": ["red"]})
    nothing = read_rows(tmp_path / "nowhere")
    assert tuple(nothing.columns) == COLUMNS
    assert len(nothing) == len(summarise(nothing)) == 0


def test_no_row_counts_twice_and_the_newest_file_of_a_cell_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = use_world(monkeypatch).config(tmp_path, "integrated-gradients", "random")
    run_bench(config)
    run_bench(replace(config, explainers=("random",), max_graphs=3))
    assert len(list((tmp_path / "rows").iterdir())) == 3
    rows = read_rows(tmp_path)
    assert not rows.duplicated([name for name in COLUMNS if name != "value"]).any()
    in_em = (
        rows[rows["metric"] == "kept_area"].groupby("explainer", observed=True)["graph"].nunique()
    )
    assert in_em["random"] == 3
    assert in_em["integrated-gradients"] > 3  # still as it was asked for
    (tmp_path / "rows" / "foreign.parquet").write_bytes(b"PAR1")
    with pytest.raises(StoreError, match=r"foreign\.parquet is damaged"):
        read_rows(tmp_path)


def hand_rows() -> pd.DataFrame:
    """Two seeds on three graphs; graph 2 is undefined for seed 1."""
    values = {0: [0.0, 0.5, 1.0], 1: [0.5, 1.0, nan]}
    rows = [
        {"seed": seed, "graph": graph, "protocol": "paper", "metric": "f1", "value": value}
        for seed, list_ in values.items()
        for graph, value in enumerate(list_)
    ]
    rows += [
        {"seed": seed, "graph": -1, "metric": "fit_seconds", "value": 2.0 + 2 * seed}
        for seed in (0, 1)
    ]
    rows += [
        {"seed": 0, "graph": 0, "protocol": "em", "metric": "kept", "level": level, "value": level}
        for level in (0.2, 0.1)
    ]
    usual = {"dataset": "benzene", "target": "gin", "explainer": "a", "mechanism": "em"}
    usual |= {"study": "bench", "setting": "", "note": "", "protocol": ""}
    given = [{**usual, "level": nan, "stand_in": False, **row} for row in rows]
    return pd.DataFrame(given)[list(COLUMNS)]


def test_summary_by_hand() -> None:
    table = summarise(hand_rows())
    curve = table[table["metric"] == "kept"]
    assert curve["level"].tolist() == curve["mean"].tolist() == [0.1, 0.2]  # points stay apart
    table = table[table["metric"] != "kept"].set_index("metric")
    f1 = table.loc["f1"]
    assert f1["mean"] == pytest.approx((0.5 + 0.75) / 2)  # of the seeds' means over graphs
    assert f1["std"] == pytest.approx(0.25 / 2**0.5)
    assert (f1["num_seeds"], f1["num_graphs"]) == (2, 3)
    seconds = table.loc["fit_seconds"]
    assert (seconds["mean"], seconds["num_graphs"]) == (3.0, 0)
    one = summarise(hand_rows().query("seed == 0")).set_index("metric")
    assert np.isnan(one.loc["f1", "std"])
    assert one.loc["f1", "mean"] == 0.5
