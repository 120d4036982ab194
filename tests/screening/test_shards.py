"""Tables as files: what is written is read again, and a file is whole or not there."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from nicegnn.screening.shards import Schema, Table, num_rows, read_table, write_table

SCHEMA: Schema = {"row": int, "id": str, "share": float, "score": list[float]}
TABLES: list[Table] = [
    {"row": [1, 2], "id": ["a", "b, c"], "share": [0.5, math.nan], "score": [[0.25, 0.75], []]},
    {"row": [3], "id": ["d"], "share": [1.0], "score": [None]},
]


def test_parquet_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "some.parquet"
    assert write_table(path, TABLES, SCHEMA) == num_rows(path) == 3
    (found,) = read_table(path)
    assert found["id"] == ["a", "b, c", "d"]
    assert found["score"] == [[0.25, 0.75], [], None]
    parts = [table["row"] for table in read_table(path, size=2, columns=["row"])]
    assert parts == [[1, 2], [3]]


def test_text_is_what_a_spreadsheet_can_take(tmp_path: Path) -> None:
    table = {"id": ["a", "b, c", "=1+1", "-x", "-1.5"], "share": [1 / 3, math.nan, 1e-9, 2.0, -1.0]}
    assert write_table(tmp_path / "some.csv", [table], {"id": str, "share": float}) == 5
    lines = (tmp_path / "some.csv").read_text().splitlines()
    expected = ["id,share", "a,0.3333333", '"b, c",', "'=1+1,1e-09", "'-x,2", "-1.5,-1"]
    assert lines == expected


@pytest.mark.parametrize("left", [0, 4, -9, -1])
def test_a_file_that_is_cut_short_has_no_rows(left: int, tmp_path: Path) -> None:
    path = tmp_path / "some.parquet"
    assert num_rows(path) == -1
    write_table(path, TABLES, SCHEMA)
    path.write_bytes(path.read_bytes()[:left])
    assert num_rows(path) == -1


def test_an_error_half_way_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "some.parquet"
    write_table(path, TABLES[:1], SCHEMA)

    def failing() -> Iterator[Table]:
        yield TABLES[1]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_table(path, failing(), SCHEMA)
    assert num_rows(path) == 2
    assert [one.name for one in tmp_path.iterdir()] == ["some.parquet"]


def test_a_shard_is_on_the_disk_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    happened: list[object] = []
    sync, rename = os.fsync, os.replace
    path = tmp_path / "some.parquet"

    def synced(file: int) -> None:
        happened.append(os.fstat(file).st_size)
        sync(file)

    def renamed(old: Path, new: Path) -> None:
        happened.append(new)
        rename(old, new)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", renamed)
    write_table(path, TABLES, SCHEMA)
    assert happened == [path.stat().st_size, path]
