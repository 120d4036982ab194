"""Reading the rows of a benchmark: all finished cells together, none twice."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from nicegnn.bench.config import MetricConfig
from nicegnn.bench.folder import BenchFolder
from nicegnn.bench.packing import PackedCell, current_cells
from nicegnn.bench.rows import COLUMNS, arrow, empty_table, read_table
from nicegnn.errors import ConfigError, StoreError

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

log = logging.getLogger(__name__)


def read_rows(
    out: str | Path,
    *,
    metrics: MetricConfig | None = None,
    where: Mapping[str, str | int | Collection[str | int]] | None = None,
) -> pd.DataFrame:
    """Returns the rows of all finished cells, each cell once.

    Where a cell was run with several settings (of the explainer, the selection or the metrics), the
    settings of the run that was asked for last count, and only they: a cell that is not finished
    under them is missing rather than mixed in from an older run. A cell without a file of its own
    is taken from the packed file, see `nicegnn.bench.pack`, where some metrics are means.

    Args:
        out: folder of the benchmark.
        metrics: only runs with these settings of metrics.
        where: values to keep by column, ``{"metric": ["f1"], "dataset": ["benzene"]}``.
    """
    pa = arrow()
    tables = []
    for place in current_cells(BenchFolder(Path(out)), metrics).values():
        try:
            table = place.table if isinstance(place, PackedCell) else read_table(place)
            tables.append(_filtered(table, where or {}))
        except StoreError as error:
            log.warning("%s It is left out; run the benchmark again to restore it.", error)
    if not tables:
        tables = [empty_table()]
    plain = [table.replace_schema_metadata(None) for table in tables]
    rows: pd.DataFrame = pa.concat_tables(plain).unify_dictionaries().to_pandas()
    return rows


def _filtered(table: pa.Table, where: Mapping[str, str | int | Collection[str | int]]) -> pa.Table:
    unknown = sorted(set(where) - set(COLUMNS))
    if unknown:
        raise ConfigError(f"`where` must name columns of {COLUMNS} (got {unknown}).")
    pa, compute = arrow(), import_module("pyarrow.compute")
    for name, values in where.items():
        column = table[name]
        listed = [values] if isinstance(values, str | int) else list(values)
        kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
        table = table.filter(compute.is_in(column.cast(kind), pa.array(listed, kind)))
    return table
