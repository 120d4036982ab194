"""Rows of a cell as a tidy Parquet file, and which file of a cell counts."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from nicegnn.bench.cell import Cell
from nicegnn.bench.config import MetricConfig
from nicegnn.bench.folder import BenchFolder, write_whole
from nicegnn.bench.measuring import Block
from nicegnn.errors import ConfigError, StoreError

if TYPE_CHECKING:
    import pyarrow as pa

CELL_COLUMNS = ("dataset", "target", "explainer", "mechanism", "seed")
COLUMNS = (*CELL_COLUMNS, "graph", "protocol", "metric", "value")
KIND = "bench-rows"
_WORDS = ("dataset", "target", "explainer", "mechanism", "protocol", "metric")

#: What tells cells apart in rows: the values of `CELL_COLUMNS`.
Name = tuple[str, str, str, str, int]

log = logging.getLogger(__name__)


def write_rows(
    path: Path, cell: Cell, metrics: MetricConfig, blocks: list[Block], code: str = ""
) -> None:
    """Writes the rows of a cell, whole or not at all.

    Args:
        code: hash of the code that made the scores.
    """
    pa = arrow()
    sizes = torch.tensor([block.graph.numel() for block in blocks])
    num = int(sizes.sum())

    def repeated(name: str) -> Any:
        words = [getattr(block, name) for block in blocks]
        known = sorted(set(words))
        code = torch.tensor([known.index(word) for word in words]).repeat_interleave(sizes)
        return pa.DictionaryArray.from_arrays(pa.array(code.int().numpy()), known)

    def same(word: str) -> Any:
        return pa.DictionaryArray.from_arrays(pa.array(torch.zeros(num).int().numpy()), [word])

    columns = {name: same(getattr(cell, name)) for name in CELL_COLUMNS[:-1]}
    columns["seed"] = pa.array([cell.seed] * num, pa.int64())
    columns["graph"] = pa.array(torch.cat([block.graph for block in blocks]).int().numpy())
    columns |= {name: repeated(name) for name in ("protocol", "metric")}
    value = torch.cat([block.value.double() for block in blocks])
    columns["value"] = pa.array(value.float().numpy())  # nan stays nan
    description = {
        "kind": KIND,
        "cell": cell.to_dict(),
        "key": cell.key,
        "metrics": metrics.identity(),
        "code": code,
        "written_ns": time.time_ns(),
    }
    table = pa.table({name: columns[name] for name in COLUMNS})
    table = table.replace_schema_metadata({"nicegnn": json.dumps(description)})
    write_table(path, table)


def read_table(path: Path, kind: str = KIND) -> pa.Table:
    """Reads a file of rows; raises `StoreError` if it is damaged."""
    pa = arrow()
    parquet = import_module("pyarrow.parquet")
    try:
        with parquet.ParquetFile(
            path, read_dictionary=list(_WORDS), page_checksum_verification=True
        ) as file:
            table = file.read()
        if tuple(table.column_names) != COLUMNS:
            raise ValueError(f"its columns are {table.column_names}")
        if describe(table)["kind"] != kind:
            raise ValueError("it holds no rows of a benchmark")
    except (pa.ArrowException, OSError, ValueError, KeyError, TypeError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise StoreError(f"{path} is damaged ({reason}).") from error
    return table


def write_table(path: Path, table: pa.Table, **options: Any) -> None:
    """Writes a file of rows, whole or not at all.

    Args:
        options: of `pyarrow.parquet.write_table`.
    """
    parquet = import_module("pyarrow.parquet")
    given = {"compression": "zstd", "write_page_checksum": True} | options
    write_whole(path, lambda file: parquet.write_table(table, file, **given))


def describe(table: pa.Table) -> dict[str, Any]:
    """Returns what a file of rows says about itself: its cell, key, metrics and code."""
    found: dict[str, Any] = json.loads((table.schema.metadata or {})[b"nicegnn"])
    return found


def name_of(description: Mapping[str, Any]) -> Name:
    """Returns the name of the cell that rows describe."""
    dataset, target, explainer, mechanism, seed = (description["cell"][c] for c in CELL_COLUMNS)
    return dataset, target, explainer, mechanism, seed


def asked_rows(folder: BenchFolder, metrics: MetricConfig | None) -> dict[Name, str]:
    """Returns the key of the rows of each cell that count, finished or not.

    Those of the run that was asked for last count; where no run asked for a cell, the newest file.
    """
    wanted = None if metrics is None else metrics.identity()
    chosen: dict[Name, str] = {}
    known = set()
    for run in folder.read_runs():  # the newest first
        known |= {cell["rows"] for cell in run["cells"]}
        given = MetricConfig(**run["config"]["metrics"]).identity()
        if wanted in (None, given):
            for cell in run["cells"]:
                chosen.setdefault(name_of({"cell": cell}), cell["rows"])
    for name, row_key in _unrecorded(folder, known, wanted):
        chosen.setdefault(name, row_key)
    return chosen


def _unrecorded(
    folder: BenchFolder, known: set[str], wanted: dict[str, Any] | None
) -> list[tuple[Name, str]]:
    """Returns files that no run asked for, such as files copied here, the newest first."""
    found = []
    for path in sorted((folder.root / "rows").glob("*.parquet")):
        if path.stem in known:
            continue
        try:
            description = describe(read_table(path))
            name = name_of(description)
            if wanted in (None, description["metrics"]):
                found.append((int(description["written_ns"]), path.stem, name))
        except (StoreError, KeyError, ValueError) as error:
            log.warning("%s is left out: %s", path, error)
    return [(name, row_key) for _, row_key, name in sorted(found, reverse=True)]


def empty_table() -> pa.Table:
    """Returns rows of no cell."""
    pa = arrow()
    kinds = {"seed": pa.int64(), "graph": pa.int32(), "value": pa.float32()}
    words = pa.dictionary(pa.int32(), pa.string())
    return pa.schema([(name, kinds.get(name, words)) for name in COLUMNS]).empty_table()


def arrow() -> Any:
    """Returns pyarrow, or says how to install it."""
    try:
        import_module("pandas")
        return import_module("pyarrow")
    except ImportError as error:
        raise ConfigError(
            "Rows of a benchmark need pandas and pyarrow: pip install 'nicegnn[bench]'."
        ) from error
