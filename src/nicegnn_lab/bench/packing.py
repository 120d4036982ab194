"""Packs the rows of a study into one small file; equal rows give equal bytes."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Collection
from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet

from nicegnn.errors import StoreError
from nicegnn.store import write_whole
from nicegnn_lab.bench.measure import GALLERY_METRICS
from nicegnn_lab.bench.rows import (
    COLUMNS,
    PACKED_KIND,
    SCHEMA,
    WHOLE_CELL,
    Folder,
    finished_cells,
    read_cells,
)
from nicegnn_lab.metrics.agreement import TRUTH_METRICS

#: Metrics of the benchmark whose rows of single graphs are kept. The means of the others suffice
#: for tables and figures; they would be four fifths of all bytes.
KEPT_PER_GRAPH = (
    *TRUTH_METRICS,
    *("gate_roc_auc", "big_roc_auc", "kept_area", "kept"),
    *GALLERY_METRICS,
)
_NOT_KEPT = ("kind", "written_ns")  # left out of a cell's description
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

    Cells that are packed already are packed again with the others. In the benchmark, metrics
    outside `KEPT_PER_GRAPH` are `averaged`.
    """
    place, found = Folder(Path(folder)), finished_cells(folder)
    if not found:
        raise StoreError(
            f"There are no rows in {folder} to pack; compute them with `nicegnn lab bench` or "
            "`nicegnn lab experiment`."
        )
    tables = [
        averaged(table, KEPT_PER_GRAPH) if name[0] == "bench" else table
        for name, table in zip(found, read_cells(found.values()), strict=True)
    ]
    cells = [
        {k: v for k, v in cell.description.items() if k not in _NOT_KEPT}
        | {"num_rows": table.num_rows}
        for cell, table in zip(found.values(), tables, strict=True)
    ]
    text = json.dumps(cells, sort_keys=True, separators=(",", ":"))
    squeezed = base64.b64encode(zlib.compress(text.encode(), 9)).decode()
    about = {"nicegnn": json.dumps({"kind": PACKED_KIND}), "cells": squeezed}

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


def averaged(table: pa.Table, keep: Collection[str]) -> pa.Table:
    r"""Returns the rows of one cell with means in place of the metrics that are not kept.

    .. math:: \bar v_s = \tfrac1{|G_s|} \sum_{g \in G_s} v_{gs}

    Symbols: :math:`G_s` -> graphs with a value, as in `summarise`; nan if there is none. A mean
    takes the place of its first graph.
    """
    rows = table.select(["graph", "protocol", "metric", "level", "value"]).to_pandas()
    rows = rows.astype({"value": "float64"})
    is_mean = (rows["graph"] != WHOLE_CELL) & ~rows["metric"].isin(list(keep))
    keys = ["protocol", "metric", "level"]
    groups = rows[is_mean].groupby(keys, observed=True, dropna=False)["value"]
    rows.loc[is_mean, "value"] = groups.transform("mean")
    rows.loc[is_mean, "graph"] = WHOLE_CELL
    stays = (~(is_mean & rows.duplicated(keys))).to_numpy()
    table = table.filter(pa.array(stays))
    for name, kind in (("graph", "int32"), ("value", "float32")):
        values: Any = pa.array(rows.loc[stays, name].to_numpy(kind))  # nan stays nan
        table = table.set_column(COLUMNS.index(name), name, values)
    return table
