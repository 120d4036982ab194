"""Text tables: rows of a csv file, plain or gzipped, with named errors for damaged files."""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from nicegnn.datasets.errors import DamagedFileError

Row = dict[str, str]


@dataclass(frozen=True)
class Table:
    """Rows that could be read, and what stopped the reading before the end of the file."""

    rows: list[Row]
    damage: str | None = None


def read_table(path: Path, columns: Sequence[str]) -> Table:
    """Reads a csv file as far as it is sound.

    Raises:
        DamagedFileError: If not even the header can be read, or a column is missing.
    """
    rows: list[Row] = []
    try:
        with path.open("rb") as raw, _decoded(raw, path) as file:
            reader = csv.DictReader(file)
            _check_columns(path, columns, reader.fieldnames or ())
            for row in reader:
                if None in row.values() or None in row:
                    return Table(rows, _damage(path, len(rows), "a line has too few or many cells"))
                rows.append(row)
    except (EOFError, OSError, zlib.error, UnicodeDecodeError, csv.Error) as error:
        message = _damage(path, len(rows), f"{type(error).__name__}: {error}")
        if not rows:
            raise DamagedFileError(message) from error
        return Table(rows, message)
    return Table(rows)


def _decoded(raw: IO[bytes], path: Path) -> io.TextIOWrapper:
    content = gzip.GzipFile(fileobj=raw) if path.suffix == ".gz" else raw
    return io.TextIOWrapper(content, encoding="utf-8", newline="")


def _damage(path: Path, num_rows: int, reason: str) -> str:
    return (
        f"{path}: expected a complete csv table, but reading stopped after {num_rows} rows "
        f"({reason}). Fetch or copy the file again."
    )


def _check_columns(path: Path, columns: Sequence[str], found: Iterable[str]) -> None:
    missing = [column for column in columns if column not in found]
    if missing:
        raise DamagedFileError(
            f"{path}: expected the columns {', '.join(columns)}; {', '.join(missing)} missing "
            f"among {', '.join(found) or 'none at all'}. Check that this is the file it is named "
            "after."
        )
