"""Packed rows: kept values unchanged, the others as means by hand, own files first, damage seen."""

from __future__ import annotations

import json
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

from nicegnn.errors import StoreError
from nicegnn.store import save_tensors
from nicegnn_lab.bench import (
    COLUMNS,
    KEPT_PER_GRAPH,
    Block,
    Cell,
    Folder,
    Variant,
    pack,
    pack_all,
    read_rows,
    run_bench,
    summarise,
)
from nicegnn_lab.bench.packing import STATES_KIND, load_states
from nicegnn_lab.bench.row_tables import GROUPS, PACKED_KIND, describe, squeeze
from nicegnn_lab.bench.rows import finished_cells, packed_cells, write_rows
from nicegnn_lab.bench.run import Work
from nicegnn_lab.bench.study import name_of
from nicegnn_lab.cli.main import app
from tests.lab.bench.small_bench import World, use_world, without_clocks

nan = float("nan")
NAMES = [name for name in COLUMNS if name != "value"]
GRAPHS = torch.tensor([3, 5, 8, 9])
#: Losses of probability, which are averaged.
LOSS, NO_LOSS = "prob_fid_plus", "prob_fid_minus"


def cell_of(explainer: str, seed: int, study: str = "bench", **identity: Any) -> Cell:
    mechanism = {"nice": "both", "saliency": "em"}.get(explainer, "")
    known = {"study": study, "explainer": explainer, "seed": seed} | identity
    variant = Variant(explainer=explainer, mechanism=mechanism)
    return Cell(study, "benzene", False, "gin", variant, seed, identity=known)


def blocks_of(shift: float) -> list[Block]:
    """Metrics of four graphs, some undefined, all moved by `shift`."""
    values = {
        ("paper", "f1", None): [0.1, 0.2, 0.3, 0.5],
        ("paper", "roc_auc", None): [0.3, nan, 0.7, 0.9],
        ("strict", "roc_auc", None): [nan, nan, 0.25, 0.5],
        ("em", "kept", 0.3): [0.0, 1.0, 1.0, 1.0],
        ("em", "kept_area", None): [0.5, 0.75, 0.25, 1.0],
        ("em", LOSS, 0.3): [0.2, nan, 0.6, 0.7],
        ("em", LOSS, 0.6): [0.0, 0.0, 0.0, 1.0],
        ("em", NO_LOSS, 0.3): [nan] * 4,
        ("nc", LOSS, 0.3): [0.0, 0.1, 0.2, 0.3],
        ("", "restored", None): [0.0, 0.5, 0.5, 1.0],
    }
    blocks = [Block("fit_seconds", 2.0 + shift), Block("fit_status", 1.0, note="ok")]
    for (protocol, metric, level), value in values.items():
        blocks.append(Block(metric, torch.tensor(value) + shift, protocol, GRAPHS, level=level))
    return blocks


def write_cell(out: Path, cell: Cell, shift: float) -> Path:
    path = Folder(out).rows(cell.key)
    write_rows(path, cell, blocks_of(shift), code="abc", facts={"device": "cpu"})
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
    same = ["f1", "roc_auc", "kept", "kept_area", "fit_seconds", "fit_status"]
    pd.testing.assert_frame_equal(plain(packed, same), plain(full, same))
    assert len(plain(full, same)) == 4 * (5 * 4 + 2)
    assert tuple(packed.columns) == COLUMNS
    assert {name: str(kind) for name, kind in packed.dtypes.items()} == {
        name: str(kind) for name, kind in full.dtypes.items()
    }


def test_nothing_changes_where_all_is_kept(out: Path) -> None:
    folder = only_packed(out, keep=(*KEPT_PER_GRAPH, LOSS, NO_LOSS, "restored"))
    pd.testing.assert_frame_equal(plain(read_rows(folder)), plain(read_rows(out)))


