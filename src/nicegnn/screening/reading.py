"""Molecules from files as a stream of records, each with a number and an id that stay the same."""

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
from nicegnn.molecule.smiles import require, require_rdkit

#: Usual names of columns with SMILES and with names of molecules, in lower case, the best first.
SMILES_NAMES = "smiles", "canonical_smiles", "isomeric_smiles", "smi", "structure", "mol", "inchi"
ID_NAMES = "id", "name"
_SMILES, _NAME = "smiles", "name"  # columns of files that name none


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
    nothing = "The SMILES is empty. Type one, such as CCO."

    def __init__(self, smiles: Sequence[str]) -> None:
        # bytes of the terminal that are no text arrive as lone surrogates, which no file can hold
        self.smiles = tuple(one.encode("utf-8", "replace").decode() for one in smiles)

    def __iter__(self) -> Iterator[Record]:
        for row, cells in enumerate(self.rows(), start=1):
            smiles, name = (cells.get(k, "").strip() for k in (self.smiles_column, self.id_column))
            values = {key: cells.get(key, "").strip() for key in self.values}
            problem = "" if smiles else self.nothing
            yield read_inchi(Record(row, name or str(row), smiles, values, problem))

    def rows(self) -> Iterator[Mapping[str, str]]:
        """Yields the cells of each record, by column."""
        return ({_SMILES: smiles} for smiles in self.smiles)

    def count(self) -> int:
        return sum(1 for _ in self.rows())

    def chunks(self, size: int) -> Iterator[tuple[Record, ...]]:
        """Returns the records in groups of `size`, which are the same in every reading."""
        waiting = iter(self)
        return iter(lambda: tuple(islice(waiting, size)), ())

    def digest(self) -> str:
        return hashlib.sha256("\n".join(self.smiles).encode()).hexdigest()


class Reader(TypedSmiles):
    """Streams the records of a file; columns are by default the first of the usual names."""

    def __init__(self, path: str | Path, *, smiles_column: str = "", id_column: str = "") -> None:
        self.path, self._lines = Path(path), _READERS[file_kind(path)]
        if not self.path.is_file():
            raise ConfigError(f"{self.path} does not exist, or is a folder. Name another file.")
        with _readable(self.path):
            self.columns = next(self._lines(self.path), [])
        if not self.columns:
            raise ConfigError(f"{self.path} is empty. It must hold one molecule or more.")
        single = [name for name in self.columns if name and self.columns.count(name) == 1]
        by_name = {name.strip().lower(): name for name in reversed(self.columns)}
        usual = next((by_name[name] for name in SMILES_NAMES if name in by_name), "")
        if not smiles_column and not usual:
            raise ConfigError(
                f"{self.path} must have a column of SMILES (got {listed(self.columns)}). Name it "
                "with --smiles-column; above a first line of cells, write names of columns."
            )
        names = (by_name[name] for name in ID_NAMES if by_name.get(name) in single)
        self.smiles_column, self.id_column = smiles_column or usual, id_column or next(names, "")
        own = (self.smiles_column, self.id_column)
        for name in filter(None, own):
            if name not in self.columns:
                has = f"has no column {name!r}; it has {listed(self.columns)}. Name one of these."
                raise ConfigError(f"{self.path} {has}")
            if name not in single:
                raise ConfigError(f"{self.path} must have one column {name!r} (got several).")
        self.values = tuple(name for name in single if name not in own)
        self.nothing = f"The cell of column {self.smiles_column!r} is empty."
        if self._lines is _structures:
            self.nothing = "RDKit cannot read this entry, or it has no atoms."

    def rows(self) -> Iterator[Mapping[str, str]]:
        with _readable(self.path):
            lines = self._lines(self.path)
            header = next(lines)
            for line in lines:
                yield dict(zip(header, line, strict=False))

    def digest(self) -> str:
        with self.path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()


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
    """Returns the ending of a file of molecules, without ``.gz``, in lower case."""
    kind = Path(Path(path).name.lower().removesuffix(".gz")).suffix
    if kind not in KINDS:
        raise ConfigError(f"{path} must end in {', '.join(KINDS)} (got {Path(path).suffix!r}).")
    return kind


def is_file_name(word: str) -> bool:
    """Returns whether a word is meant as a file of molecules, not as a SMILES."""
    is_named = word.lower().removesuffix(".gz").endswith(KINDS)
    return is_named or os.path.exists(word)  # a SMILES may be too long for `Path.exists`


