"""The schema of rows and the Parquet files that hold them."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Collection, Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from nicegnn.errors import ConfigError, StoreError

if TYPE_CHECKING:
    import pyarrow as pa

#: Columns of every row. ``setting`` says in words what was varied, ``level`` is its number.
COLUMNS = (
    *("study", "dataset", "stand_in", "target", "explainer", "mechanism", "setting", "level"),
    *("seed", "graph", "protocol", "metric", "value", "note"),
)
WORDS = (
    *("study", "dataset", "target", "explainer", "mechanism", "setting"),
    *("protocol", "metric", "note"),
)
WHOLE_CELL = -1  # graph of numbers that belong to no single graph
ROWS_KIND = "rows"
PACKED_KIND = "packed-rows"

#: Values to keep by column.
Where = Mapping[str, "str | float | bool | Collection[str | float | bool]"]


def filtered(table: pa.Table, where: Where) -> pa.Table:
    """Returns the rows that hold one of the values of each column."""
    pa, compute = arrow(), import_module("pyarrow.compute")
    for name, values in where.items():
        column = table[name]
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        table = table.filter(compute.is_in(column, pa.array(listed(values), column.type)))
    return table


def read_table(path: Path, kind: str) -> pa.Table:
    """Reads a whole file of rows, without its description; raises `StoreError` if damaged."""
    try:
        with opened(path) as file:
            table = file.read()
        if tuple(table.column_names) != COLUMNS:
            raise ValueError(f"its columns are {table.column_names}")
        if json.loads((table.schema.metadata or {})[b"nicegnn"])["kind"] != kind:
            raise ValueError(f"it holds no {kind}")
    except (arrow().ArrowException, OSError, ValueError, KeyError, TypeError) as error:
        raise damaged(path, error) from error
    return table.replace_schema_metadata(None)


def with_sorted_words(table: pa.Table) -> pa.Table:
    """Returns rows whose words are known in one order, because pandas sorts groups by it."""
    pa = arrow()
    table = table.unify_dictionaries().combine_chunks()
    for name in WORDS if table.num_rows else ():
        column = table[name].chunk(0)
        code = torch.from_numpy(column.indices.to_numpy().copy()).long()
        words = column.dictionary.to_pylist()
        used = torch.bincount(code, minlength=len(words)) > 0
        known = sorted(word for word, is_used in zip(words, used.tolist(), strict=True) if is_used)
        if words != known:
            places = {word: place for place, word in enumerate(known)}
            place = torch.tensor([places.get(word, -1) for word in words])
            indices = pa.array(place[code].int().numpy())
            column = pa.DictionaryArray.from_arrays(indices, pa.array(known, pa.string()))
            table = table.set_column(COLUMNS.index(name), name, column)
    return table


def empty_table() -> pa.Table:
    """Returns rows of no cell."""
    pa = arrow()
    kinds = {"stand_in": pa.bool_(), "level": pa.float64(), "seed": pa.int64()}
    kinds |= {"graph": pa.int32(), "value": pa.float32()}
    words = pa.dictionary(pa.int32(), pa.string())
    return pa.schema([(name, kinds.get(name, words)) for name in COLUMNS]).empty_table()


def arrow() -> Any:
    """Returns pyarrow, or says how to install it."""
    try:
        import_module("pandas")
        return import_module("pyarrow")
    except ImportError as error:
        raise ConfigError("Rows need pandas and pyarrow: pip install 'nicegnn[bench]'.") from error


def opened(path: Path) -> Any:
    parquet = import_module("pyarrow.parquet")
    return parquet.ParquetFile(path, read_dictionary=list(WORDS), page_checksum_verification=True)


def describe(path: Path, kind: str) -> dict[str, Any]:
    """Returns what a file of rows says about itself, without reading the rows."""
    try:
        with opened(path) as file:
            metadata = file.metadata.metadata
            found: dict[str, Any] = json.loads(metadata[b"nicegnn"])
            found["num_rows"] = file.metadata.num_rows
            if kind == PACKED_KIND:
                found["cells"] = _unsqueeze(metadata[b"cells"])
        if found["kind"] != kind:
            raise ValueError(f"it holds no {kind}")
    except (arrow().ArrowException, OSError, ValueError, KeyError, TypeError, zlib.error) as error:
        raise damaged(path, error) from error
    return found


def squeeze(content: Any) -> str:
    """Returns plain values as short text; cells describe themselves in nearly the same words.

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
    advice = (
        " Restore it (git checkout restores a committed one), or delete it and run the same "
        "command again."
        if path.name == "packed.parquet"
        else ""
    )
    return StoreError(f"{path} is damaged ({reason}).{advice}")


def listed(values: Any) -> list[Any]:
    return [values] if isinstance(values, str | float | int) else list(values)