def test_rows_of_a_study_are_never_averaged(tmp_path: Path) -> None:
    folder = tmp_path / "sweep"
    write_cell(folder, cell_of("nice", 0, study="sweep"), 0.0)
    before = read_rows(folder)
    pack(folder)
    shutil.rmtree(folder / "rows")
    pd.testing.assert_frame_equal(plain(read_rows(folder)), plain(before))


def test_other_metrics_are_means_of_the_graphs_with_a_value(out: Path) -> None:
    rows = read_rows(only_packed(out))
    for cell, shift in zip(CELLS, SHIFTS, strict=True):
        for protocol, metric, means in (
            ("em", LOSS, [0.5 + shift, 0.25 + shift]),  # of 0.2, 0.6 and 0.7; at the next level
            ("nc", LOSS, [0.15 + shift]),
            ("em", NO_LOSS, [nan]),
            ("", "restored", [0.5 + shift]),
        ):
            found = one(rows, cell, protocol, metric)
            assert found["graph"].tolist() == [-1] * len(means)
            assert found["value"].tolist() == pytest.approx(means, rel=1e-6, nan_ok=True)


def test_summary_is_that_of_all_rows(out: Path) -> None:
    full, packed = (
        summarise(read_rows(folder), num_resamples=0)
        .fillna({"level": -1.0})
        .set_index(list(GROUPS))
        for folder in (out, only_packed(out))
    )
    assert list(full.index) == list(packed.index)
    assert len(full) == 2 * 12
    for name in ("mean", "std", "num_seeds"):
        np.testing.assert_allclose(packed[name], full[name], rtol=1e-5, atol=1e-7)
    assert full["mean"].isna().sum() == 2  # one metric is undefined everywhere
    per_graph = ["f1", "roc_auc", "kept", "kept_area"]
    for name in ("num_graphs", "num_nan"):
        kept = [key for key in full.index if key[GROUPS.index("metric")] in per_graph]
        assert packed.loc[kept, name].tolist() == full.loc[kept, name].tolist()


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
    Folder(out).record_run([CELLS[0]])
    assert len(read_rows(out)[["explainer", "seed"]].drop_duplicates()) == 4  # the same settings
    Folder(out).record_run([cell_of("nice", 0, steps=7)])
    rows = read_rows(out)
    assert len(one(rows, CELLS[0], "paper", "f1")) == 0
    assert len(rows[["explainer", "seed"]].drop_duplicates()) == 3


def test_rows_can_be_chosen_in_both(out: Path) -> None:
    pack(out)
    for cell in CELLS[:2]:
        Folder(out).rows(cell.key).unlink()
    some = read_rows(out, where={"metric": ["f1"], "seed": 1, "graph": [3, 8]})
    assert plain(some)[["explainer", "seed", "graph", "metric"]].values.tolist() == [
        [name, 1, graph, "f1"] for name in ("nice", "random") for graph in (3, 8)
    ]
    assert len(read_rows(out, where={"explainer": "nice", "metric": "f1"})) == 2 * 4
    assert len(read_rows(out, where={"metric": "prob_fid_plus", "level": 0.6})) == 2 + 2 * 4


def test_groups_of_rows_are_read_apart_and_come_back_in_order(
    out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = replace(cell_of("nice", 0, dataset="indole"), dataset="indole")
    write_cell(out, other, 0.5)
    expected = plain(read_rows(only_packed(out)))
    monkeypatch.setattr("nicegnn_lab.bench.packing._GROUP_ROWS", 10)
    monkeypatch.setattr("nicegnn_lab.bench.packing._PAGE_ROWS", 80)
    folder = only_packed(out)
    parquet = import_module("pyarrow.parquet")
    with parquet.ParquetFile(folder / "packed.parquet") as file:
        assert file.num_row_groups == 3  # two cells each, and another dataset
    pd.testing.assert_frame_equal(plain(read_rows(folder)), expected)
    found = plain(read_rows(folder, where={"dataset": "indole", "metric": "f1"}))
    assert found["value"].tolist() == pytest.approx([0.6, 0.7, 0.8, 1.0])


def test_same_rows_are_the_same_bytes(out: Path, tmp_path: Path) -> None:
    first = pack(out, tmp_path / "first.parquet").read_bytes()
    folder = only_packed(out)
    assert (folder / "packed.parquet").read_bytes() == first
    pack(folder)  # from itself
    assert (folder / "packed.parquet").read_bytes() == first
    for cell, shift in reversed(list(zip(CELLS, SHIFTS, strict=True))):
        write_cell(out, cell, shift)  # written later, and in another order
    assert pack(out).read_bytes() == first


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 20] ^= 255  # in the data, not in the description
    path.write_bytes(content)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-9])


