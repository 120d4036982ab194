"""Rows as tables and files: Parquet for what is read again, CSV for people and spreadsheets.

In a row of a run bond ``k`` joins atoms ``atom_a[k]`` and ``atom_b[k]`` of the SMILES.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nicegnn.errors import StoreError
from nicegnn.graph.case import shared_rank
from nicegnn.molecule.smiles import matched_molecule, require
from nicegnn.screening.fragments import bond_groups
from nicegnn.store import whole_file

Row = dict[str, Any]
Schema = Mapping[str, type]  # column to int, float or str; in Parquet also to lists of numbers

TRUST = ("largest", "share", "chance")  # numbers of `Trust`; nan for methods without one
_WHO: dict[str, type] = {"row": int, "id": str}
_PREDICTED: dict[str, type] = {
    "smiles": str,
    "prediction": str,  # name of the predicted class, or the value
    "probability": float,  # of the predicted class; nan for a value
    "status": str,  # "ok", or observations about the explanation, see `Flag`
    "verdict": str,  # what to do with the explanation
    **dict.fromkeys(TRUST, float),
    "similarity": float,  # to the nearest training molecule of the model; nan if none are known
    "applicability": str,  # "ok", "not known", or why the model may not fit, see `Nearness`
}
#: Columns of the rows of a run; the user's own columns follow.
ROW: dict[str, type] = {
    **_WHO,
    **_PREDICTED,
    "reason": str,  # why there is no explanation; else nothing
    "unit": str,  # of the scores: odds, value, or own
    **dict.fromkeys(("atom_a", "atom_b"), list[int]),  # atoms of each bond
    **dict.fromkeys(("bond_score", "bond_loss", "bond_stderr"), list[float]),
    "bond_rank": list[int],
}
ATOMS: dict[str, type] = dict.fromkeys(("atom_score", "atom_loss", "atom_stderr"), list[float])
#: Of several models together, see `Ensemble`: which output, and how many agree on each sign.
ENSEMBLE: dict[str, type] = {
    "endpoint": str,
    **dict.fromkeys(("bond_agreement", "atom_agreement"), list[float]),
}
_SCORED: dict[str, type] = {
    "score": float,  # share of the odds that is lost without it; or in units of the value
    "rank": int,  # 1 for the best one of the molecule; equal ones share a rank
    "loss": float,  # the same in log-odds
    "stderr": float,  # standard error of the loss
}
#: Columns of tables, before the user's own and those of substructures.
SCHEMAS: dict[str, dict[str, type]] = {
    "molecules": {**_WHO, **_PREDICTED, "num_atoms": int, "num_bonds": int},
    "bonds": {
        **_WHO,
        "bond": int,  # number in the SMILES
        "atom_a": int,
        "atom_b": int,
        "name": str,  # elements and numbers of its atoms
        "type": str,
        "groups": str,  # what a chemist calls the place
        **_SCORED,
    },
    "atoms": {**_WHO, "atom": int, "element": str, **_SCORED},
    "rejects": {**_WHO, "smiles": str, "reason": str},
}
OUTPUTS, NOTES = "\0outputs", "\0notes"  # of a row, not stored; no column has these names
_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # a spreadsheet runs cells that begin so


def own_names(columns: Iterable[str]) -> dict[str, str]:
    """Returns what the user's columns are called in outputs: their names, unless we use them."""
    ours = {*ROW, *ATOMS, *ENSEMBLE}.union(*SCHEMAS.values())
    return {name: f"own {name}" if name.lower() in ours else name for name in columns}


def own_columns(row: Iterable[str]) -> list[str]:
    """Returns the names in a row of a run that are the user's."""
    ours = {*ROW, *ATOMS, *ENSEMBLE, OUTPUTS, NOTES}
    return [name for name in row if name not in ours]


def schemas_for(row: Sequence[str], substructures: Iterable[str]) -> dict[str, dict[str, type]]:
    """Returns `SCHEMAS` of molecules, bonds and atoms for rows with these columns."""
    schemas = {name: {**SCHEMAS[name]} for name in ("molecules", "bonds", "atoms")}
    schemas["molecules"] |= {f"has {name}": int for name in substructures}
    schemas["molecules"] |= dict.fromkeys(own_columns(row), str)
    if "endpoint" in row:
        schemas = {name: {**_WHO, "endpoint": str, **one} for name, one in schemas.items()}
        schemas["bonds"]["agreement"] = schemas["atoms"]["agreement"] = float  # of models, in sign
    return schemas


def molecule_of(row: Row) -> Any:
    """Returns the molecule whose atoms and bonds a row numbers; hydrogens may be among them."""
    return matched_molecule(row["smiles"], ends_in(row))


