"""The published benzene and carbonyl files of graph-attribution (also in GraphXAI).

A folder holds ``*_smiles.csv`` (molecules; its ``label`` column is not the target of the carbonyl
sets) and ``y_true.npz`` (labels). The truth comes from the rule that reproduces the published
masks, which are pickled and not read; the tidy tables hold them as text.
"""

from __future__ import annotations

import random
import zipfile
import zlib
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from nicegnn.molecule.smiles import MoleculeError, molecule_tables, parse_smiles
from nicegnn_lab.datasets.data_files import DamagedFileError
from nicegnn_lab.datasets.readers import FileContent, Files, Record, Rejected, read_table
from nicegnn_lab.datasets.rules import MoleculeTruth, truth_of

_UNREADABLE = (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error)
_Molecule = tuple[int, str, int, bool]  # row, SMILES, label, whether it is kept


def read_published(
    files: Files, task: str, rule: str, *, negatives_per_positive: int | None = None
) -> FileContent:
    """Reads ``smiles`` and ``labels``; the truth is that of ``rule``.

    ``negatives_per_positive`` negatives are kept, drawn as in GraphXAI with ``downsample_seed=0``.
    """
    rows = read_table(files["smiles"], ("smiles",))
    labels = read_plain_array(files["labels"], "y").reshape(-1)
    if len(labels) != len(rows):
        raise DamagedFileError(
            f"{files['labels']} must hold {len(rows)} labels, one for each row of "
            f"{files['smiles'].name} (got {len(labels)}). Take both files from the same place."
        )
    if not set(labels.tolist()) <= {0, 1}:
        raise DamagedFileError(
            f"{files['labels']} must hold only labels 0 and 1 (got others). Fetch the file again."
        )
    positives, negatives = (np.flatnonzero(labels == label).tolist() for label in (1, 0))
    if negatives_per_positive is not None:
        wanted = min(len(negatives), negatives_per_positive * len(positives))
        negatives = random.Random(0).sample(negatives, wanted)
    kept = {*positives, *negatives}
    molecules = [
        (row, cells["smiles"], int(label), row in kept)
        for row, (cells, label) in enumerate(zip(rows, labels, strict=True))
    ]
    convert = partial(_convert, task=task, rule=rule)
    return FileContent(len(molecules), partial(map, convert, molecules))


def _convert(molecule: _Molecule, task: str, rule: str) -> Record | Rejected:
    row, smiles, label, is_kept = molecule
    try:
        mol = parse_smiles(smiles)
        atoms, bonds = molecule_tables(mol)
    except MoleculeError as error:
        return Rejected(row, str(error), smiles)
    truth, remark = truth_of(mol, rule), ""
    if truth.label != label:
        remark = f"published label {label}, but the rule {rule!r} gives {truth.label}"
        truth = MoleculeTruth(label)  # the label has no explanation
    return Record(row, smiles, atoms, bonds, {task: truth}, is_kept=is_kept, remark=remark)


def read_plain_array(path: Path, key: str) -> npt.NDArray[Any]:
    """Returns an array of numbers of an ``.npz`` file; nothing in it is unpickled."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            return np.asarray(arrays[key])
    except _UNREADABLE as error:
        raise DamagedFileError(
            f"{path} must be an .npz file with the array {key!r} (got {type(error).__name__}: "
            f"{error}). Fetch or copy the file again."
        ) from error
