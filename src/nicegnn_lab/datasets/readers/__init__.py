"""Readers, one file per form of tables; here their records and csv tables.

A reader is a function of paths by role. It returns the rows of its main table, and a function that
makes a `Record` of a row and its number, or raises `ValueError`; the registry names it.
"""

import csv
import gzip
import io
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from nicegnn.molecule.smiles import Bond
from nicegnn_lab.datasets.data_files import DamagedFileError
from nicegnn_lab.datasets.rules import MoleculeTruth

Files = Mapping[str, Path]  # by role
Cells = dict[str, str]  # one row of a csv table


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


Reading = tuple[list[Cells], Callable[[int, Cells], Record]]


def read_table(path: Path, columns: Sequence[str]) -> list[Cells]:
    """Returns the rows of a csv file, plain or gzipped.

    Raises `DamagedFileError` if it is no whole table, or a column is missing.
    """
    rows: list[Cells] = []
    try:
        with path.open("rb") as raw:
            content = gzip.GzipFile(fileobj=raw) if path.suffix == ".gz" else raw
            reader = csv.DictReader(io.TextIOWrapper(content, encoding="utf-8", newline=""))
            header = reader.fieldnames or ()
            missing = [column for column in columns if column not in header]
            if missing:
                raise DamagedFileError(
                    f"{path} must have the columns {', '.join(columns)} (got "
                    f"{', '.join(header) or 'none'}; {', '.join(missing)} missing). Check that it "
                    "is the right file."
                )
            for row in reader:
                if None in row.values() or None in row:
                    raise ValueError("a line with too few or too many cells")
                rows.append(row)
    except (EOFError, OSError, zlib.error, ValueError, csv.Error) as error:
        raise DamagedFileError(
            f"{path} must be a complete csv table (got {len(rows)} rows, then "
            f"{type(error).__name__}: {error}). Fetch or copy the file again."
        ) from error
    return rows


def shuffled(number: int, seed: int) -> list[int]:
    """Returns numbers below another one in random order."""
    generator = torch.Generator().manual_seed(seed)
    order: list[int] = torch.randperm(number, generator=generator).tolist()
    return order
