"""The published B-XAIC files: ``data.csv`` (labels, splits) and ``explanations.sdf`` (molecules).

Molecule ``i`` of the sdf belongs to row ``i`` of the csv. Its properties hold the true atoms of
each task ("3,4,5") and, but for the elements, the true bonds as pairs of atoms ("3#4,4#5"). Atoms
are renumbered to the order of the SMILES that RDKit writes for the molecule, so that node ``i`` is
atom ``i`` of ``smiles`` here as everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from nicegnn.datasets.elements import ELEMENTS
from nicegnn.datasets.parallel import ordered_map
from nicegnn.datasets.records import Reading, Record, Rejected, TaskTruth
from nicegnn.datasets.rows import Row, read_table
from nicegnn.datasets.tidy import BXAIC_SPLITS
from nicegnn.molecule.smiles import MoleculeError, molecule_tables, parse_smiles, require_rdkit

#: Our task name, its label column in the csv, and its property in the sdf.
TASKS = (
    ("B", "B", "B"),
    ("P", "P", "P"),
    ("X", "X", "X"),
    ("indole", "indole", "indole"),
    ("pains", "PAINS", "pains"),
    ("rings-count", "rings-count", "rings"),
    ("rings-max", "rings-max", "largest_rings"),
)
_ANNOTATED = ("rings-count", "rings-max")  # masks given for both labels
_LABELS = {"0": 0, "1": 1, "0.0": 0, "1.0": 1, "False": 0, "True": 1}
_END = "$$$$"


class _Entry(NamedTuple):
    row: int
    cells: Row
    block: str


def read_published(files: Mapping[str, Path]) -> Reading:
    """Reads ``table`` and ``molecules`` of `files`."""
    table = read_table(files["table"], (*(label for _, label, _ in TASKS), *BXAIC_SPLITS))
    blocks = files["molecules"].read_text(errors="replace").split(f"{_END}\n")
    damage = [table.damage] if table.damage else []
    tail = blocks.pop()
    if tail.strip() and tail.strip() != _END:
        damage.append(
            f"{files['molecules']}: expected {_END!r} after every molecule, but the file ends in "
            f"the middle of molecule {len(blocks)}. Fetch or copy it again."
        )
    if not damage and len(blocks) != len(table.rows):
        damage.append(
            f"{files['molecules']}: expected {len(table.rows)} molecules, one for each row of "
            f"{files['table'].name}, got {len(blocks)}. Take both files from the same place."
        )
    entries = [
        _Entry(row, cells, block)
        for row, (cells, block) in enumerate(zip(table.rows, blocks, strict=False))
    ]
    return Reading(len(entries), partial(ordered_map, _convert, entries), tuple(damage))


def _convert(entry: _Entry) -> Record | Rejected:
    try:
        mol = _parse_block(entry.block)
        smiles = str(require_rdkit().MolToSmiles(mol))
        order = mol.GetPropsAsDict(True, True)["_smilesAtomOutputOrder"]
        place = {old: new for new, old in enumerate(order)}
        atoms, bonds = molecule_tables(parse_smiles(smiles))
        if [mol.GetAtomWithIdx(old).GetSymbol() for old in order] != atoms:
            raise MoleculeError(f"expected the same atoms in the sdf and in {smiles!r}.")
        number = {frozenset((u, v)): b for b, (u, v, _) in enumerate(bonds)}
        tasks = {
            name: _truth(mol, name, _label(entry.cells, label), key, place, number)
            for name, label, key in TASKS
        }
    except (MoleculeError, ValueError, KeyError) as error:
        return Rejected(
            entry.row, f"{type(error).__name__}: {error}", entry.cells.get("smiles", "")
        )
    splits = [entry.cells[column] for column in BXAIC_SPLITS]
    return Record(entry.row, smiles, atoms, bonds, tasks, splits)


def _parse_block(block: str) -> Any:
    """The molecule as RDKit's own sdf reader gives it: sanitised, hydrogens removed."""
    supplier = require_rdkit().SDMolSupplier()
    with require_rdkit("rdkit.rdBase").BlockLogs():
        supplier.SetData(f"{block}{_END}\n")
        mol = next(iter(supplier), None)
    if mol is None or mol.GetNumAtoms() == 0:
        raise MoleculeError("RDKit cannot read this molecule of the sdf, or it has no atoms.")
    return mol


def _truth(
    mol: Any,
    task: str,
    label: int,
    key: str,
    place: Mapping[int, int],
    number: Mapping[frozenset[int], int],
) -> TaskTruth:
    atoms = [place[int(atom)] for atom in _items(mol, key)]
    if task in ELEMENTS:
        return TaskTruth(label, atoms=atoms if label else ())
    pairs = [pair.split("#") for pair in _items(mol, f"{key}_edge")]
    bonds = frozenset(number[frozenset((place[int(u)], place[int(v)]))] for u, v in pairs)
    annotation = bonds if task in _ANNOTATED else None
    if not label:
        return TaskTruth(0, annotation=annotation)
    return TaskTruth(1, (bonds,), atoms, annotation)


def _items(mol: Any, key: str) -> list[str]:
    if not mol.HasProp(key):
        raise MoleculeError(f"expected the property {key!r} in the sdf, got none.")
    text = mol.GetProp(key).strip()
    return text.split(",") if text else []


def _label(cells: Row, column: str) -> int:
    if cells[column] not in _LABELS:
        raise MoleculeError(f"{column}: expected label 0 or 1, got {cells[column]!r}.")
    return _LABELS[cells[column]]
