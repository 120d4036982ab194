"""Molecules from files: one record after another, each with a number and an id that stay the same.

Known files are ``.csv`` and ``.tsv`` (with a header), ``.smi`` (a SMILES and a name per line),
``.sdf`` and ``.parquet``; text files may end in ``.gz``. Only one record is in memory at a time.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, Any

from nicegnn.errors import ConfigError
from nicegnn.molecule.smiles import require_rdkit

#: Endings of files that can be read.
KINDS = (".csv", ".tsv", ".smi", ".sdf", ".parquet")
#: Column names that hold SMILES, in lower case, the best first.
SMILES_COLUMNS = ("smiles", "canonical_smiles", "isomeric_smiles", "smi", "structure", "mol")
_SMILES, _NAME = "smiles", "name"  # columns of files without a header


class InputError(ConfigError):
    """A file of molecules is missing, empty, or lacks a column."""


@dataclass(frozen=True)
class Record:
    """One molecule of a file."""

    row: int  # 1 for the first molecule of the file
    id: str  # of the id column, else the row
    smiles: str
    values: Mapping[str, str]  # other columns that were asked for
    problem: str = ""  # why there is no SMILES


class Reader:
    """Streams the records of a file; it can be read any number of times.

    Args:
        smiles_column: where the SMILES are; by default the first of `SMILES_COLUMNS`.
        id_column: names of the molecules; by default the row, or the name in .smi and .sdf.
        columns: other columns to keep in ``values``.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        smiles_column: str = "",
        id_column: str = "",
        columns: Sequence[str] = (),
    ) -> None:
        self.path, self.kind = Path(path), file_kind(path)
        if not self.path.is_file():
            what = "is a folder" if self.path.is_dir() else "does not exist"
            raise InputError(f"{self.path} {what}. Name a file that ends in {', '.join(KINDS)}.")
        with _readable(self.path):
            self.columns = self._header()
        if not self.columns:
            raise InputError(f"{self.path} is empty. It must have a header and one row or more.")
        self.smiles_column = self._find_smiles(smiles_column)
        default_id = _NAME if self.kind in (".smi", ".sdf") else ""
        self.id_column = id_column or default_id
        self.values = tuple(columns)
        for wanted in (*self.values, *([id_column] if id_column else [])):
            self._check_column(wanted)

    def __iter__(self) -> Iterator[Record]:
        for row, cells in enumerate(_ROWS[self.kind](self.path), start=1):
            name = (cells.get(self.id_column) or "").strip() if self.id_column else ""
            smiles = (cells.get(self.smiles_column) or "").strip()
            problem = cells.get("problem", "") if self.kind == ".sdf" else ""
            if not smiles and not problem:
                problem = f"The cell of column {self.smiles_column!r} is empty."
            values = {key: (cells.get(key) or "").strip() for key in self.values}
            yield Record(row, name or str(row), smiles, values, problem)

    def count(self) -> int:
        """Returns the number of records; the file is read once."""
        return sum(1 for _ in _ROWS[self.kind](self.path))

    def chunks(self, size: int) -> Iterator[tuple[Record, ...]]:
        """Yields the records in groups of `size`, which are the same in every reading."""
        return _groups(self, size)

    def digest(self) -> str:
        """Returns the SHA-256 of the file."""
        with self.path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    def _header(self) -> list[str]:
        if self.kind in (".csv", ".tsv"):
            with _text(self.path) as file:
                return next(_cells(file, self.kind), [])
        if self.kind == ".parquet":
            return [str(name) for name in _parquet(self.path).schema_arrow.names]
        some = [*islice(_ROWS[self.kind](self.path), 100)]
        return list(dict.fromkeys(key for cells in some for key in cells if key != "problem"))

    def _find_smiles(self, asked: str) -> str:
        if asked:
            return self._check_column(asked)
        by_name = {name.strip().lower(): name for name in reversed(self.columns)}
        for name in SMILES_COLUMNS:
            if name in by_name:
                return self._check_column(by_name[name])
        raise InputError(
            f"{self.path} must have a column of SMILES, named {_listed(SMILES_COLUMNS[:3])} or so "
            f"(got {_listed(self.columns)}). Name it with --smiles-column."
        )

    def _check_column(self, name: str) -> str:
        if name not in self.columns:
            raise InputError(
                f"{self.path} has no column {name!r}; it has {_listed(self.columns)}. Name one of "
                "these."
            )
        if self.columns.count(name) > 1:
            raise InputError(
                f"{self.path} must have one column {name!r} (got several). Rename them."
            )
        return name


class TypedSmiles:
    """SMILES that were typed, as the records of a file are."""

    smiles_column = _SMILES

    def __init__(self, smiles: Sequence[str]) -> None:
        self.smiles = tuple(smiles)

    def __iter__(self) -> Iterator[Record]:
        for row, smiles in enumerate(self.smiles, start=1):
            problem = "" if smiles.strip() else "The SMILES is empty. Type one, such as CCO."
            yield Record(row, str(row), smiles.strip(), {}, problem)

    def count(self) -> int:
        return len(self.smiles)

    def chunks(self, size: int) -> Iterator[tuple[Record, ...]]:
        return _groups(self, size)

    def digest(self) -> str:
        return hashlib.sha256("\n".join(self.smiles).encode()).hexdigest()


