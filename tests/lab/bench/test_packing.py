"""Packed rows: values unchanged, own files first, damage seen."""

from __future__ import annotations

import base64
import json
import shutil
import zlib
from importlib import import_module
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

from nicegnn.errors import StoreError
from nicegnn_lab.bench.rows import (
    COLUMNS,
    WORDS,
    Block,
    Folder,
    cells_in,
    finished_cells,
    pack,
    read_rows,
    summarise,
    write_rows,
)
from nicegnn_lab.bench.study import Cell, Variant, name_of

nan = float("nan")
NAMES = [name for name in COLUMNS if name != "value"]
GRAPHS = torch.tensor([3, 5, 8, 9])
#: Metrics at several levels, and without a value.
LOSS, NO_LOSS = "prob_fid_plus", "prob_fid_minus"


def cell_of(explainer: str, seed: int, study: str = "bench", dataset: str = "benzene") -> Cell:
    identity = {"study": study, "explainer": explainer, "seed": seed, "dataset": dataset}
    variant = Variant(explainer=explainer)
    return Cell(study, dataset, False, "gin", variant, seed, identity=identity)


def blocks_of(shift: float) -> list[Block]:
    """Metrics of four graphs, some undefined, all moved by `shift`."""
    values = {
        ("paper", "f1", None): [0.1, 0.2, 0.3, 0.5],
        ("paper", "roc_auc", None): [0.3, nan, 0.7, 0.9],
        ("em", "kept", 0.3): [0.0, 1.0, 1.0, 1.0],
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


def write_cell(out: Path, cell: Cell, shift: float) -> None:
    path = Folder(out).file("rows", cell.key)
    write_rows(path, cell, blocks_of(shift), code="abc", facts={"device": "cpu"})


CELLS = [cell_of(explainer, seed) for explainer in ("nice", "random") for seed in (0, 1)]
SHIFTS = [0.0, 0.01, 0.02, 0.05]


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """A benchmark of two explainers and two seeds."""
    folder = tmp_path / "bench"
    for cell, shift in zip(CELLS, SHIFTS, strict=True):
        write_cell(folder, cell, shift)
    return folder


def only_packed(out: Path) -> Path:
    """Packs a benchmark and leaves nothing else in its folder."""
    pack(out)
    shutil.rmtree(out / "rows")
    return out


def plain(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows in the order they have, with plain words."""
    return rows.astype(dict.fromkeys(WORDS, "str")).reset_index(drop=True)


def one(rows: pd.DataFrame, cell: Cell, protocol: str, metric: str) -> pd.DataFrame:
    is_it = (rows["explainer"] == cell.variant.explainer) & (rows["seed"] == cell.seed)
    return rows[is_it & (rows["protocol"] == protocol) & (rows["metric"] == metric)]


def test_packed_rows_are_those_of_the_cells(out: Path) -> None:
    full, packed = read_rows(out), read_rows(only_packed(out))
    pd.testing.assert_frame_equal(plain(packed), plain(full))
    assert list(packed.dtypes.astype(str)) == list(full.dtypes.astype(str))
    pd.testing.assert_frame_equal(summarise(packed), summarise(full))


def test_file_of_a_cell_comes_before_the_packed_file(out: Path) -> None:
    before = read_rows(out)
    pack(out)
    pd.testing.assert_frame_equal(read_rows(out), before)  # all from their own files
    shutil.rmtree(out / "rows")
    write_cell(out, CELLS[2], 0.3)  # other values than the packed ones
    rows = read_rows(out)
    assert not rows.duplicated(NAMES).any()
    mine = one(rows, CELLS[2], "paper", "f1")["value"].tolist()
    assert mine == pytest.approx([0.4, 0.5, 0.6, 0.8])
    for cell, shift in zip((CELLS[0], CELLS[1], CELLS[3]), (0.0, 0.01, 0.05), strict=True):
        assert one(rows, cell, "nc", LOSS)["value"].iloc[0] == pytest.approx(shift)
    assert rows["explainer"].tolist() == sorted(rows["explainer"])  # cells in order of names
    some = read_rows(out, where={"metric": ["f1"], "seed": 1, "graph": [3, 8]})
    assert plain(some)[["explainer", "seed", "graph", "metric"]].values.tolist() == [
        [name, 1, graph, "f1"] for name in ("nice", "random") for graph in (3, 8)
    ]


def test_datasets_are_read_apart_and_equal_rows_are_equal_bytes(out: Path) -> None:
    other = cell_of("nice", 0, dataset="indole")
    write_cell(out, other, 0.5)
    first = content_of(pack(out))
    with import_module("pyarrow.parquet").ParquetFile(out / "nice.parquet") as file:
        assert file.num_row_groups == 2  # benzene and indole
    shutil.rmtree(out / "rows")
    found = read_rows(out, where={"dataset": "indole", "metric": "f1"})
    assert found["value"].tolist() == pytest.approx([0.6, 0.7, 0.8, 1.0])
    assert content_of(pack(out)) == first  # from itself
    for cell, shift in reversed(list(zip([*CELLS, other], [*SHIFTS, 0.5], strict=True))):
        write_cell(out, cell, shift)  # written later, and in another order
    assert content_of(pack(out)) == first


def content_of(files: list[Path]) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in files}


def test_measuring_one_explainer_again_changes_the_file_of_its_family_alone(out: Path) -> None:
    before = content_of(pack(only_packed(out)))
    assert sorted(before) == ["nice.parquet", "references.parquet"]
    write_cell(out, CELLS[1], 0.4)
    write_cell(out, cell_of("mine", 0), 0.1)
    write_cell(out, cell_of("", 0), 0.1)
    after = content_of(pack(out))
    families = ["fitted.parquet", "nice.parquet", "packed.parquet", "references.parquet"]
    assert sorted(after) == families
    assert after["references.parquet"] == before["references.parquet"]
    assert after["nice.parquet"] != before["nice.parquet"]


def test_a_packed_file_of_other_families_is_split_once(out: Path) -> None:
    rows = plain(read_rows(only_packed(out)))
    (out / "nice.parquet").rename(out / "packed.parquet")  # where an older version had all rows
    assert [file.name for file in pack(out)] == ["nice.parquet", "references.parquet"]
    assert not (out / "packed.parquet").exists()
    pd.testing.assert_frame_equal(plain(read_rows(out)), rows)


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
    table = parquet.read_table(path)
    cells = [dict(cell.description) for cell in cells_in(path)]
    how(cells)
    squeezed = base64.b64encode(zlib.compress(json.dumps(cells).encode())).decode()
    about = {"nicegnn": "{}", "cells": squeezed}
    parquet.write_table(table.replace_schema_metadata(about), path)


@pytest.mark.parametrize("harm", [flip, cut, describe_too_few, describe_no_key])
def test_damaged_file_is_an_error_that_names_it_and_the_next_step(out: Path, harm: Any) -> None:
    only_packed(out)
    harm(out / "nice.parquet")
    with pytest.raises(StoreError, match=r"nice\.parquet is damaged .* Restore it"):
        read_rows(out)
    with pytest.raises(StoreError, match="is damaged"):
        pack(out)


def test_packing_again_keeps_cells_that_only_the_packed_file_holds(out: Path) -> None:
    rows = plain(read_rows(only_packed(out)))
    before = finished_cells(out)
    for cell, found in zip(CELLS, before.values(), strict=True):
        about = found.description
        assert (about["cell"], about["key"]) == (cell.to_dict(), cell.key)
        assert (about["identity"], about["facts"]) == (cell.identity, {"device": "cpu"})
    new = cell_of("saliency", 0)
    write_cell(out, new, 0.1)
    only_packed(out)
    after = finished_cells(out)
    assert list(after) == [*before, name_of(new.to_dict())]
    assert [after[name].description for name in before] == [c.description for c in before.values()]
    others = read_rows(out, where={"explainer": ["nice", "random"]})
    pd.testing.assert_frame_equal(plain(others), rows)


def test_failure_leaves_the_old_file_and_nothing_else(
    out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, *_ = pack(out)
    before, names = file.read_bytes(), sorted(path.name for path in out.iterdir())
    row_file = Folder(out).file("rows", CELLS[0].key)
    sound = row_file.read_bytes()
    flip(row_file)
    with pytest.raises(StoreError, match=r"damaged.*Delete it"):
        pack(out)
    row_file.write_bytes(sound)

    class HalfWriter:
        def __init__(self, path: Path, *_: Any, **__: Any) -> None:
            path.write_bytes(b"PAR1")
            raise OSError("disk full")

    monkeypatch.setattr(import_module("pyarrow.parquet"), "ParquetWriter", HalfWriter)
    with pytest.raises(StoreError, match="disk full"):
        pack(out)
    assert file.read_bytes() == before
    assert sorted(path.name for path in out.iterdir()) == names
