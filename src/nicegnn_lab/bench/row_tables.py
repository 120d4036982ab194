"""Rows as tables: columns, Parquet files, means."""

from __future__ import annotations

import base64
import json
import math
import zlib
from collections.abc import Collection, Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from nicegnn.errors import ConfigError, StoreError
from nicegnn_lab.metrics import bootstrap_mean

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

#: Columns of every row. ``setting`` names what is varied, ``level`` is its number.
COLUMNS = (
    *("study", "dataset", "stand_in", "target", "explainer", "mechanism", "setting", "level"),
    *("seed", "graph", "protocol", "metric", "value", "note"),
)
WORDS = (
    *("study", "dataset", "target", "explainer", "mechanism", "setting"),
    *("protocol", "metric", "note"),
)
WHOLE_CELL = -1  # in column ``graph``: the value is of the whole cell
ROWS_KIND = "rows"
PACKED_KIND = "packed-rows"
#: Columns by which `summarise` groups rows.
GROUPS = (
    *("dataset", "target", "explainer", "mechanism", "setting"),
    *("protocol", "metric", "level"),
)

#: Values to keep by column.
Where = Mapping[str, "str | float | bool | Collection[str | float | bool]"]


def filtered(table: pa.Table, where: Where) -> pa.Table:
    """Returns the rows whose columns have one of the given values."""
    pa, compute = arrow(), import_module("pyarrow.compute")
    for name, values in where.items():
        column = table[name]
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        table = table.filter(compute.is_in(column, pa.array(listed(values), column.type)))
    return table


def read_table(path: Path) -> pa.Table:
    """Reads a cell's own file of rows; raises `StoreError` if it is damaged."""
    try:
        with opened(path) as file:
            table = file.read()
        if tuple(table.column_names) != COLUMNS:
            raise ValueError(f"its columns are {table.column_names}")
    except (arrow().ArrowException, OSError, ValueError) as error:
        raise damaged(path, error) from error
    return table.replace_schema_metadata(None)


def with_sorted_words(rows: pd.DataFrame) -> pd.DataFrame:
    """Returns rows with sorted categories, because pandas sorts groups by them."""
    known = {}
    for name in WORDS:
        words = rows[name].cat
        used = words.categories[words.codes.unique()]
        known[name] = words.set_categories(sorted(used))
    return rows.assign(**known)


def empty_table() -> pa.Table:
    """Returns a table without rows."""
    pa = arrow()
    kinds = {"stand_in": pa.bool_(), "level": pa.float64(), "seed": pa.int64()}
    kinds |= {"graph": pa.int32(), "value": pa.float32()}
    words = pa.dictionary(pa.int32(), pa.string())
    return pa.schema([(name, kinds.get(name, words)) for name in COLUMNS]).empty_table()


def arrow() -> Any:
    """Returns pyarrow; the error without it says how to install it."""
    try:
        import_module("pandas")
        return import_module("pyarrow")
    except ImportError as error:
        raise ConfigError("Rows need pandas and pyarrow: pip install 'nicegnn[tables]'.") from error


def opened(path: Path) -> Any:
    parquet = import_module("pyarrow.parquet")
    return parquet.ParquetFile(path, read_dictionary=list(WORDS), page_checksum_verification=True)


def describe(path: Path, kind: str) -> dict[str, Any]:
    """Returns the metadata of a file of rows without reading the rows."""
    try:
        with opened(path) as file:
            metadata = file.metadata.metadata
            found: dict[str, Any] = json.loads(metadata[b"nicegnn"])
            found["num_rows"] = file.metadata.num_rows
            if kind == PACKED_KIND:
                found["cells"] = _unsqueeze(metadata[b"cells"])
        if found["kind"] != kind:
            raise ValueError(f"its kind is not {kind}")
    except (arrow().ArrowException, OSError, ValueError, KeyError, TypeError, zlib.error) as error:
        raise damaged(path, error) from error
    return found


def squeeze(content: Any) -> str:
    """Returns plain values as compressed text.

    Example:
        >>> _unsqueeze(squeeze({"a": [1, 2]}).encode())
        {'a': [1, 2]}
    """
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return base64.b64encode(zlib.compress(text.encode(), 9)).decode()


def _unsqueeze(text: bytes) -> Any:
    return json.loads(zlib.decompress(base64.b64decode(text)))


def damaged(path: Path, error: Exception) -> StoreError:
    reason = str(error).splitlines()[0] if str(error) else type(error).__name__
    text = f"{path} is damaged ({reason})."
    if path.name == "packed.parquet":
        text += " Restore it (git checkout restores a committed file), or delete it and run again."
    return StoreError(text)


def listed(values: Any) -> list[Any]:
    return [values] if isinstance(values, str | float | int) else list(values)


def summarise(
    rows: pd.DataFrame, *, level: float = 0.95, num_resamples: int = 1000, seed: int = 0
) -> pd.DataFrame:
    r"""Returns one row for each combination of `GROUPS`, such as one metric of one explainer.

    .. math:: \bar v = \tfrac1S \sum_s \bar v_s, \quad \bar v_s = \tfrac1{|G_s|}
        \sum_{g \in G_s} v_{gs}, \qquad std = \sqrt{\tfrac1{S-1} \sum_s (\bar v_s - \bar v)^2}

    Symbols: :math:`v_{gs}` -> ``value`` of graph g with seed s; :math:`G_s` -> graphs with a value;
    :math:`S` -> number of seeds.

    Columns:
        mean, std: as above; std is nan for one seed.
        low, high: bootstrap interval over graphs of each graph's mean over seeds; nan for values of
            a whole cell, where ``num_graphs`` is 0.
        num_nan: undefined values of all seeds.

    Args:
        rows: from `read_rows`.
        num_resamples: of the bootstrap, which takes time; 0 for no interval.
    """
    groups = rows.groupby(list(GROUPS), observed=True, sort=True, dropna=False)
    table = groups.size().index.to_frame(index=False)
    table = table.astype({name: "str" for name in GROUPS if name != "level"})
    number = groups.ngroup()  # the line of `table` that each row belongs to
    value = rows["value"].astype("float64")
    by_seed = value.groupby([number, rows["seed"]]).mean()  # nan is left out
    matrix = by_seed.unstack("seed")  # [groups, S]
    is_graph = rows["graph"] != WHOLE_CELL
    by_graph = value[is_graph].groupby([number[is_graph], rows["graph"][is_graph]]).mean()
    ends = {
        group: bootstrap_mean(
            torch.tensor(means.to_numpy()), level=level, num_resamples=num_resamples, seed=seed
        )
        for group, means in (by_graph.groupby(level=0) if num_resamples else ())
    }
    return table.assign(
        mean=matrix.mean(axis=1),
        std=matrix.std(axis=1),
        low=[ends[group].low if group in ends else math.nan for group in table.index],
        high=[ends[group].high if group in ends else math.nan for group in table.index],
        num_seeds=by_seed.groupby(level=0).size(),
        num_graphs=by_graph.groupby(level=0).size().reindex(table.index, fill_value=0),
        num_nan=value.isna().groupby(number).sum(),
    )
