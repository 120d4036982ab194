"""Molecules from files: one record after another, each with a number and an id that stay the same.

Known files are ``.csv`` and ``.tsv`` (with a header or without), ``.smi`` and ``.txt`` (a SMILES
and a name per line), ``.sdf``, ``.mol``, ``.xlsx`` and ``.parquet``; text files may end in ``.gz``.
An InChI may stand where a SMILES may. Only one record is in memory at a time.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any

from nicegnn.errors import ConfigError, NicegnnError
from nicegnn.molecule.smiles import parse_smiles, require, require_rdkit

#: Endings of files that can be read.
KINDS = (".csv", ".tsv", ".smi", ".txt", ".sdf", ".mol", ".xlsx", ".parquet")
_BINARY = (".xlsx", ".parquet")  # these are packed already
#: Column names that hold SMILES, in lower case, the best first.
SMILES_COLUMNS = (
    *("smiles", "canonical_smiles", "isomeric_smiles", "smi", "structure", "mol", "inchi"),
)
ID_COLUMNS = ("id", "name")  # column names that hold names of molecules, in lower case
_SMILES, _NAME = "smiles", "name"  # columns of files without a header
_PROBLEM = "\0"  # key of the reason why there is no SMILES; no column has this name
Cells = dict[str, str]


class InputError(ConfigError):
    """A file of molecules is missing, empty, or lacks a column."""


@dataclass(frozen=True)
class Record:
    """One molecule of a file."""

    row: int  # 1 for the first molecule of the file
    id: str  # of the id column, else the row
    smiles: str
    values: Mapping[str, str]  # other columns of the file
    problem: str = ""  # why there is no SMILES


class TypedSmiles:
    """SMILES that were typed, as the records of a file are."""

    smiles_column, id_column = _SMILES, ""
    values: tuple[str, ...] = ()  # other columns

    def __init__(self, smiles: Sequence[str]) -> None:
        # bytes of the terminal that are no text arrive as lone surrogates, which no file can hold
        self.smiles = tuple(one.encode("utf-8", "replace").decode() for one in smiles)

    def __iter__(self) -> Iterator[Record]:
        for row, smiles in enumerate(self.smiles, start=1):
            problem = "" if smiles.strip() else "The SMILES is empty. Type one, such as CCO."
            yield read_inchi(Record(row, str(row), smiles.strip(), {}, problem))

    def count(self) -> int:
        """Returns the number of records."""
        return len(self.smiles)

    def chunks(self, size: int) -> Iterator[tuple[Record, ...]]:
        """Yields the records in groups of `size`, which are the same in every reading."""
        waiting = iter(self)
        while group := tuple(islice(waiting, size)):
            yield group

    def digest(self) -> str:
        """Returns the SHA-256 of the input."""
        return hashlib.sha256("\n".join(self.smiles).encode()).hexdigest()


class Reader(TypedSmiles):
    """Streams the records of a file; it can be read any number of times.

    Args:
        smiles_column: where the SMILES are; by default the first of `SMILES_COLUMNS`.
        id_column: names of the molecules; by default the first of `ID_COLUMNS`, else the row.
    """

    def __init__(self, path: str | Path, *, smiles_column: str = "", id_column: str = "") -> None:
        self.path, self.kind = Path(path), file_kind(path)
        if not self.path.is_file():
            what = "is a folder" if self.path.is_dir() else "does not exist"
            raise InputError(f"{self.path} {what}. Name a file that ends in {', '.join(KINDS)}.")
        with _readable(self.path):
            self.columns = self._header()
        if not self.columns:
            raise InputError(f"{self.path} is empty. It must hold one molecule or more.")
        single = [name for name in self.columns if name and self.columns.count(name) == 1]
        by_name = {name.strip().lower(): name for name in reversed(self.columns)}
        usual = next((by_name[name] for name in SMILES_COLUMNS if name in by_name), "")
        if not smiles_column and not usual:
            raise InputError(
                f"{self.path} must have a column of SMILES, named {_listed(SMILES_COLUMNS[:3])} or "
                f"so (got {_listed(self.columns)}). Name it with --smiles-column."
            )
        self.smiles_column = self._checked(smiles_column or usual)
        names = (by_name[name] for name in ID_COLUMNS if by_name.get(name) in single)
        self.id_column = self._checked(id_column) if id_column else next(names, "")
        own = (self.smiles_column, self.id_column)
        self.values = tuple(name for name in single if name not in own)

    def __iter__(self) -> Iterator[Record]:
        for row, cells in enumerate(self._rows(), start=1):
            smiles = cells.get(self.smiles_column, "").strip()
            name = cells.get(self.id_column, "").strip() if self.id_column else ""
            problem = cells.get(_PROBLEM, "")
            if not smiles and not problem:
                problem = f"The cell of column {self.smiles_column!r} is empty."
            values = {key: cells.get(key, "").strip() for key in self.values}
            yield read_inchi(Record(row, name or str(row), smiles, values, problem))

    def count(self) -> int:
        return sum(1 for _ in self._rows())

    def digest(self) -> str:
        with self.path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    def check_columns(self, names: Sequence[str]) -> None:
        """Raises unless these are columns beside those of SMILES and names."""
        for name in names:
            if self._checked(name) not in self.values:
                raise InputError(
                    f"Column {name!r} of {self.path} must be another than that of SMILES or names."
                )

    def _rows(self) -> Iterator[Cells]:
        with _readable(self.path):
            yield from _ROWS.get(self.kind, _table_rows)(self.path)

    def _header(self) -> list[str]:
        if self.kind == ".parquet":
            return [str(name) for name in _parquet(self.path).schema_arrow.names]
        if self.kind not in _ROWS:
            return next(_lines(self.path), [])
        names = (key for cells in islice(self._rows(), 100) for key in cells if key != _PROBLEM)
        return list(dict.fromkeys(names))

    def _checked(self, name: str) -> str:
        if self.columns.count(name) == 1:
            return name
        if name in self.columns:
            said = f"must have one column {name!r} (got several). Rename them."
        else:
            said = f"has no column {name!r}; it has {_listed(self.columns)}. Name one of these."
        raise InputError(f"{self.path} {said}")


def read_inchi(record: Record) -> Record:
    """Returns the record with a SMILES instead of an InChI; others stay as they are."""
    if not record.smiles.startswith("InChI="):
        return record
    chem = require_rdkit()
    with require_rdkit("rdkit.rdBase").BlockLogs():
        mol = chem.MolFromInchi(record.smiles)
    if mol is None:
        said = f"RDKit cannot read the InChI {record.smiles[:200]!r}. Correct it."
        return replace(record, problem=said)
    return replace(record, smiles=chem.MolToSmiles(mol))


def file_kind(path: str | Path) -> str:
    """Returns the ending of a file of molecules, without ``.gz``, in lower case.

    >>> file_kind("screen.CSV.gz")
    '.csv'
    """
    name = Path(path).name.lower().removesuffix(".gz")
    kind = next((kind for kind in KINDS if name.endswith(kind)), None)
    if kind is None or (name != Path(path).name.lower() and kind in _BINARY):
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
    except (NicegnnError, ImportError, MemoryError):
        raise
    except Exception as error:  # whatever a reader makes of a file that is none of its kind
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InputError(f"{path} cannot be read ({reason}). Write it again.") from error


def _text(path: Path) -> IO[str]:
    """Opens a text file of UTF-8 or, with a mark at its start, UTF-16.

    Bytes that are neither become question marks; a file with zeros among its letters is refused.
    """
    opened = gzip.open if path.name.lower().endswith(".gz") else open
    with opened(path, "rb") as file:
        start = file.read(200)
    encoding = "utf-16" if start[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE) else "utf-8-sig"
    if encoding != "utf-16" and b"\0" in start:
        raise InputError(f"{path} must be text in UTF-8 (got bytes that are zero). Convert it.")
    return opened(path, "rt", encoding=encoding, errors="replace", newline="")


def _table_rows(path: Path) -> Iterator[Cells]:
    lines = _lines(path)
    header = next(lines, [])
    for line in lines:
        if any(line):
            yield dict(zip(header, line, strict=False))


def _lines(path: Path) -> Iterator[list[str]]:
    """Yields names of columns, then the cells of each line.

    Where one place of the first two lines holds a SMILES, there are no names; they are made.
    """
    lines = _sheet(path) if path.suffix.lower() == ".xlsx" else _cells(path)
    first = next(lines, [])
    second = next(lines, first)
    headings = {cell.strip().lower() for cell in first} & {*SMILES_COLUMNS}
    pairs = () if headings else enumerate(zip(first, second, strict=False))
    place = next((place for place, cells in pairs if all(map(_is_molecule, cells))), None)
    if place is not None:
        names = [f"column {number}" for number in range(1, len(first) + 1)]
        yield [*names[:place], _SMILES, *names[place + 1 :]]
    yield from chain([first], () if second is first else [second], lines)


def _is_molecule(cell: str) -> bool:
    """Returns whether a cell holds a SMILES or an InChI, and not a word or a number."""
    record = read_inchi(Record(0, "", cell.strip()[:1000], {}))
    try:
        return not record.problem and parse_smiles(record.smiles).GetNumAtoms() > 0
    except (NicegnnError, ImportError):
        return False


def _cells(path: Path) -> Iterator[list[str]]:
    """Yields the cells of each line of a text; its first line tells what stands between them."""
    csv.field_size_limit(1 << 30)
    with _text(path) as file:
        header, begin = file.readline(), 1
        between = "\t" if file_kind(path) == ".tsv" else max(",;\t", key=header.count)
        lines = csv.reader(chain([header], file), delimiter=between, strict=True)
        try:
            for line in lines:
                yield line
                begin = lines.line_num + 1
        except csv.Error as error:
            raise csv.Error(
                f"line {begin}: {error}; does a quote stand there that is not closed?"
            ) from error


def _sheet(path: Path) -> Iterator[list[str]]:
    """Yields the lines of the first sheet of a spreadsheet."""
    book = require("openpyxl", "spreadsheets").load_workbook(path, read_only=True, data_only=True)
    for line in book.worksheets[0].iter_rows(values_only=True):
        yield ["" if cell is None else str(cell) for cell in line]
    book.close()


def _smi_rows(path: Path) -> Iterator[Cells]:
    with _text(path) as file:
        for number, line in enumerate(file):
            smiles, *name = line.strip().split(maxsplit=1)[:2] or [""]
            is_header = number == 0 and smiles.lower() in SMILES_COLUMNS
            if smiles and not is_header and not smiles.startswith("#"):
                yield {_SMILES: smiles, _NAME: name[0] if name else ""}


def _sdf_rows(path: Path) -> Iterator[Cells]:
    chem, is_packed = require_rdkit(), path.name.lower().endswith(".gz")
    with (
        gzip.open(path) if is_packed else path.open("rb") as file,
        require_rdkit("rdkit.rdBase").BlockLogs(),
    ):
        for mol in chem.ForwardSDMolSupplier(file):
            if mol is None:
                yield {_SMILES: "", _NAME: "", _PROBLEM: "RDKit cannot read this entry."}
                continue
            fields = {key: str(mol.GetProp(key)) for key in mol.GetPropNames()}
            title = mol.GetProp("_Name") if mol.HasProp("_Name") else ""
            name = title or (path.stem if path.suffix == ".mol" else "")
            yield {**fields, _SMILES: chem.MolToSmiles(mol), _NAME: name}


def _parquet(path: Path) -> Any:
    return require("pyarrow.parquet", "tables").ParquetFile(path)


def _parquet_rows(path: Path) -> Iterator[Cells]:
    for batch in _parquet(path).iter_batches(batch_size=1024):
        for cells in batch.to_pylist():
            yield {key: "" if value is None else str(value) for key, value in cells.items()}


#: Readers of files that are no tables with lines of cells.
_ROWS: dict[str, Callable[[Path], Iterator[Cells]]] = {
    **dict.fromkeys((".smi", ".txt"), _smi_rows),
    **dict.fromkeys((".sdf", ".mol"), _sdf_rows),
    ".parquet": _parquet_rows,
}
