"""Tables as files: Parquet for what is read again, CSV for people and spreadsheets.

A table is a dictionary of equally long columns. A file is written under another name and renamed
when it is whole, so a run that was killed goes on with the first file that is missing.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Literal

from nicegnn.errors import StoreError
from nicegnn.store import whole_file

Table = dict[str, list[Any]]
Format = Literal["csv", "parquet"]
Schema = Mapping[str, type]  # column to int, float or str; in Parquet also to lists of numbers

_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # a spreadsheet runs cells that begin so


def rows_of(table: Mapping[str, Sequence[Any]]) -> Iterator[dict[str, Any]]:
    """Yields the rows of a table."""
    for values in zip(*table.values(), strict=True):
        yield dict(zip(table, values, strict=True))


def write_table(path: Path, tables: Iterable[Table], schema: Schema) -> int:
    """Writes tables one below the other, whole or not at all; returns the number of rows."""
    count = 0
    with table_writer(path, schema) as write:
        for table in tables:
            write(table)
            count += len(next(iter(table.values())))
    return count


@contextmanager
def table_writer(path: Path, schema: Schema) -> Iterator[Callable[[Table], None]]:
    """Yields what writes tables one below the other into a file, which appears at the end.

    The ending of the file says the format. CSV has floats of 7 digits, and text that a spreadsheet
    would run as a formula begins with an apostrophe.
    """
    with whole_file(path) as part:
        if path.suffix != ".parquet":
            with part.open("w", encoding="utf-8", newline="") as text:
                yield _csv_writer(text, schema)
            return
        arrow, files = _arrow()
        kinds = {int: arrow.int64(), float: arrow.float64(), str: arrow.string()}
        kinds |= {list[int]: arrow.list_(arrow.int32()), list[float]: arrow.list_(arrow.float32())}
        fields = arrow.schema([(name, kinds[kind]) for name, kind in schema.items()])
        words = [name for name, kind in schema.items() if kind is str]  # these repeat
        with files.ParquetWriter(part, fields, compression="zstd", use_dictionary=words) as writer:
            yield lambda table: writer.write_table(
                arrow.table({name: table[name] for name in schema}, schema=fields)
            )
        with part.open("rb+") as file:
            os.fsync(file.fileno())  # else its name could outlive its content in a power cut


def _csv_writer(file: IO[str], schema: Schema) -> Callable[[Table], None]:
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(map(safe_cell, schema))

    def write(table: Table) -> None:
        columns = (table[name] for name in schema)
        writer.writerows(map(safe_cell, row) for row in zip(*columns, strict=True))

    return write


def csv_text(table: Table, schema: Schema) -> str:
    """Returns a table as the text of a CSV file, as `write_table` writes it.

    >>> csv_text({"id": ["=1+1"], "score": [0.5]}, {"id": str, "score": float})
    "id,score\\n'=1+1,0.5\\n"
    """
    file = io.StringIO()
    _csv_writer(file, schema)(table)
    return file.getvalue()


def safe_cell(value: Any) -> Any:
    """Returns what a cell holds: floats of 7 digits, no formulas, nothing for nan."""
    if isinstance(value, float):
        return "" if value != value else f"{value:.7g}"
    if isinstance(value, str) and value.startswith(_FORMULA) and not _is_number(value):
        return f"'{value}"
    return value


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def read_table(
    path: Path, size: int = 4096, *, columns: Sequence[str] | None = None
) -> Iterator[Table]:
    """Yields a Parquet table in parts of at most `size` rows; by default with all its columns."""
    with _opened(path) as file:
        for batch in file.iter_batches(batch_size=size, columns=columns):
            yield batch.to_pydict()


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """Opens a Parquet file; says of one that cannot be read which one it is."""
    arrow, files = _arrow()
    try:
        with files.ParquetFile(path) as file:
            yield file
    except (OSError, arrow.ArrowException) as error:
        raise StoreError(
            f"{path} is damaged ({error}). Delete it, and run the command that wrote it again."
        ) from error


def column_names(path: Path) -> list[str]:
    """Returns the names of the columns of a Parquet file."""
    with _opened(path) as file:
        return [str(name) for name in file.schema_arrow.names]


def num_rows(path: Path) -> int:
    """Returns the number of rows of a Parquet file; -1 if it is missing or not whole."""
    try:
        with _opened(path) as file:
            return int(file.metadata.num_rows)
    except StoreError:
        return -1


def _arrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise StoreError(
            "pyarrow is needed to write results to a folder. Install it with `pip install "
            "'nicegnn[tables]'`."
        ) from error
    return pyarrow, parquet
