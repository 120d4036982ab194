"""Readers, one file per layout, and what they share: results, csv tables, work over processes.

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

from nicegnn.datasets.data_files import DamagedFileError
from nicegnn.datasets.rules import MoleculeTruth
from nicegnn.molecule.smiles import Bond

Files = Mapping[str, Path]  # by role
Cells = dict[str, str]  # one row of a csv table

T = TypeVar("T")
R = TypeVar("R")

_CHUNK = 200  # rows handed to a process at a time
_MIN_ROWS = 2_000  # below this a second process does not pay


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
    remark: str = ""  # something odd about a row that is used all the same


@dataclass(frozen=True)
class Rejected:
    """A row that could not be turned into a graph."""

    row: int
    reason: str
    smiles: str = ""


@dataclass(frozen=True)
class FileContent:
    """The molecules of one or more files, read when they are asked for."""

    num_rows: int  # rows to come
    records: Callable[[], Iterator[Record | Rejected]]  # starts the work; one item per row
    damage: Sequence[str] = ()  # what is wrong with the files; rows before it are still read


def read_table(path: Path, columns: Sequence[str]) -> tuple[list[Cells], list[str]]:
    """Returns the rows of a csv file, plain or gzipped, and what ended the reading too early.

    Raises `DamagedFileError` if not even the header can be read, or a column is missing.
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
                    f"{', '.join(found) or 'none'}; {', '.join(missing)} missing). Check that this "
                    "is the file that its name says."
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
    """Returns ``map(function, items)``, computed ahead by several processes where that pays.

    Parsing molecules holds the GIL, so threads would not help. Processes are forked, because a
    spawned one would import the caller's script again and load torch anew; they start before this
    function returns, and never touch torch. Where forking is not safe (other threads run, or
    another system than Linux), all work stays in this process. By default there is one process per
    core for at least 2,000 items, else one.
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
