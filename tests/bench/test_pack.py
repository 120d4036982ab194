"""Packed rows: kept values unchanged, the others as means by hand, own files first, damage seen."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

from nicegnn.bench import (
    COLUMNS,
    KEPT_PER_GRAPH,
    BenchConfig,
    Cell,
    MetricConfig,
    pack,
    read_rows,
    run_bench,
    summarise,
)
from nicegnn.bench.folder import BenchFolder
from nicegnn.bench.measuring import Block
from nicegnn.bench.packing import read_packed
from nicegnn.bench.rows import write_rows
from nicegnn.cli.main import app
from nicegnn.errors import NicegnnError, StoreError
from nicegnn.figures.fidelity import curve_points
from nicegnn.report.sources import read_sources
from nicegnn.tables.comparison import comparison_table
from nicegnn.tables.quality import all_quality_tables
from tests.bench.small_bench import QUICK, World, use_world

nan = float("nan")
NAMES = [name for name in COLUMNS if name != "value"]
GRAPHS = torch.tensor([3, 5, 8, 9])
#: Losses of probability, which are averaged.
LOSS, NO_LOSS = "prob_fid_plus@0.3", "prob_fid_minus@0.3"


def cell_of(explainer: str, seed: int, **identity: Any) -> Cell:
    mechanism = {"nice": "both", "saliency": "em"}.get(explainer, "")
    known = {"explainer": explainer, "seed": seed} | identity
    return Cell("benzene", "gin", explainer, mechanism, seed, settings={}, identity=known)


def blocks_of(shift: float) -> list[Block]:
    """Metrics of four graphs, some undefined, all moved by `shift`."""
    values = {
        ("paper", "f1"): [0.1, 0.2, 0.3, 0.5],
        ("paper", "roc_auc"): [0.3, nan, 0.7, 0.9],
        ("strict", "roc_auc"): [nan, nan, 0.25, 0.5],
        ("em", "kept@0.3"): [0.0, 1.0, 1.0, 1.0],
        ("em", "kept_area"): [0.5, 0.75, 0.25, 1.0],
        ("em", LOSS): [0.2, nan, 0.6, 0.7],
        ("em", NO_LOSS): [nan] * 4,
        ("nc", LOSS): [0.0, 0.1, 0.2, 0.3],
    }
    blocks = [Block("", "fit_seconds", torch.tensor([-1]), torch.tensor([2.0 + shift]))]
    for (protocol, metric), value in values.items():
        blocks.append(Block(protocol, metric, GRAPHS, torch.tensor(value) + shift))
    return blocks


def write_cell(out: Path, cell: Cell, shift: float, metrics: MetricConfig = QUICK) -> Path:
    path = BenchFolder(out).rows(cell.row_key(metrics))
    write_rows(path, cell, metrics, blocks_of(shift), code="abc")
    return path


CELLS = [cell_of(explainer, seed) for explainer in ("nice", "random") for seed in (0, 1)]
SHIFTS = [0.0, 0.01, 0.02, 0.05]


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """A benchmark of two explainers and two seeds."""
    folder = tmp_path / "bench"
    for cell, shift in zip(CELLS, SHIFTS, strict=True):
        write_cell(folder, cell, shift)
    return folder


def only_packed(out: Path, **given: Any) -> Path:
    """Packs a benchmark into a folder that holds nothing else."""
    folder = out.parent / "packed"
    pack(out, folder / "packed.parquet", **given)
    return folder


def plain(rows: pd.DataFrame, metrics: Sequence[str] | None = None) -> pd.DataFrame:
    """Rows of some metrics in the order they have, with plain words."""
    words = {name: "str" for name in rows.columns if rows[name].dtype == "category"}
    rows = rows.astype(words)
    if metrics is not None:
        rows = rows[rows["metric"].isin(metrics)]
    return rows.reset_index(drop=True)


def one(rows: pd.DataFrame, cell: Cell, protocol: str, metric: str) -> pd.DataFrame:
    is_it = (rows["explainer"] == cell.explainer) & (rows["seed"] == cell.seed)
    return rows[is_it & (rows["protocol"] == protocol) & (rows["metric"] == metric)]


def test_kept_metrics_and_numbers_about_cells_come_back_as_they_were(out: Path) -> None:
    full, packed = read_rows(out), read_rows(only_packed(out))
    same = ["f1", "roc_auc", "kept@0.3", "kept_area", "fit_seconds"]
    pd.testing.assert_frame_equal(plain(packed, same), plain(full, same))
    assert len(plain(full, same)) == 4 * (5 * 4 + 1)
    assert tuple(packed.columns) == COLUMNS
    assert {name: str(kind) for name, kind in packed.dtypes.items()} == {
        name: str(kind) for name, kind in full.dtypes.items()
    }


def test_nothing_changes_where_all_is_kept(out: Path) -> None:
    folder = only_packed(out, keep=(*KEPT_PER_GRAPH, LOSS, "prob_fid_minus"))
    pd.testing.assert_frame_equal(plain(read_rows(folder)), plain(read_rows(out)))


def test_other_metrics_are_means_of_the_graphs_with_a_value(out: Path) -> None:
    rows = read_rows(only_packed(out))
    for cell, shift in zip(CELLS, SHIFTS, strict=True):
        for protocol, metric, mean in (
            ("em", LOSS, 0.5 + shift),  # of 0.2, 0.6 and 0.7
            ("nc", LOSS, 0.15 + shift),
            ("em", NO_LOSS, nan),
        ):
            found = one(rows, cell, protocol, metric)
            assert found["graph"].tolist() == [-1]
            assert found["value"].tolist() == pytest.approx([mean], rel=1e-6, nan_ok=True)


def test_summary_is_that_of_all_rows(out: Path) -> None:
    keys = ["dataset", "target", "explainer", "mechanism", "protocol", "metric"]
    full, packed = (
        summarise(read_rows(folder), num_resamples=0).set_index(keys)
        for folder in (out, only_packed(out))
    )
    assert list(full.index) == list(packed.index)
    assert len(full) == 2 * 9
    for name in ("mean", "std", "num_seeds"):
        np.testing.assert_allclose(packed[name], full[name], rtol=1e-5, atol=1e-7)
    assert full["mean"].isna().sum() == 2  # one metric is undefined everywhere
    per_graph = ["f1", "roc_auc", "kept@0.3", "kept_area"]
    for name in ("num_graphs", "num_nan"):
        kept = [key for key in full.index if key[-1] in per_graph]
        assert packed.loc[kept, name].tolist() == full.loc[kept, name].tolist()


def test_tables_paired_tests_and_curves_are_those_of_all_rows(out: Path) -> None:
    full, packed = read_rows(out), read_rows(only_packed(out))
    tables = [
        [
            *all_quality_tables(rows, protocols=("paper", "strict"), marked=()),
            comparison_table(rows, num_resamples=50, marked=()),
        ]
        for rows in (full, packed)
    ]
    assert len(tables[0]) == 5
    for one_table, other in zip(*tables, strict=True):
        assert one_table.to_markdown() == other.to_markdown()
    assert "Graphs: benzene 4." in tables[1][0].to_markdown()
    curves = [curve_points(rows, "em").astype({"metric": "str"}) for rows in (full, packed)]
    assert curves[1]["num_graphs"].tolist() == curves[0]["num_graphs"].tolist() == [4, 4]


def test_file_of_a_cell_comes_before_the_packed_file(out: Path) -> None:
    before = read_rows(out)
    pack(out)
    pd.testing.assert_frame_equal(read_rows(out), before)  # all from their own files
    shutil.rmtree(out / "rows")
    write_cell(out, CELLS[2], 0.3)  # other values than the packed ones
    rows = read_rows(out)
    assert not rows.duplicated(NAMES).any()
    assert one(rows, CELLS[2], "paper", "f1")["value"].tolist() == pytest.approx(
        [0.4, 0.5, 0.6, 0.8]
    )
    assert one(rows, CELLS[2], "nc", LOSS)["graph"].tolist() == GRAPHS.tolist()
    for cell, shift in zip(CELLS, SHIFTS, strict=True):
        if cell is not CELLS[2]:
            assert one(rows, cell, "nc", LOSS)["graph"].tolist() == [-1]
            first = one(rows, cell, "paper", "f1")["value"].tolist()[0]
            assert first == pytest.approx(0.1 + shift)
    assert rows["explainer"].tolist() == sorted(rows["explainer"])  # cells in order of names


def test_cell_asked_for_with_other_settings_is_missing_rather_than_an_older_one(out: Path) -> None:
    pack(out)
    shutil.rmtree(out / "rows")
    config = BenchConfig(datasets=("benzene",), explainers=("nice",), out=out, metrics=QUICK)
    BenchFolder(out).record_run(config, [CELLS[0]])
    assert len(read_rows(out)[["explainer", "seed"]].drop_duplicates()) == 4  # the same settings
    BenchFolder(out).record_run(config, [cell_of("nice", 0, steps=7)])
    rows = read_rows(out)
    assert len(one(rows, CELLS[0], "paper", "f1")) == 0
    assert len(rows[["explainer", "seed"]].drop_duplicates()) == 3


def test_rows_can_be_chosen_in_both(out: Path) -> None:
    other = replace(QUICK, top=0.5)
    later = cell_of("saliency", 0)
    write_cell(out, later, 0.1, other)
    pack(out)
    for cell in CELLS[:2]:
        BenchFolder(out).rows(cell.row_key(QUICK)).unlink()
    some = read_rows(out, where={"metric": ["f1"], "seed": 1, "graph": [3, 8]})
    assert plain(some)[["explainer", "seed", "graph", "metric"]].values.tolist() == [
        [name, 1, graph, "f1"] for name in ("nice", "random") for graph in (3, 8)
    ]
    assert len(read_rows(out, where={"explainer": "nice", "metric": "f1"})) == 2 * 4
    BenchFolder(out).rows(later.row_key(other)).unlink()
    assert set(read_rows(out, metrics=QUICK)["explainer"]) == {"nice", "random"}
    assert set(read_rows(out, metrics=other)["explainer"]) == {"saliency"}
    assert set(read_rows(out)["explainer"]) == {"nice", "random", "saliency"}
    pack(out, out / "some.parquet", metrics=other)
    assert list(read_packed(out / "some.parquet")) == [later.name]


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 20] ^= 255  # in the data, not in the description
    path.write_bytes(content)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-9])


def describe_too_few(path: Path) -> None:
    change(path, lambda description: description["cells"].pop())


def describe_no_key(path: Path) -> None:
    change(path, lambda description: description["cells"][0].pop("rows"))


def change(path: Path, how: Any) -> None:
    """Writes a packed file anew with another description."""
    parquet = import_module("pyarrow.parquet")
    table = parquet.read_table(path)
    description = json.loads(table.schema.metadata[b"nicegnn"])
    how(description)
    table = table.replace_schema_metadata({"nicegnn": json.dumps(description)})
    parquet.write_table(table, path)


@pytest.mark.parametrize("harm", [flip, cut, describe_too_few, describe_no_key])
def test_damaged_file_is_left_out_with_a_warning(
    out: Path, caplog: pytest.LogCaptureFixture, harm: Any
) -> None:
    file = pack(out)
    for cell in CELLS[1:]:
        BenchFolder(out).rows(cell.row_key(QUICK)).unlink()
    assert len(read_rows(out, where={"metric": "f1"})) == 4 * 4
    assert caplog.messages == []
    harm(file)
    with caplog.at_level(logging.WARNING):
        rows = read_rows(out)
    assert len(caplog.messages) == 1
    assert "packed.parquet is damaged" in caplog.text
    assert set(rows["seed"]) == {0}
    assert set(rows["explainer"]) == {"nice"}
    with pytest.raises(StoreError, match="is damaged"):
        read_packed(file)


def test_packing_again_keeps_cells_that_only_the_packed_file_holds(out: Path) -> None:
    pack(out)
    before = read_packed(out / "packed.parquet")
    shutil.rmtree(out / "rows")
    new = cell_of("saliency", 0)
    write_cell(out, new, 0.1)
    pack(out)
    after = read_packed(out / "packed.parquet")
    assert list(after) == [*before, new.name]
    for name, cell in before.items():
        rows = (plain(one_cell.table.to_pandas()) for one_cell in (after[name], cell))
        pd.testing.assert_frame_equal(*rows)
        assert after[name].description == cell.description


def test_file_tells_what_it_holds(out: Path) -> None:
    file = pack(out, keep=("f1", "kept"))
    told = import_module("pyarrow.parquet").read_schema(file).metadata[b"nicegnn"]
    description = json.loads(told)
    assert description["kind"] == "bench-packed"
    assert description["per_graph"] == ["f1", "kept@0.3"]
    assert [cell["cell"] for cell in description["cells"]] == [cell.to_dict() for cell in CELLS]
    for told_of, cell in zip(description["cells"], CELLS, strict=True):
        assert told_of["key"] == cell.key
        assert told_of["rows"] == cell.row_key(QUICK)
        assert told_of["metrics"] == QUICK.identity()
        assert told_of["code"] == "abc"


def test_failure_leaves_the_old_file_and_nothing_else(
    out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = pack(out)
    before, names = file.read_bytes(), sorted(path.name for path in out.iterdir())
    with pytest.raises(NicegnnError, match="beauty"):
        pack(out, keep=("f1", "beauty"))
    row_file = BenchFolder(out).rows(CELLS[0].row_key(QUICK))
    config = BenchConfig(datasets=("benzene",), explainers=("nice",), out=out, metrics=QUICK)
    BenchFolder(out).record_run(config, [CELLS[0]])
    sound = row_file.read_bytes()
    row_file.write_bytes(sound[:-9])
    with pytest.raises(StoreError, match=r"damaged.*then pack"):
        pack(out)
    row_file.write_bytes(sound)

    def half(table: Any, path: Path, **_: Any) -> None:
        path.write_bytes(b"PAR1")
        raise OSError("disk full")

    monkeypatch.setattr(import_module("pyarrow.parquet"), "write_table", half)
    with pytest.raises(OSError, match="disk full"):
        pack(out, keep=("f1",))
    assert file.read_bytes() == before
    assert sorted(path.name for path in out.iterdir() if path.name != "runs") == names


def test_folder_without_rows_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="nicegnn bench"):
        pack(tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return use_world(monkeypatch)


def test_packed_rows_are_no_finished_cells_and_tell_their_source(
    world: World, tmp_path: Path
) -> None:
    config = world.config(tmp_path / "bench", "random", "saliency")
    run_bench(config)
    before = read_sources(config.out)
    folder = only_packed(config.out)
    there = read_sources(folder)
    for one_source, other in zip(before, there, strict=True):
        assert other.rows == f"packed.parquet:{one_source.rows}"
        assert other.facts["device"] == "cpu"
        assert replace(other, rows=one_source.rows) == one_source  # facts of the scores as well
    names = plain(read_rows(folder))[["explainer", "seed"]].drop_duplicates()
    assert names.values.tolist() == [[source.explainer, source.seed] for source in there]
    report = run_bench(replace(config, out=folder))
    assert report.num_explained == len(report.cells) == 2
    assert not report.found
    assert [source.rows for source in read_sources(folder)] == [source.rows for source in before]


def test_command_packs_and_tells_the_size(out: Path) -> None:
    done = CliRunner().invoke(app, ["pack", "--rows", str(out)])
    assert done.exit_code == 0, done.output
    file = out / "packed.parquet"
    num_rows = 4 * (5 * 4 + 1 + 3)
    size = file.stat().st_size / 1e6
    assert done.output.strip() == f"4 cells, {num_rows} rows, {size:.1f} MB: {file}"
    elsewhere = out.parent / "deep" / "all.parquet"
    done = CliRunner().invoke(app, ["pack", "--rows", str(out), "--out", str(elsewhere)])
    assert done.exit_code == 0, done.output
    assert read_packed(elsewhere).keys() == read_packed(file).keys()
    done = CliRunner().invoke(app, ["pack", "--rows", str(out / "nowhere")])
    assert done.exit_code == 1
    assert "There are no rows" in done.output