Molecules = Reader | TypedSmiles


def _groups(records: Iterable[Record], size: int) -> Iterator[tuple[Record, ...]]:
    waiting = iter(records)
    while group := tuple(islice(waiting, size)):
        yield group


def file_kind(path: str | Path) -> str:
    """Returns the ending of a file of molecules, without ``.gz``, in lower case.

    >>> file_kind("screen.CSV.gz")
    '.csv'
    """
    name = Path(path).name.lower().removesuffix(".gz")
    kind = next((kind for kind in KINDS if name.endswith(kind)), None)
    if kind is None or (name != Path(path).name.lower() and kind == ".parquet"):
        raise InputError(f"{path} must end in {', '.join(KINDS)} (got {Path(path).suffix!r}).")
    return kind


def is_file_name(word: str) -> bool:
    """Returns whether a word is meant as a file of molecules, not as a SMILES."""
    is_named = word.lower().removesuffix(".gz").endswith(KINDS)
    return is_named or os.path.exists(word)  # a SMILES may be too long for `Path.exists`


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:20])
    return shown + (f" and {len(names) - 20} more" if len(names) > 20 else "")


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Says of a file that is damaged or cut off which one it is."""
    try:
        yield
    except (OSError, EOFError, zlib.error, csv.Error) as error:
        raise InputError(f"{path} cannot be read ({error}). Write it again.") from error


def _text(path: Path) -> IO[str]:
    """Opens a text file; bytes that are not UTF-8 become question marks."""
    if path.name.lower().endswith(".gz"):
        return gzip.open(path, "rt", encoding="utf-8-sig", errors="replace", newline="")
    return path.open(encoding="utf-8-sig", errors="replace", newline="")


def _cells(file: IO[str], kind: str) -> Iterator[list[str]]:
    """Yields the cells of each line; the header tells what stands between them."""
    header = file.readline()
    between = "\t" if kind == ".tsv" else max(",;\t", key=header.count)
    yield next(csv.reader([header], delimiter=between), [])
    yield from csv.reader(file, delimiter=between)


def _table_rows(path: Path) -> Iterator[dict[str, str]]:
    csv.field_size_limit(1 << 30)
    with _readable(path), _text(path) as file:
        lines = _cells(file, file_kind(path))
        header = next(lines, [])
        for line in lines:
            if line:
                yield dict(zip(header, line, strict=False))


def _smi_rows(path: Path) -> Iterator[dict[str, str]]:
    with _readable(path), _text(path) as file:
        for number, line in enumerate(file):
            smiles, *name = line.strip().split(maxsplit=1)[:2] or [""]
            is_header = number == 0 and smiles.lower() in SMILES_COLUMNS
            if smiles and not is_header and not smiles.startswith("#"):
                yield {_SMILES: smiles, _NAME: name[0] if name else ""}


def _sdf_rows(path: Path) -> Iterator[dict[str, str]]:
    chem = require_rdkit()
    is_packed = path.name.lower().endswith(".gz")
    with (
        _readable(path),
        gzip.open(path) if is_packed else path.open("rb") as file,
        require_rdkit("rdkit.rdBase").BlockLogs(),
    ):
        for mol in chem.ForwardSDMolSupplier(file):
            if mol is None:
                yield {_SMILES: "", _NAME: "", "problem": "RDKit cannot read this entry."}
                continue
            own = {key: str(value) for key, value in mol.GetPropsAsDict().items()}
            title = mol.GetProp("_Name") if mol.HasProp("_Name") else ""
            yield {**own, _SMILES: chem.MolToSmiles(mol), _NAME: title}


def _parquet(path: Path) -> Any:
    try:
        from pyarrow import ArrowException
        from pyarrow.parquet import ParquetFile
    except ImportError as error:
        raise InputError(
            "pyarrow is needed for Parquet files. Install it with `pip install 'nicegnn[tables]'`, "
            "or use CSV."
        ) from error
    try:
        return ParquetFile(path)
    except (ArrowException, OSError) as error:
        raise InputError(f"{path} cannot be read ({error}). Write it again.") from error


def _parquet_rows(path: Path) -> Iterator[dict[str, str]]:
    for batch in _parquet(path).iter_batches(batch_size=1024):
        for cells in batch.to_pylist():
            yield {key: "" if value is None else str(value) for key, value in cells.items()}


_ROWS: dict[str, Callable[[Path], Iterator[dict[str, str]]]] = {
    ".csv": _table_rows,
    ".tsv": _table_rows,
    ".smi": _smi_rows,
    ".sdf": _sdf_rows,
    ".parquet": _parquet_rows,
}
