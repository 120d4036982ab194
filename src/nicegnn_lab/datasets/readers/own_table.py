"""A table of one's own: a SMILES, a label, and the atoms that explain it."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from nicegnn.molecule.smiles import Bond, parse_smiles
from nicegnn.molecule.splits import PARTS
from nicegnn_lab.datasets.graph_tables import molecule_tables
from nicegnn_lab.datasets.readers import Cells, Files, Reading, Record, read_table
from nicegnn_lab.datasets.rules import MoleculeTruth, truth_of_atom_sets


@dataclass(frozen=True)
class OwnTable:
    """Reads a csv table; see `register_dataset` for its columns."""

    task: str  # name of the dataset
    smiles: str  # column of molecules
    label: str  # column of labels
    truth: str  # column of explanations
    split: str = ""  # column of parts, if there is one

    def __call__(self, files: Files) -> Reading:
        columns = [self.smiles, self.label, self.truth, *filter(None, [self.split])]
        return read_table(files["table"], columns), self._record

    def _record(self, number: int, row: Cells) -> Record:
        smiles, label = row[self.smiles].strip(), _label(row[self.label])
        atoms, bonds = molecule_tables(parse_smiles(smiles))
        tasks = {self.task: _truth(len(atoms), bonds, label, row[self.truth].strip())}
        splits = [row[self.split].strip()] if self.split else []
        if not {*splits} <= {*PARTS}:
            raise ValueError(f"the part must be one of {PARTS} (got {splits[0]!r})")
        return Record(number, smiles, atoms, bonds, tasks, splits)


def _label(text: str) -> int:
    try:
        return {0.0: 0, 1.0: 1}[float(text)]
    except (ValueError, KeyError):
        raise ValueError(f"the label must be 0 or 1 (got {text!r})") from None


def _truth(num_atoms: int, bonds: Sequence[Bond], label: int, text: str) -> MoleculeTruth:
    """Each group of atoms ``0 1 2``, parted by semicolons, explains label 1 by itself."""
    if text and not label:
        raise ValueError(f"label 0 must have no truth (got {text!r})")
    sets = []
    for part in filter(str.strip, text.split(";")):
        words = re.split(r"[\s,]+", part.strip())
        outside = [word for word in words if not word.isdecimal() or int(word) >= num_atoms]
        if outside:
            got = f"got {outside[0]!r} in the truth"
            raise ValueError(f"its atoms are 0 to {num_atoms - 1} ({got})")
        sets.append(frozenset(map(int, words)))
    truth = truth_of_atom_sets(label, sets, bonds)
    if not all(truth.alternatives):
        raise ValueError(f"the truth must hold both ends of a bond (got {text!r})")
    return truth