def listed(names: Sequence[str]) -> str:
    """Returns names of columns in words, the first of very many."""
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
        raise ConfigError(f"{path} cannot be read ({reason}). Write it again.") from error


# Readers yield the names of columns, then the cells of each line; nothing at all of an empty file.
def _open(path: Path, mode: str = "rb", **words: Any) -> IO[Any]:
    opened: Any = gzip.open if path.name.lower().endswith(".gz") else open
    return opened(path, mode, **words)


def _text(path: Path) -> IO[str]:
    """Opens a text of UTF-8 or, with a mark at its start, UTF-16; other bytes become questions."""
    with _open(path) as file:
        start = file.read(200)
    encoding = "utf-16" if start[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE) else "utf-8-sig"
    if encoding != "utf-16" and b"\0" in start:
        raise ConfigError(f"{path} must be text in UTF-8 (got bytes that are zero). Convert it.")
    return _open(path, "rt", encoding=encoding, errors="replace", newline="")


def _cells(path: Path) -> Iterator[list[str]]:
    """Reads a text whose first line tells what stands between cells."""
    csv.field_size_limit(1 << 30)
    with _text(path) as file:
        header, begin = file.readline(), 1
        between = "\t" if file_kind(path) == ".tsv" else max(",;\t", key=header.count)
        lines = csv.reader(chain([header], file), delimiter=between, strict=True)
        try:
            for line in lines:
                if any(line):
                    yield line
                begin = lines.line_num + 1
        except csv.Error as error:
            raise csv.Error(f"line {begin}: {error}; does a quote stand there alone?") from error


def _names(path: Path) -> Iterator[list[str]]:
    """Reads lines of a SMILES and a name; remarks begin with ``#``."""
    with _text(path) as file:
        lines = (line for line in map(str.strip, file) if line and line[0] != "#")
        for number, line in enumerate(lines):
            smiles, *name = line.split(maxsplit=1)
            if number == 0:
                yield [_SMILES, _NAME]
            if number > 0 or smiles.lower() not in SMILES_NAMES:
                yield [smiles, *name]


def _structures(path: Path) -> Iterator[list[str]]:
    """Reads structures, whose columns are the fields of the first hundred; a title is a name."""
    chem = require_rdkit()
    with _open(path) as file, require_rdkit("rdkit.rdBase").BlockLogs():
        untitled = path.stem if file_kind(path) == ".mol" else ""
        entries = (_fields(mol, untitled) for mol in chem.ForwardSDMolSupplier(file))
        first = [*islice(entries, 100)]
        columns = list(dict.fromkeys(name for entry in first for name in entry))
        yield columns
        for entry in chain(first, entries):
            yield [entry.get(name, "") for name in columns]


def _fields(mol: Any, untitled: str) -> dict[str, str]:
    if mol is None:
        return {_SMILES: "", _NAME: untitled}
    own = {key: str(mol.GetProp(key)) for key in mol.GetPropNames()}
    title = mol.GetProp("_Name") if mol.HasProp("_Name") else ""
    return {**own, _SMILES: require_rdkit().MolToSmiles(mol), _NAME: title or untitled}


def _sheet(path: Path) -> Iterator[list[str]]:
    """Reads the first sheet of a spreadsheet."""
    book = require("openpyxl", "spreadsheets").load_workbook(path, read_only=True, data_only=True)
    yield from filter(any, map(_words, book.worksheets[0].iter_rows(values_only=True)))
    book.close()


def _parquet(path: Path) -> Iterator[list[str]]:
    file = require("pyarrow.parquet", "tables").ParquetFile(path)
    yield list(file.schema_arrow.names)
    for batch in file.iter_batches(batch_size=1024):
        yield from map(_words, zip(*(column.to_pylist() for column in batch.columns), strict=True))


def _words(line: Sequence[Any]) -> list[str]:
    return ["" if cell is None else str(cell) for cell in line]


_READERS: dict[str, Callable[[Path], Iterator[list[str]]]] = {
    **dict.fromkeys((".csv", ".tsv"), _cells),
    **dict.fromkeys((".smi", ".txt"), _names),
    **dict.fromkeys((".sdf", ".mol"), _structures),
    ".xlsx": _sheet,
    ".parquet": _parquet,
}
KINDS = tuple(_READERS)  # endings of files that can be read
