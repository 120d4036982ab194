"""Rows of all cells in one small file: per graph where tests need it, means of all else."""

from __future__ import annotations

import inspect
import json
import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError, safe_open

from nicegnn.bench.config import MetricConfig
from nicegnn.bench.folder import BenchFolder
from nicegnn.bench.measuring import WHOLE_CELL
from nicegnn.bench.rows import (
    COLUMNS,
    Name,
    arrow,
    asked_rows,
    describe,
    name_of,
    read_table,
    write_table,
)
from nicegnn.errors import StoreError
from nicegnn.metrics import TRUTH_METRICS, get_metric

if TYPE_CHECKING:
    import pyarrow as pa

#: Metrics that tables, figures, intervals and paired tests take graph by graph; ``kept`` stands for
#: all points of its curve. Losses of probability, four fifths of all bytes, are only averaged.
KEPT_PER_GRAPH = (*TRUTH_METRICS, "kept_area", "kept")
KIND = "bench-packed"
_DESCRIBED = {"cell", "key", "metrics", "rows", "written_ns", "num_rows"}
_LEVEL = 17  # of zstd: a sixth smaller than 15; higher ones gain little
_PAGE_ROWS = 2**20  # cells repeat each other: long pages are a third smaller than usual ones

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class PackedCell:
    """A cell in a packed file.

    Attributes:
        description: what the cell's own file of rows said, its ``rows`` key, and ``facts`` and
            ``identity`` of its scores.
        table: its rows.
    """

    description: Mapping[str, Any]
    table: pa.Table


def pack(
    out: str | Path,
    file: str | Path | None = None,
    *,
    keep: Collection[str] = KEPT_PER_GRAPH,
    metrics: MetricConfig | None = None,
) -> Path:
    r"""Writes the rows of all finished cells into one small file and returns its path.

    Metrics that are not kept per graph become one row of graph -1 with the mean over graphs,

    .. math:: \bar v_s = \tfrac1{|G_s|} \sum_{g \in G_s} v_{gs},

    where :math:`G_s` are the graphs with a value, as in `summarise`. Cells that only a packed file
    of the folder holds are taken over from it.

    Args:
        out: folder of the benchmark.
        file: by default ``packed.parquet`` in the folder, which `read_rows` reads.
        keep: metrics to keep per graph; the name of a fidelity curve stands for all its points.
        metrics: only runs with these settings of metrics.
    """
    for name in keep:
        get_metric(name.partition("@")[0])  # says which there are
    pa, folder = arrow(), BenchFolder(Path(out))
    cells, tables = [], []
    for place in current_cells(folder, metrics).values():
        cell = place if isinstance(place, PackedCell) else _cell_of(folder, place)
        tables.append(averaged(cell.table, keep))
        cells.append({**cell.description, "num_rows": tables[-1].num_rows})
    if not tables:
        raise StoreError(f"There are no rows in {out}; make them with `nicegnn bench --out {out}`.")
    table = pa.concat_tables(tables).unify_dictionaries()
    is_graph = import_module("pyarrow.compute").not_equal(table["graph"], WHOLE_CELL)
    per_graph = table.filter(is_graph)["metric"].unique()
    description = {
        "kind": KIND,
        "per_graph": sorted(per_graph.to_pylist()),
        "cells": cells,
    }
    path = folder.packed if file is None else Path(file)
    _write(path, table.replace_schema_metadata({"nicegnn": json.dumps(description)}))
    return path


def averaged(table: pa.Table, keep: Collection[str]) -> pa.Table:
    """Returns the rows of one cell with means in place of the metrics that are not kept.

    A mean is over the graphs with a value, nan if there is none, and stands where its first graph
    stood.
    """
    pa = arrow()
    rows = table.select(["graph", "protocol", "metric", "value"]).to_pandas()
    rows = rows.astype({"value": "float64"})
    names = [str(name) for name in rows["metric"].unique()]
    kept = [name for name in names if {name, name.partition("@")[0]} & set(keep)]
    is_mean = (rows["graph"] != WHOLE_CELL) & ~rows["metric"].isin(kept)
    keys = ["protocol", "metric"]
    groups = rows[is_mean].groupby(keys, observed=True)["value"]
    rows.loc[is_mean, "value"] = groups.transform("mean")
    rows.loc[is_mean, "graph"] = WHOLE_CELL
    stays = (~(is_mean & rows.duplicated(keys))).to_numpy()
    table = table.filter(pa.array(stays)).replace_schema_metadata(None)
    for name, kind in (("graph", "int32"), ("value", "float32")):
        values = pa.array(rows.loc[stays, name].to_numpy(kind))  # nan stays nan
        table = table.set_column(COLUMNS.index(name), name, values)
    return table


