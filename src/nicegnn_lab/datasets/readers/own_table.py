"""A table of one's own: a SMILES, a label, and the atoms or the pattern that explain it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from nicegnn.molecule.smiles import Bond, MoleculeError, parse_smiles
from nicegnn.molecule.splits import PARTS
from nicegnn_lab.datasets.data_files import DamagedFileError
from nicegnn_lab.datasets.graph_tables import molecule_tables
from nicegnn_lab.datasets.readers import Cells, FileContent, Files, Record, Rejected, read_table
from nicegnn_lab.datasets.rules import (
    Indices,
    MoleculeTruth,
    truth_of_atom_sets,
    truth_of_groups,
)

if TYPE_CHECKING:
    from rdkit.Chem import Mol

TruthKind = Literal["atoms", "smarts"]
_SHOWN = 5  # rows that do not fit in one message


@dataclass(frozen=True)
class OwnTable:
    """Reads a csv table; see `register_dataset` for its columns."""

    task: str  # name of the dataset
    smiles: str  # column of molecules
    label: str  # column of labels
    truth: str  # column of explanations
    kind: TruthKind  # what this column holds
    split: str = ""  # column of parts, if there is one

    def __call__(self, files: Files) -> FileContent:
        """Reads all rows; raises `DamagedFileError` if a label or truth does not fit its molecule.

        A SMILES that cannot be read is rejected and reported, as in other datasets.
        """
        path = files["table"]
        columns = [self.smiles, self.label, self.truth, *filter(None, [self.split])]
        rows = read_table(path, columns)
        records: list[Record | Rejected] = []
        misfits: list[str] = []
        for number, row in enumerate(rows):
            smiles = row[self.smiles].strip()
            try:
                mol = parse_smiles(smiles)
                atoms, bonds = molecule_tables(mol)
            except MoleculeError as error:
                records.append(Rejected(number, str(error), smiles))
                continue
            try:
                tasks = {self.task: self._truth(mol, bonds, row)}
                splits = (_part(row[self.split]),) if self.split else ()
                records.append(Record(number, smiles, atoms, bonds, tasks, splits))
            except ValueError as error:
                misfits.append(f"line {number + 2} ({smiles}): {error}")
        if misfits:
            more = [f"{len(misfits) - _SHOWN} more"] if len(misfits) > _SHOWN else []
            listed = "; ".join([*misfits[:_SHOWN], *more])
            raise DamagedFileError(
                f"{path} must hold labels and truths that fit its molecules (got {len(misfits)} "
                f"of {len(rows)} rows that do not: {listed}). Correct these rows."
            )
        return FileContent(len(rows), lambda: iter(records))

    def _truth(self, mol: Mol, bonds: Sequence[Bond], row: Cells) -> MoleculeTruth:
        label, text = _label(row[self.label]), row[self.truth].strip()
        if self.kind == "smarts":
            return _pattern_truth(mol, label, text)
        if text and not label:
            raise ValueError(f"label 0 must have no truth (got {text!r})")
        parts = [part for part in text.split(";") if part.strip()]
        sets = [_atoms(part, mol.GetNumAtoms()) for part in parts]
        truth = truth_of_atom_sets(label, sets, bonds)
        if not all(truth.alternatives):
            raise ValueError(f"the truth must hold both ends of a bond (got {text!r})")
        return truth


def _label(text: str) -> int:
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if number not in (0, 1):
        raise ValueError(f"the label must be 0 or 1 (got {text!r})")
    return int(number)


def _part(text: str) -> str:
    if text.strip() not in PARTS:
        raise ValueError(f"the part must be one of {PARTS} (got {text!r})")
    return text.strip()


def _atoms(text: str, num_atoms: int) -> Indices:
    """Atoms such as ``0 1 2``, counted from 0 in the order of the SMILES."""
    words = re.split(r"[\s,]+", text.strip())
    outside = [word for word in words if not word.isdecimal() or int(word) >= num_atoms]
    if outside:
        raise ValueError(f"its atoms are 0 to {num_atoms - 1} (got {outside[0]!r} in the truth)")
    return frozenset(map(int, words))


def _pattern_truth(mol: Mol, label: int, smarts: str) -> MoleculeTruth:
    """Each match of the pattern explains label 1 by itself; a molecule of label 0 has none."""
    if not smarts:
        return MoleculeTruth(label)
    truth = truth_of_groups(mol, [smarts])
    if truth.label != label:
        said = (
            "matches, but the label is 0" if truth.label else "does not match, but the label is 1"
        )
        raise ValueError(f"the SMARTS {smarts!r} {said}")
    return truth
