"""The tidy tables: one gzipped csv per family with atoms, bonds and truth; no RDKit is needed.

Lists inside a cell are separated by spaces, bonds are written ``u-v:t``, atom numbers start at 0.
"""

import json
from collections.abc import Sequence
from itertools import pairwise

from nicegnn.molecule.smiles import Bond
from nicegnn_lab.datasets.readers import Cells, Files, Reading, Record, read_table
from nicegnn_lab.datasets.rules import MoleculeTruth, toxicophore_truth, truth_of_atom_sets

_SPLITS = tuple(f"split_{k}" for k in range(5))


def read_graphxai(files: Files, task: str) -> Reading:
    """Reads ``graphxai_*.csv.gz``; an alternative's bonds have both ends in its atom set."""

    def convert(_: int, row: Cells) -> Record:
        atoms, bonds = _molecule(row)
        truth = truth_of_atom_sets(int(row["label"]), json.loads(row["masks"]), bonds)
        is_kept = row.get("subset_1125", "1") == "1"
        return Record(int(row["idx"]), row["smiles"], atoms, bonds, {task: truth}, is_kept=is_kept)

    columns = ("idx", "smiles", "label", "atoms", "bonds", "masks")
    return read_table(files["table"], columns), convert


def read_mutagenicity(files: Files) -> Reading:
    """Reads ``mutagenicity.csv.gz``; the truth follows from its ``matches``."""

    def convert(_: int, row: Cells) -> Record:
        atoms, bonds = _molecule(row)
        matches = [frozenset(match) for _, match in json.loads(row["matches"])]
        tasks = {"mutagenicity": toxicophore_truth(int(row["label"]), matches, bonds)}
        return Record(int(row["tu_index"]), "", atoms, bonds, tasks, is_kept=row["kept"] == "1")

    columns = ("tu_index", "label", "kept", "atoms", "bonds", "matches")
    return read_table(files["table"], columns), convert


def read_bxaic_like(files: Files) -> Reading:
    """Reads ``bxaic_like.csv.gz`` with ``bxaic_like_graphs.csv.gz``, joined by ``id``."""
    labels = ("indole", "PAINS", "rings-count", "rings-max")
    molecules = read_table(files["molecules"], ("id", "smiles", *labels, *_SPLITS))
    marks = ("rings", "indole_atoms", "indole_bonds", "pains_atoms", "pains_bonds")
    graphs = read_table(files["graphs"], ("id", "atoms", "bonds", *marks))
    graph_of = {row["id"]: row for row in graphs}

    def convert(_: int, row: Cells) -> Record:
        graph = graph_of[row["id"]]
        atoms, bonds = _molecule(graph)
        tasks = {}
        for task, label in (("indole", int(row["indole"])), ("pains", int(row["PAINS"]))):
            true_bonds, true_atoms = (
                frozenset(map(int, graph[f"{task}_{kind}"].split())) for kind in ("bonds", "atoms")
            )
            truth = MoleculeTruth(label, (true_bonds,), true_atoms)
            tasks[task] = truth if label else MoleculeTruth(0)
        rings = [[int(atom) for atom in ring.split("-")] for ring in graph["rings"].split()]
        size = max(map(len, rings), default=0)
        largest = [ring for ring in rings if len(ring) == size]
        tasks["rings-count"] = _ring_truth(int(row["rings-count"]), rings, bonds)
        tasks["rings-max"] = _ring_truth(int(row["rings-max"]), largest, bonds)
        splits = [row[column] for column in _SPLITS]
        return Record(int(row["id"]), row["smiles"], atoms, bonds, tasks, splits)

    return molecules, convert


def _ring_truth(label: int, rings: list[list[int]], bonds: Sequence[Bond]) -> MoleculeTruth:
    number = {frozenset((u, v)): index for index, (u, v, _) in enumerate(bonds)}
    marked = frozenset(
        number[frozenset(pair)] for ring in rings for pair in pairwise([*ring, ring[0]])
    )
    if not label:
        return MoleculeTruth(0, annotation=marked)
    return MoleculeTruth(1, (marked,), frozenset(atom for ring in rings for atom in ring), marked)


def _molecule(row: Cells) -> tuple[list[str], list[Bond]]:
    numbers = (map(int, bond.replace(":", "-").split("-")) for bond in row["bonds"].split())
    return row["atoms"].split(), [(u, v, kind) for u, v, kind in numbers]
