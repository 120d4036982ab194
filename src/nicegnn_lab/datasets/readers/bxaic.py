"""The published B-XAIC files: ``data.csv`` (labels, splits) and ``explanations.sdf`` (molecules).

Molecule ``i`` of the sdf belongs to row ``i`` of the csv. Its properties hold the true atoms of
each task ("3,4,5") and, but for the elements, the true bonds as pairs of atoms ("3#4,4#5"). Atoms
are renumbered, so that node ``i`` is atom ``i`` of RDKit's SMILES.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from nicegnn.molecule.smiles import MoleculeError, molecule_tables, parse_smiles, require_rdkit
from nicegnn_lab.datasets.data_files import DamagedFileError
from nicegnn_lab.datasets.readers import (
    FileContent,
    Files,
    Record,
    Rejected,
    read_table,
)
from nicegnn_lab.datasets.rules import ELEMENTS, Indices, MoleculeTruth

#: Columns of the csv that hold the published splits.
SPLITS = tuple(f"split_{k}" for k in range(5))
#: Our task name, its label column in the csv, and its property in the sdf.
TASKS = (
    *((task, task, task) for task in (*ELEMENTS, "indole")),
    ("pains", "PAINS", "pains"),
    ("rings-count", "rings-count", "rings"),
    ("rings-max", "rings-max", "largest_rings"),
)
_ANNOTATED = ("rings-count", "rings-max")  # masks given for both labels
_LABELS = {"0": 0, "1": 1, "0.0": 0, "1.0": 1, "False": 0, "True": 1}
_END = "$$$$"
_Entry = tuple[int, tuple[dict[str, str], str]]  # row, cells of the csv, block of the sdf


def read_published(files: Files) -> FileContent:
    """Reads ``table`` and ``molecules`` of `files`."""
    rows = read_table(files["table"], (*(label for _, label, _ in TASKS), *SPLITS))
    blocks = files["molecules"].read_text(errors="replace").split(f"{_END}\n")
    tail = blocks.pop()
    if tail.strip() and tail.strip() != _END:
        raise DamagedFileError(
            f"{files['molecules']} must have {_END!r} after every molecule (got an end in the "
            f"middle of molecule {len(blocks)}). Fetch the file again."
        )
    if len(blocks) != len(rows):
        raise DamagedFileError(
            f"{files['molecules']} must hold {len(rows)} molecules, one for each row of "
            f"{files['table'].name} (got {len(blocks)}). Take both files from the same place."
        )
    entries = list(enumerate(zip(rows, blocks, strict=False)))
    return FileContent(len(entries), partial(map, _convert, entries))


def _convert(entry: _Entry) -> Record | Rejected:
    row, (cells, block) = entry
    try:
        mol = _parse_block(block)
        smiles = str(require_rdkit().MolToSmiles(mol))
        order = mol.GetPropsAsDict(True, True)["_smilesAtomOutputOrder"]
        place = {old: new for new, old in enumerate(order)}
        atoms, bonds = molecule_tables(parse_smiles(smiles))
        in_sdf = [mol.GetAtomWithIdx(old).GetSymbol() for old in order]
        if in_sdf != atoms:
            raise MoleculeError(f"Atoms of the sdf must be those of {smiles!r} (got {in_sdf}).")
        number = {frozenset((u, v)): b for b, (u, v, _) in enumerate(bonds)}
        tasks = {}
        for name, column, key in TASKS:
            if cells[column] not in _LABELS:
                raise MoleculeError(f"Label {column!r} must be 0 or 1 (got {cells[column]!r}).")
            tasks[name] = _truth(mol, name, _LABELS[cells[column]], key, place, number)
    except (MoleculeError, ValueError, KeyError) as error:
        return Rejected(row, f"{type(error).__name__}: {error}", cells.get("smiles", ""))
    return Record(row, smiles, atoms, bonds, tasks, [cells[name] for name in SPLITS])


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
    mol: Any, task: str, label: int, key: str, place: dict[int, int], number: dict[Indices, int]
) -> MoleculeTruth:
    marked = frozenset(place[int(atom)] for atom in _items(mol, key))
    atoms = marked if label else frozenset()
    if task in ELEMENTS:
        return MoleculeTruth(label, atoms=atoms)
    pairs = [pair.split("#") for pair in _items(mol, f"{key}_edge")]
    bonds = frozenset(number[frozenset((place[int(u)], place[int(v)]))] for u, v in pairs)
    annotation = bonds if task in _ANNOTATED else None
    return MoleculeTruth(label, (bonds,) if label else (), atoms, annotation)


def _items(mol: Any, key: str) -> list[str]:
    if not mol.HasProp(key):
        raise MoleculeError(f"The molecule must have the property {key!r} in the sdf (got none).")
    text = mol.GetProp(key).strip()
    return text.split(",") if text else []