def ends_in(row: Row) -> Tensor:
    """Returns the two atoms of each bond of a row, ``[2, M]``."""
    return torch.tensor([row["atom_a"], row["atom_b"]], dtype=torch.long)


def molecule_in(row: Row, patterns: Mapping[str, Any]) -> Row:
    """Returns the row of the table of molecules, with 1 for each pattern that it has, else 0."""
    mol = molecule_of(row)
    flags = {f"has {name}": int(mol.HasSubstructMatch(p)) for name, p in patterns.items()}
    return {**row, "num_atoms": mol.GetNumAtoms(), "num_bonds": mol.GetNumBonds(), **flags}


def bonds_in(row: Row) -> Iterator[Row]:
    """Yields the bonds of a row as rows of their own, in the order of the row."""
    mol = molecule_of(row)
    groups, told = bond_groups(mol), []
    for a, b in zip(row["atom_a"], row["atom_b"], strict=True):
        bond = mol.GetBondBetweenAtoms(a, b)
        name = "-".join(f"{mol.GetAtomWithIdx(end).GetSymbol()}{end}" for end in (a, b))
        told.append({"bond": bond.GetIdx(), "atom_a": a, "atom_b": b, "name": name})
        told[-1] |= {"type": str(bond.GetBondType()).lower(), "groups": groups[bond.GetIdx()]}
    return _scored(row, "bond", told)


def atoms_in(row: Row) -> Iterator[Row]:
    """Yields the atoms of a row as rows of their own; methods that score bonds alone have none."""
    if row.get("atom_score") is None:
        return iter(())
    size = torch.tensor(row["atom_score"]).abs()
    rank = shared_rank(size, torch.zeros(size.numel(), dtype=torch.long), 1).tolist()
    atoms = molecule_of(row).GetAtoms()
    told = [{"atom": atom.GetIdx(), "element": atom.GetSymbol()} for atom in atoms]
    return _scored({**row, "atom_rank": rank}, "atom", told)


def _scored(row: Row, part: str, told: Sequence[Row]) -> Iterator[Row]:
    names, who = {name: f"{part}_{name}" for name in _SCORED}, {n: row[n] for n in _WHO}
    if row.get("endpoint") is not None:
        names["agreement"], who["endpoint"] = f"{part}_agreement", row["endpoint"]
    for k, about in enumerate(told):
        yield {**who, **about, **{name: row[column][k] for name, column in names.items()}}


def write_table(path: Path, rows: Iterable[Row], schema: Schema) -> int:
    """Writes rows into a Parquet or CSV file, whole or not at all; returns their number."""
    count = 0
    with whole_file(path) as part:
        if path.suffix != ".parquet":
            with part.open("w", encoding="utf-8", newline="") as text:
                writer = csv.writer(text, lineterminator="\n")
                writer.writerow(map(safe_cell, schema))
                for row in rows:
                    writer.writerow([safe_cell(row[name]) for name in schema])
                    count += 1
            return count
        arrow, parquet = (require(name, "tables") for name in ("pyarrow", "pyarrow.parquet"))
        kinds = {int: arrow.int64(), float: arrow.float64(), str: arrow.string()}
        kinds |= {list[int]: arrow.list_(arrow.int32()), list[float]: arrow.list_(arrow.float32())}
        fields = arrow.schema([(name, kinds[kind]) for name, kind in schema.items()])
        words = [name for name, kind in schema.items() if kind is str]  # these repeat
        waiting = iter(rows)
        with parquet.ParquetWriter(
            part, fields, compression="zstd", use_dictionary=words
        ) as writer:
            while group := list(islice(waiting, 1 << 16)):
                writer.write_table(arrow.Table.from_pylist(group, schema=fields))
                count += len(group)
        with part.open("rb+") as file:
            os.fsync(file.fileno())  # else its name could outlive its content in a power cut
        return count


def safe_cell(value: Any) -> Any:
    """Returns what a cell holds: floats of 7 digits, nothing for nan, an apostrophe at formulas."""
    if isinstance(value, float):
        return "" if value != value else f"{value:.7g}"
    if isinstance(value, str) and value.startswith(_FORMULA):
        try:
            float(value)
        except ValueError:
            return f"'{value}"
    return value


def read_table(path: Path, columns: Sequence[str] | None = None) -> Iterator[Row]:
    """Yields the rows of a Parquet file; by default with all their columns."""
    with _opened(path) as file:
        for batch in file.iter_batches(batch_size=256, columns=columns):
            yield from batch.to_pylist()


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


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    arrow, parquet = (require(name, "tables") for name in ("pyarrow", "pyarrow.parquet"))
    try:
        with parquet.ParquetFile(path) as file:
            yield file
    except (OSError, arrow.ArrowException) as error:
        raise StoreError(f"{path} is damaged ({error}). Delete it, and run again.") from error