def describe_too_few(path: Path) -> None:
    change(path, lambda cells: cells.pop())


def describe_no_key(path: Path) -> None:
    change(path, lambda cells: cells[0].pop("key"))


def change(path: Path, how: Any) -> None:
    """Writes a packed file anew with other descriptions of its cells."""
    parquet = import_module("pyarrow.parquet")
    table, cells = parquet.read_table(path), describe(path, PACKED_KIND)["cells"]
    how(cells)
    about = {"nicegnn": json.dumps({"kind": PACKED_KIND}), "cells": squeeze(cells)}
    parquet.write_table(table.replace_schema_metadata(about), path)


@pytest.mark.parametrize("harm", [flip, cut, describe_too_few, describe_no_key])
def test_damaged_file_is_an_error_that_names_it_and_the_next_step(out: Path, harm: Any) -> None:
    file = pack(out)
    shutil.rmtree(out / "rows")
    assert len(read_rows(out, where={"metric": "f1"})) == 4 * 4
    harm(file)
    with pytest.raises(StoreError, match=r"packed\.parquet is damaged .* Restore it"):
        read_rows(out)
    with pytest.raises(StoreError, match="is damaged"):
        pack(out)


def test_packing_again_keeps_cells_that_only_the_packed_file_holds(out: Path) -> None:
    pack(out)
    before, rows = packed_cells(out / "packed.parquet"), plain(read_rows(only_packed(out)))
    shutil.rmtree(out / "rows")
    new = cell_of("saliency", 0)
    write_cell(out, new, 0.1)
    pack(out)
    after = packed_cells(out / "packed.parquet")
    assert list(after) == [*before, name_of(new.to_dict())]
    assert [after[name].description for name in before] == [c.description for c in before.values()]
    shutil.rmtree(out / "rows")
    others = read_rows(out, where={"explainer": ["nice", "random"]})
    pd.testing.assert_frame_equal(plain(others), rows)


def test_file_tells_what_it_holds(out: Path) -> None:
    file = pack(out)
    description = describe(file, PACKED_KIND)
    assert [cell["cell"] for cell in description["cells"]] == [cell.to_dict() for cell in CELLS]
    for told_of, cell in zip(description["cells"], CELLS, strict=True):
        assert told_of["key"] == cell.key
        assert told_of["identity"] == cell.identity
        assert told_of["code"] == "abc"
        assert told_of["facts"] == {"device": "cpu"}
    assert list(finished_cells(out)) == [name_of(cell.to_dict()) for cell in CELLS]


