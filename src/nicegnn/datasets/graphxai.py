"""The published benzene and carbonyl files of graph-attribution (also in GraphXAI).

A folder holds ``*_smiles.csv`` (molecules; its ``label`` column is not the target of the carbonyl
sets), ``y_true.npz`` (labels) and ``true_raw_attribution_datadicts.npz`` (masks, pickled). Labels
are read as plain numbers. The truth comes from the rule that reproduces the masks, so no pickle is
opened to load the data; `published_masks` reads them for a comparison.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

from nicegnn.datasets.errors import DamagedFileError
from nicegnn.datasets.npz import read_object_array, read_plain_array
from nicegnn.datasets.parallel import ordered_map
from nicegnn.datasets.records import Reading, Record, Rejected, TaskTruth
from nicegnn.datasets.rows import read_table
from nicegnn.datasets.rules import Indices, Truth, truth_of
from nicegnn.molecule.smiles import MoleculeError, molecule_tables, parse_smiles


class _Molecule(NamedTuple):
    row: int
    smiles: str
    label: int
    is_kept: bool


def read_published(
    files: Mapping[str, Path], task: str, rule: str, *, negatives_per_positive: int | None = None
) -> Reading:
    """Reads ``smiles`` and ``labels`` of `files`; the truth is that of ``rule``.

    Args:
        negatives_per_positive: keep all positives and so many negatives for each, drawn as
            GraphXAI does with ``downsample_seed=0``.
    """
    table = read_table(files["smiles"], ("smiles",))
    labels = read_plain_array(files["labels"], "y").reshape(-1)
    damage = [table.damage] if table.damage else []
    if not damage and len(labels) != len(table.rows):
        damage.append(
            f"{files['labels']}: expected {len(table.rows)} labels, one for each row of "
            f"{files['smiles'].name}, got {len(labels)}. Take both files from the same place."
        )
    if not set(labels.tolist()) <= {0, 1}:
        raise DamagedFileError(f"{files['labels']}: expected labels 0 and 1, got others.")
    kept = _subsample(labels.astype(int).tolist(), negatives_per_positive)
    molecules = [
        _Molecule(row, cells["smiles"], int(label), row in kept)
        for row, (cells, label) in enumerate(zip(table.rows, labels, strict=False))
    ]
    convert = partial(_convert, task=task, rule=rule)
    return Reading(len(molecules), partial(ordered_map, convert, molecules), tuple(damage))


def published_masks(path: Path) -> list[list[Indices]]:
    """Returns the atom sets of each molecule in ``true_raw_attribution_datadicts.npz``."""
    masks: list[list[Indices]] = []
    for entry in read_object_array(path, "datadict_list"):
        item = entry[0] if isinstance(entry, list) else entry
        nodes = item["nodes"] if isinstance(item, dict) else None
        if nodes is None or getattr(nodes, "ndim", 0) != 2:
            raise DamagedFileError(
                f"{path}: expected a mask of atoms by alternatives for molecule {len(masks)}, got "
                f"{type(nodes).__name__}. Check that this is the file it is named after."
            )
        sets = [frozenset(column.nonzero()[0].tolist()) for column in nodes.T]
        masks.append([atoms for atoms in sets if atoms])
    return masks


def _convert(molecule: _Molecule, task: str, rule: str) -> Record | Rejected:
    try:
        mol = parse_smiles(molecule.smiles)
        truth = truth_of(mol, rule)
        atoms, bonds = molecule_tables(mol)
    except MoleculeError as error:
        return Rejected(molecule.row, str(error), molecule.smiles)
    remark = ""
    if truth.label != molecule.label:
        remark = f"published label {molecule.label}, but the rule {rule!r} gives {truth.label}"
    tasks = {task: task_truth(truth, molecule.label)}
    return Record(
        molecule.row, molecule.smiles, atoms, bonds, tasks, is_kept=molecule.is_kept, remark=remark
    )


def task_truth(truth: Truth, label: int) -> TaskTruth:
    """Returns a rule's truth under a published label; label 0 has none."""
    if not label:
        return TaskTruth(0)
    return TaskTruth(label, truth.alternatives, frozenset().union(*truth.atom_alternatives))


def _subsample(labels: list[int], negatives_per_positive: int | None) -> set[int]:
    positives = [row for row, label in enumerate(labels) if label]
    negatives = [row for row, label in enumerate(labels) if not label]
    if negatives_per_positive is not None:
        wanted = min(len(negatives), negatives_per_positive * len(positives))
        negatives = random.Random(0).sample(negatives, wanted)
    return {*positives, *negatives}
