"""Packs the rows of a study into one small file; equal rows give equal bytes."""

from __future__ import annotations

import base64
import json
import zlib
from itertools import groupby
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet

from nicegnn.errors import StoreError
from nicegnn.store import write_whole
from nicegnn_lab.bench.rows import COLUMNS, SCHEMA, Folder, finished_cells, read_cells

_PAGE_ROWS = 2**20  # files are a third smaller than with usual pages
_OPTIONS = {
    "compression": "zstd",
    "compression_level": 17,  # files are a sixth smaller than at 15; higher levels gain little
    "use_dictionary": [name for name in COLUMNS if name not in ("graph", "value")],
    "data_page_size": 16 * _PAGE_ROWS,
    "max_rows_per_page": _PAGE_ROWS,
    "write_page_checksum": True,
}


def pack(folder: str | Path) -> Path:
    """Writes the rows of all finished cells of a study into ``packed.parquet`` in its folder.

    Cells that are packed already are packed again with the others.
    """
    place, found = Folder(Path(folder)), finished_cells(folder)
    if not found:
        raise StoreError(
            f"There are no rows in {folder} to pack; compute them with `nicegnn lab bench` or "
            "`nicegnn lab experiment`."
        )
    tables = list(read_cells(found.values()))
    cells = [cell.description for cell in found.values()]
    text = json.dumps(cells, sort_keys=True, separators=(",", ":"))
    squeezed = base64.b64encode(zlib.compress(text.encode(), 9)).decode()
    about = {"nicegnn": json.dumps({"kind": "packed-rows"}), "cells": squeezed}

    def subject(number: int) -> tuple[str, str]:  # most readers want one dataset and target
        return cells[number]["cell"]["dataset"], cells[number]["cell"]["target"]

    def write(file: Path) -> None:
        with pa.parquet.ParquetWriter(file, SCHEMA, **_OPTIONS) as writer:
            for _, numbers in groupby(range(len(cells)), subject):
                group = pa.concat_tables([tables[number] for number in numbers])
                group = group.unify_dictionaries().combine_chunks()
                writer.write_table(group, row_group_size=max(group.num_rows, 1))
            writer.add_key_value_metadata(about)  # metadata of a schema would be written twice

    write_whole(place.packed, write)
    return place.packed


def pack_all(results: str | Path = "results") -> list[Path]:
    """Packs the rows of every study below a folder and returns the files."""
    root = Path(results)
    folders = {path.parent for path in root.glob("**/packed.parquet")}
    folders |= {path.parent.parent for path in root.glob("**/rows/*.parquet")}
    if not folders:
        raise StoreError(f"There are no rows in {results} to pack; name another folder.")
    return [pack(folder) for folder in sorted(folders)]