def test_failure_leaves_the_old_file_and_nothing_else(
    out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = pack(out)
    before, names = file.read_bytes(), sorted(path.name for path in out.iterdir())
    row_file = Folder(out).rows(CELLS[0].key)
    sound = row_file.read_bytes()
    flip(row_file)
    with pytest.raises(StoreError, match=r"damaged.*then pack"):
        pack(out)
    row_file.write_bytes(sound)

    class HalfWriter:
        def __init__(self, path: Path, *_: Any, **__: Any) -> None:
            path.write_bytes(b"PAR1")
            raise OSError("disk full")

    monkeypatch.setattr(import_module("pyarrow.parquet"), "ParquetWriter", HalfWriter)
    with pytest.raises(StoreError, match="disk full"):
        pack(out, keep=("f1",))
    assert file.read_bytes() == before
    assert sorted(path.name for path in out.iterdir()) == names


def test_tensors_beside_rows_are_packed_too_and_own_files_come_first(out: Path) -> None:
    folder = Folder(out)
    first, second, new = torch.tensor([1.0, 2.0]), torch.tensor([[3]]), torch.tensor([4.0])
    save_tensors(folder.states("benzene-gin-0"), {"clean/norm": first}, {"kind": STATES_KIND})
    save_tensors(folder.states("benzene-gin-mean-0"), {"norm": second}, {"kind": STATES_KIND})
    pack(out)
    shutil.rmtree(out / "states")
    assert torch.equal(load_states(out, "benzene-gin-0")["clean/norm"], first)
    assert load_states(out, "benzene-gin-mean-0").keys() == {"norm"}
    save_tensors(folder.states("benzene-gin-0"), {"clean/norm": new}, {"kind": STATES_KIND})
    assert torch.equal(load_states(out, "benzene-gin-0")["clean/norm"], new)
    pack(out)
    shutil.rmtree(out / "states")
    assert torch.equal(load_states(out, "benzene-gin-0")["clean/norm"], new)
    assert torch.equal(load_states(out, "benzene-gin-mean-0")["norm"], second)
    with pytest.raises(StoreError, match="no tensors of benzene-gin "):
        load_states(out, "benzene-gin")


def test_folder_without_rows_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="nicegnn lab bench"):
        pack(tmp_path)
    with pytest.raises(StoreError, match="no rows"):
        pack_all(tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return use_world(monkeypatch)


def test_packed_cells_are_finished_cells(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = world.config(tmp_path / "bench", "random", "nice")
    run_bench(config)
    expected = without_clocks(read_rows(config.out))
    folder = only_packed(config.out)
    packed = without_clocks(read_rows(folder))

    def no_work(self: Work, cell: object) -> None:
        raise AssertionError("a finished cell was run again")

    with monkeypatch.context() as patch:
        patch.setattr(Work, "__call__", no_work)
        report = run_bench(replace(config, out=folder))
    assert str(report) == "Nothing to compute: all 2 cells are finished."
    assert report.num_other_code == 0
    pd.testing.assert_frame_equal(without_clocks(read_rows(folder)), packed)
    more = run_bench(replace(config, out=folder, seeds=(0, 1)))
    assert (len(more.found), more.num_explained) == (2, 2)
    (folder / "packed.parquet").unlink()
    assert run_bench(replace(config, out=folder)).num_explained == 2
    pd.testing.assert_frame_equal(without_clocks(read_rows(folder, where={"seed": 0})), expected)


def test_command_packs_every_family_and_tells_the_sizes(out: Path) -> None:
    study = out.parent / "studies" / "sweep"
    write_cell(study, cell_of("nice", 0, study="sweep"), 0.0)
    done = CliRunner().invoke(app, ["pack", str(out.parent)])
    assert done.exit_code == 0, done.output
    counts = {out: (4, 4 * (5 * 4 + 2 + 5)), study: (1, 10 * 4 + 2)}
    lines = []
    for folder, (cells, rows) in counts.items():
        file = folder / "packed.parquet"
        lines.append(f"{cells} cells, {rows} rows, {file.stat().st_size / 1e3:.0f} kB: {file}")
    assert done.output.splitlines() == lines
    one_family = CliRunner().invoke(app, ["pack", "--rows", str(study)])
    assert one_family.output.splitlines() == lines[1:]
    nothing = CliRunner().invoke(app, ["pack", "--rows", str(out / "nowhere")])
    assert nothing.exit_code == 1
    assert "no rows" in nothing.output