def read_packed(path: Path) -> dict[Name, PackedCell]:
    """Returns the cells of a packed file by name; raises `StoreError` if it is damaged."""
    table = read_table(path, KIND)
    description = describe(table)
    table = table.replace_schema_metadata(None)
    found, begin = {}, 0
    try:
        for cell in description["cells"]:
            if not cell.keys() >= _DESCRIBED:
                raise KeyError(*sorted(_DESCRIBED - cell.keys()))
            found[name_of(cell)] = PackedCell(cell, table.slice(begin, cell["num_rows"]))
            begin += cell["num_rows"]
    except (KeyError, TypeError, AttributeError) as error:
        raise StoreError(f"{path} is damaged (a cell's description: {error!r}).") from error
    if begin != table.num_rows:
        raise StoreError(f"{path} is damaged ({table.num_rows} rows for {begin} described).")
    return found


def current_cells(
    folder: BenchFolder, metrics: MetricConfig | None = None
) -> dict[Name, Path | PackedCell]:
    """Returns where the rows of each finished cell are, in the order of the cells' names.

    A cell's own file comes first. The packed file serves cells without one, unless a run asked for
    the cell with other settings since.
    """
    asked = asked_rows(folder, metrics)
    files = {name: folder.rows(key) for name, key in asked.items()}
    found: dict[Name, Path | PackedCell] = {n: path for n, path in files.items() if path.is_file()}
    for name, cell in _packed(folder).items():
        is_wanted = metrics is None or cell.description["metrics"] == metrics.identity()
        is_asked = asked.get(name) in (None, cell.description["rows"])
        if is_wanted and is_asked:
            found.setdefault(name, cell)
    return {name: found[name] for name in sorted(found)}


def read_making(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns facts and identity of a file of scores without reading the scores; empty if none."""
    try:
        with safe_open(path, framework="pt") as file:
            description = json.loads((file.metadata() or {})["nicegnn"])
        return dict(description["facts"]), dict(description["identity"])
    except (SafetensorError, OSError, ValueError, KeyError):
        return {}, {}


def _packed(folder: BenchFolder) -> dict[Name, PackedCell]:
    if not folder.packed.is_file():
        return {}
    try:
        return read_packed(folder.packed)
    except StoreError as error:
        log.warning("%s It is left out; restore it, or pack the rows again.", error)
        return {}


def _cell_of(folder: BenchFolder, path: Path) -> PackedCell:
    try:
        table = read_table(path)
    except StoreError as error:
        raise StoreError(f"{error} Run the benchmark again to restore it, then pack.") from error
    description = {key: value for key, value in describe(table).items() if key != "kind"}
    facts, identity = read_making(folder.scores(description["key"]))
    facts.pop("fit_history", None)  # the longest of all, and nothing shows it
    making = {"rows": path.stem, "facts": facts, "identity": identity}
    return PackedCell(description | making, table)


def _write(path: Path, table: pa.Table) -> None:
    parquet = import_module("pyarrow.parquet")
    options: dict[str, Any] = {
        "compression_level": _LEVEL,
        "use_dictionary": [name for name in COLUMNS if name not in ("graph", "value")],
        "row_group_size": _PAGE_ROWS,
        "data_page_size": 16 * _PAGE_ROWS,
    }
    if "max_rows_per_page" in inspect.signature(parquet.write_table).parameters:  # newer pyarrow
        options["max_rows_per_page"] = _PAGE_ROWS
    write_table(path, table, **options)
