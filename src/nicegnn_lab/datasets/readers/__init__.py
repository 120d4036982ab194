"""Readers, one file per layout; here their results, csv tables and worker processes.

A reader is a function that takes paths by role and returns a `FileContent`; the registry names it.
"""

from __future__ import annotations

import csv
import gzip
import io
import multiprocessing
import os
import sys
import threading
import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from nicegnn.molecule.smiles import Bond
from nicegnn_lab.datasets.data_files import DamagedFileError
from nicegnn_lab.datasets.rules import MoleculeTruth

Files = Mapping[str, Path]  # by role
Cells = dict[str, str]  # one row of a csv table

T = TypeVar("T")
R = TypeVar("R")

_CHUNK = 200  # rows handed to a process at a time
_MIN_ROWS = 2_000  # below this a second process saves no time


@dataclass(frozen=True)
class Record:
    """One molecule of a data file: atoms and bonds as tables, and its truth in every task."""

    row: int  # position in the source, from 0
    smiles: str  # empty where the source has none
    atoms: Sequence[str]  # element symbols
    bonds: Sequence[Bond]
    tasks: Mapping[str, MoleculeTruth]
    splits: Sequence[str] = ()  # "train", "valid" or "test" in each published split
    is_kept: bool = True  # whether the paper's selection has it
    remark: str = ""  # warning about a row that is used


@dataclass(frozen=True)
class Rejected:
    """A row that could not be turned into a graph."""

    row: int
    reason: str
    smiles: str = ""


@dataclass(frozen=True)
class FileContent:
    """The molecules of one or more files."""

    num_rows: int
    records: Callable[[], Iterator[Record | Rejected]]  # starts reading; one item per row
    damage: Sequence[str] = ()  # errors in the files; rows before them are still read


def read_table(path: Path, columns: Sequence[str]) -> tuple[list[Cells], list[str]]:
    """Returns the rows of a csv file, plain or gzipped, and the error that ended it too early.

    Raises `DamagedFileError` if the first row cannot be read, or a column is missing.
    """
    rows: list[Cells] = []

    def damage(reason: str) -> str:
        return (
            f"{path} must be a complete csv table (got {len(rows)} rows, then {reason}). Fetch or "
            "copy the file again."
        )

    try:
        with path.open("rb") as raw:
            content = gzip.GzipFile(fileobj=raw) if path.suffix == ".gz" else raw
            reader = csv.DictReader(io.TextIOWrapper(content, encoding="utf-8", newline=""))
            found = reader.fieldnames or ()
            missing = [column for column in columns if column not in found]
            if missing:
                raise DamagedFileError(
                    f"{path} must have the columns {', '.join(columns)} (got "
                    f"{', '.join(found) or 'none'}; {', '.join(missing)} missing). Check that it "
                    "is the right file."
                )
            for row in reader:
                if None in row.values() or None in row:
                    return rows, [damage("a line with too few or too many cells")]
                rows.append(row)
    except (EOFError, OSError, zlib.error, UnicodeDecodeError, csv.Error) as error:
        message = damage(f"{type(error).__name__}: {error}")
        if not rows:
            raise DamagedFileError(message) from error
        return rows, [message]
    return rows, []


def ordered_map(
    function: Callable[[T], R], items: Sequence[T], workers: int | None = None
) -> Iterator[R]:
    """Returns ``map(function, items)``, computed by several processes for many items.

    Parsing molecules holds the GIL, so threads would not help. Processes are forked, because a
    spawned one would import the caller's script and torch again; they start before this function
    returns, and do not use torch. If forking is not safe (other threads run, or the system is not
    Linux), this process does all work. By default, 2,000 items or more get one process per core.
    """
    is_safe = sys.platform == "linux" and threading.active_count() == 1
    if is_safe and workers is None:
        workers = min(len(os.sched_getaffinity(0)), 8) if len(items) >= _MIN_ROWS else 1
    if not is_safe or not workers or workers == 1:
        return map(function, items)
    pool = ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("fork"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # idle threads of torch; see above
        results = pool.map(function, items, chunksize=_CHUNK)

    def closing() -> Iterator[R]:
        try:
            yield from results
        finally:
            pool.shutdown(cancel_futures=True)

    return closing()
