"""Tables as files: shards that are whole or not there, and tables joined from shards.

A table is a dictionary of equally long columns. A shard is a folder with one file per table. It is
written under another name and renamed when it is complete, so a run that was killed goes on with
the first missing shard, and several processes can write shards side by side.
"""

from __future__ import annotations

import csv
import io
import os
import shutil
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Literal

from nicegnn.errors import StoreError
from nicegnn.store import write_whole

Table = dict[str, list[Any]]
Format = Literal["csv", "parquet"]
Schema = Mapping[str, type]  # column to int, float or str; in Parquet also to lists of numbers


def rows_of(table: Mapping[str, Sequence[Any]]) -> Iterator[dict[str, Any]]:
    """Yields the rows of a table."""
    for values in zip(*table.values(), strict=True):
        yield dict(zip(table, values, strict=True))


def write_table(path: Path, tables: Iterable[Table], schema: Schema) -> int:
    """Writes tables one below the other, whole or not at all; returns the number of rows.

    The ending of the file says the format. Floats have 7 digits in CSV.
    """
    count = 0

    def text(part: Path) -> None:
        nonlocal count
        with part.open("w", encoding="utf-8", newline="") as file:
            count = _write_text(file, tables, schema)

    def parquet(part: Path) -> None:
        nonlocal count
        arrow, files = _arrow()
        kinds = {int: arrow.int64(), float: arrow.float64(), str: arrow.string()}
        kinds |= {list[int]: arrow.list_(arrow.int32()), list[float]: arrow.list_(arrow.float32())}
        fields = arrow.schema([(name, kinds[kind]) for name, kind in schema.items()])
        words = [name for name, kind in schema.items() if kind is str]  # these repeat
        with files.ParquetWriter(part, fields, compression="zstd", use_dictionary=words) as writer:
            for table in tables:
                own = {name: table[name] for name in schema}
                writer.write_table(arrow.table(own, schema=fields))
                count += len(next(iter(own.values())))
        with part.open("rb+") as file:
            os.fsync(file.fileno())  # else its name could outlive its content in a power cut

    write_whole(path, parquet if path.suffix == ".parquet" else text)
    return count


def csv_text(table: Table, schema: Schema) -> str:
    """Returns a table as the text of a CSV file, as `write_table` writes it.

    >>> csv_text({"row": [1], "score": [0.5]}, {"row": int, "score": float})
    'row,score\\n1,0.5\\n'
    """
    file = io.StringIO()
    _write_text(file, [table], schema)
    return file.getvalue()


def _write_text(file: IO[str], tables: Iterable[Table], schema: Schema) -> int:
    writer, count = csv.writer(file, lineterminator="\n"), 0
    writer.writerow(schema)
    for table in tables:
        rows = [*zip(*(table[name] for name in schema), strict=True)]
        writer.writerows([_cell(value) for value in row] for row in rows)
        count += len(rows)
    return count


def read_table(
    path: Path,
    schema: Schema | None = None,
    size: int = 4096,
    *,
    columns: Sequence[str] | None = None,
) -> Iterator[Table]:
    """Yields a table of a file in parts of at most `size` rows; without schema all is text.

    Of a Parquet file only `columns` are read, by default all.
    """
    if path.suffix == ".parquet":
        _, files = _arrow()
        with files.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=size, columns=columns):
                yield batch.to_pydict()
        return
    with path.open(encoding="utf-8", newline="") as file:
        yield from _read_text(file, schema, size)


def _read_text(file: IO[str], schema: Schema | None, size: int) -> Iterator[Table]:
    reader = csv.reader(file)
    header = next(reader, [])
    kinds = [(schema or {}).get(name, str) for name in header]
    rows: list[list[Any]] = []

    def as_table() -> Table:
        columns = zip(*rows, strict=True)
        return {name: list(column) for name, column in zip(header, columns, strict=True)}

    for line in reader:
        rows.append([_value(kind, cell) for kind, cell in zip(kinds, line, strict=True)])
        if len(rows) == size:
            yield as_table()
            rows = []
    if rows:
        yield as_table()


def _cell(value: Any) -> Any:
    if isinstance(value, float):
        return "" if value != value else f"{value:.7g}"
    return value


def _value(kind: type, cell: str) -> Any:
    if kind is float:
        return float(cell) if cell else float("nan")
    return kind(cell)


def num_rows(path: Path) -> int:
    """Returns the number of rows of a Parquet file; -1 if it is missing or not whole."""
    arrow, files = _arrow()
    try:
        return int(files.read_metadata(path).num_rows)
    except (OSError, arrow.ArrowException):
        return -1


def _arrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise StoreError(
            "pyarrow is needed for Parquet files. Install it with `pip install 'nicegnn[tables]'`, "
            "or use --format csv."
        ) from error
    return pyarrow, parquet


class ShardFolder:
    """Shards of one run, by number."""

    def __init__(self, folder: Path, schemas: Mapping[str, Schema], format: Format) -> None:
        self.folder, self.schemas, self.format = folder, schemas, format

    def has(self, number: int) -> bool:
        """Whether a shard is complete."""
        return self._path(number).is_dir()

    def write(self, number: int, tables: Mapping[str, Table]) -> None:
        """Writes one shard; it appears when all its tables are there."""
        part = self.folder / f".{number:06d}.{uuid.uuid4().hex}.part"
        try:
            for name, schema in self.schemas.items():
                write_table(part / f"{name}.{self.format}", [tables[name]], schema)
            if not self.has(number):
                os.replace(part, self._path(number))
        finally:
            shutil.rmtree(part, ignore_errors=True)

    def count(self, name: str, numbers: Iterable[int]) -> int:
        """Returns the rows of one table in the given shards."""
        return sum(len(next(iter(t.values()))) for n in numbers for t in self._tables(name, n))

    def join(self, name: str, num_shards: int, path: Path) -> int:
        """Writes one table of all shards into one file; returns the number of rows."""
        tables = (table for number in range(num_shards) for table in self._tables(name, number))
        return write_table(path, tables, self.schemas[name])

    def remove(self) -> None:
        """Deletes all shards."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _tables(self, name: str, number: int) -> Iterator[Table]:
        path = self._path(number) / f"{name}.{self.format}"
        if not path.is_file():
            raise StoreError(f"{path} is missing. Delete the folder and run the command again.")
        return read_table(path, self.schemas[name])

    def _path(self, number: int) -> Path:
        return self.folder / f"{number:06d}"
