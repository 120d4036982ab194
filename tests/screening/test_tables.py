"""Tables as files: what is written is read again, and a file is whole or not there."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from nicegnn.screening.tables import Row, Schema, num_rows, read_table, write_table

SCHEMA: Schema = {"row": int, "id": str, "share": float, "score": list[float]}
ROWS: list[Row] = [
    {"row": 1, "id": "a", "share": 0.5, "score": [0.25, 0.75]},
    {"row": 2, "id": "b, c", "share": math.nan, "score": []},
    {"row": 3, "id": "d", "share": 1.0, "score": None},
]


def test_parquet_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "some.parquet"
    assert write_table(path, ROWS, SCHEMA) == num_rows(path) == 3
    found = [*read_table(path)]
    assert [row["score"] for row in found] == [[0.25, 0.75], [], None]
    assert [*read_table(path, ["row", "id"])][1] == {"row": 2, "id": "b, c"}


def test_text_is_what_a_spreadsheet_can_take(tmp_path: Path) -> None:
    words, shares = ["a", "b, c", "=1+1", "-x", "-1.5"], [1 / 3, math.nan, 1e-9, 2.0, -1.0]
    rows = [{"id": word, "share": share} for word, share in zip(words, shares, strict=True)]
    assert write_table(tmp_path / "some.csv", rows, {"id": str, "share": float}) == 5
    lines = (tmp_path / "some.csv").read_text().splitlines()
    expected = ["id,share", "a,0.3333333", '"b, c",', "'=1+1,1e-09", "'-x,2", "-1.5,-1"]
    assert lines == expected


@pytest.mark.parametrize("left", [0, 4, -9, -1])
def test_a_file_that_is_cut_short_has_no_rows(left: int, tmp_path: Path) -> None:
    path = tmp_path / "some.parquet"
    assert num_rows(path) == -1
    write_table(path, ROWS, SCHEMA)
    path.write_bytes(path.read_bytes()[:left])
    assert num_rows(path) == -1


def test_an_error_half_way_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "some.parquet"
    write_table(path, ROWS[:2], SCHEMA)

    def failing() -> Iterator[Row]:
        yield ROWS[1]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_table(path, failing(), SCHEMA)
    assert num_rows(path) == 2
    assert [one.name for one in tmp_path.iterdir()] == ["some.parquet"]


def test_a_shard_is_on_the_disk_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, happened, rename = tmp_path / "some.parquet", list[object](), os.replace
    monkeypatch.setattr(os, "fsync", lambda file: happened.append(os.fstat(file).st_size))
    monkeypatch.setattr(os, "replace", lambda *pair: happened.append(pair[1]) or rename(*pair))
    write_table(path, ROWS, SCHEMA)
    assert happened == [path.stat().st_size, path]
