"""Rows of results as Parquet: one tidy file per cell, read together, no cell twice."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Collection, Mapping
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
    import pandas as pd
    import pyarrow as pa

CELL_COLUMNS = ("dataset", "target", "explainer", "mechanism", "seed")
COLUMNS = (*CELL_COLUMNS, "graph", "protocol", "metric", "value")
_WORDS = ("dataset", "target", "explainer", "mechanism", "protocol", "metric")
_KIND = "bench-rows"

log = logging.getLogger(__name__)


def write_rows(
    path: Path, cell: Cell, metrics: MetricConfig, blocks: list[Block], code: str = ""
) -> None:
    """Writes the rows of a cell, whole or not at all.

    Args:
        code: hash of the code that made the scores.
    """
    pa = _arrow()
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
        "kind": _KIND,
        "cell": cell.to_dict(),
        "key": cell.key,
        "metrics": metrics.identity(),
        "code": code,
        "written_ns": time.time_ns(),
    }
    table = pa.table({name: columns[name] for name in COLUMNS})
    table = table.replace_schema_metadata({"nicegnn": json.dumps(description)})
    _write_table(path, table)


def read_table(path: Path) -> pa.Table:
    """Reads a file of rows; raises `StoreError` if it is damaged."""
    pa = _arrow()
    parquet = import_module("pyarrow.parquet")
    try:
        with parquet.ParquetFile(path, page_checksum_verification=True) as file:
            table = file.read()
        if tuple(table.column_names) != COLUMNS:
            raise ValueError(f"its columns are {table.column_names}")
        if describe(table)["kind"] != _KIND:
            raise ValueError("it holds no rows of a benchmark")
    except (pa.ArrowException, OSError, ValueError, KeyError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise StoreError(f"{path} is damaged ({reason}).") from error
    return table


def describe(table: pa.Table) -> dict[str, Any]:
    """Returns what a file of rows says about itself: its cell, key, metrics and code."""
    found: dict[str, Any] = json.loads((table.schema.metadata or {})[b"nicegnn"])
    return found


def read_rows(
    out: str | Path,
    *,
    metrics: MetricConfig | None = None,
    where: Mapping[str, str | int | Collection[str | int]] | None = None,
) -> pd.DataFrame:
    """Returns the rows of all finished cells, each cell once.

    Where a cell was run with several settings (of the explainer, the selection or the metrics), the
    settings of the run that was asked for last count, and only they: a cell that is not finished
    under them is missing rather than mixed in from an older run.

    Args:
        out: folder of the benchmark.
        metrics: only runs with these settings of metrics.
        where: values to keep by column, ``{"metric": ["f1"], "dataset": ["benzene"]}``.
    """
    pa = _arrow()
    tables = []
    for path in current_files(BenchFolder(Path(out)), metrics):
        try:
            tables.append(_filtered(read_table(path), where or {}))
        except StoreError as error:
            log.warning("%s It is left out; run the benchmark again to restore it.", error)
    if not tables:
        tables = [_empty()]
    plain = [table.replace_schema_metadata(None) for table in tables]
    rows: pd.DataFrame = pa.concat_tables(plain).unify_dictionaries().to_pandas()
    return rows


def compact(out: str | Path, file: str | Path, *, metrics: MetricConfig | None = None) -> Path:
    """Writes the rows of all finished cells into one Parquet file."""
    pa = _arrow()
    table = pa.Table.from_pandas(read_rows(out, metrics=metrics), preserve_index=False)
    _write_table(Path(file), table.replace_schema_metadata(None))
    return Path(file)


def current_files(folder: BenchFolder, metrics: MetricConfig | None) -> list[Path]:
    """Returns the file of each cell that counts, in the order of the cells' names."""
    wanted = None if metrics is None else metrics.identity()
    chosen: dict[tuple[Any, ...], str] = {}
    known = set()
    for run in folder.read_runs():  # the newest first
        known |= {cell["rows"] for cell in run["cells"]}
        given = MetricConfig(**run["config"]["metrics"]).identity()
        if wanted in (None, given):
            for cell in run["cells"]:
                chosen.setdefault(tuple(cell[name] for name in CELL_COLUMNS), cell["rows"])
    for name, row_key in _unrecorded(folder, known, wanted):
        chosen.setdefault(name, row_key)
    files = [folder.rows(chosen[name]) for name in sorted(chosen)]
    return [path for path in files if path.is_file()]


def _unrecorded(
    folder: BenchFolder, known: set[str], wanted: dict[str, Any] | None
) -> list[tuple[tuple[Any, ...], str]]:
    """Returns files that no run asked for, such as files copied here, the newest first."""
    found = []
    for path in sorted((folder.root / "rows").glob("*.parquet")):
        if path.stem in known:
            continue
        try:
            description = describe(read_table(path))
            name = tuple(description["cell"][column] for column in CELL_COLUMNS)
            if wanted in (None, description["metrics"]):
                found.append((int(description["written_ns"]), path.stem, name))
        except (StoreError, KeyError, ValueError) as error:
            log.warning("%s is left out: %s", path, error)
    return [(name, row_key) for _, row_key, name in sorted(found, reverse=True)]


def _filtered(table: pa.Table, where: Mapping[str, str | int | Collection[str | int]]) -> pa.Table:
    unknown = sorted(set(where) - set(COLUMNS))
    if unknown:
        raise ConfigError(f"`where` must name columns of {COLUMNS} (got {unknown}).")
    pa, compute = _arrow(), import_module("pyarrow.compute")
    for name, values in where.items():
        column = table[name]
        listed = [values] if isinstance(values, str | int) else list(values)
        kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
        table = table.filter(compute.is_in(column.cast(kind), pa.array(listed, kind)))
    return table


def _empty() -> pa.Table:
    pa = _arrow()
    kinds = {"seed": pa.int64(), "graph": pa.int32(), "value": pa.float32()}
    words = pa.dictionary(pa.int32(), pa.string())
    return pa.schema([(name, kinds.get(name, words)) for name in COLUMNS]).empty_table()


def _write_table(path: Path, table: pa.Table) -> None:
    parquet = import_module("pyarrow.parquet")
    write_whole(
        path,
        lambda file: parquet.write_table(table, file, compression="zstd", write_page_checksum=True),
    )


def _arrow() -> Any:
    try:
        import_module("pandas")
        return import_module("pyarrow")
    except ImportError as error:
        raise ConfigError(
            "Rows of a benchmark need pandas and pyarrow: pip install 'nicegnn[bench]'."
        ) from error
