"""The tidy tables: one gzipped csv per family, atoms, bonds and truth spelt out, no RDKit needed.

Lists inside a cell are separated by spaces, bonds are written ``u-v:t``, atom numbers start at 0.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

from nicegnn.datasets.elements import element_truths
from nicegnn.datasets.records import Reading, Record, Rejected, TaskTruth
from nicegnn.datasets.rows import Row, Table, read_table
from nicegnn.datasets.rules import Indices, distinct
from nicegnn.datasets.toxicophores import toxicophore_truth

Bonds = Sequence[tuple[int, int, int]]
BXAIC_SPLITS = tuple(f"split_{k}" for k in range(5))


def read_graphxai(files: Mapping[str, Path], task: str) -> Reading:
    """Reads ``graphxai_*.csv.gz``; an alternative's bonds have both ends in its atom set."""

    def convert(row: Row) -> Record:
        bonds = _bonds(row["bonds"])
        truth = masks_truth(int(row["label"]), json.loads(row["masks"]), bonds)
        return Record(
            row=int(row["idx"]),
            smiles=row["smiles"],
            atoms=row["atoms"].split(),
            bonds=bonds,
            tasks={task: truth},
            is_kept=row.get("subset_1125", "1") == "1",
        )

    columns = ("idx", "smiles", "label", "atoms", "bonds", "masks")
    return _reading(read_table(files["table"], columns), convert)


def read_mutagenicity(files: Mapping[str, Path]) -> Reading:
    """Reads ``mutagenicity.csv.gz``; the truth follows from its ``matches``."""

    def convert(row: Row) -> Record:
        bonds = _bonds(row["bonds"])
        matches = [frozenset(atoms) for _, atoms in json.loads(row["matches"])]
        return Record(
            row=int(row["tu_index"]),
            smiles="",
            atoms=row["atoms"].split(),
            bonds=bonds,
            tasks={"mutagenicity": toxicophore_truth(int(row["label"]), matches, bonds)},
            is_kept=row["kept"] == "1",
        )

    columns = ("tu_index", "label", "kept", "atoms", "bonds", "matches")
    return _reading(read_table(files["table"], columns), convert)


def read_bxaic_like(files: Mapping[str, Path]) -> Reading:
    """Reads ``bxaic_like.csv.gz`` with ``bxaic_like_graphs.csv.gz``, joined by ``id``."""
    labels = ("indole", "PAINS", "rings-count", "rings-max")
    molecules = read_table(files["molecules"], ("id", "smiles", *labels, *BXAIC_SPLITS))
    marks = ("rings", "indole_atoms", "indole_bonds", "pains_atoms", "pains_bonds")
    graphs = read_table(files["graphs"], ("id", "atoms", "bonds", *marks))
    graph_of = {row["id"]: row for row in graphs.rows}

    def convert(row: Row) -> Record | Rejected:
        if row["id"] not in graph_of:
            reason = f"no row with id {row['id']} in {files['graphs'].name}"
            return Rejected(int(row["id"]), reason, row["smiles"])
        graph = graph_of[row["id"]]
        atoms, bonds = graph["atoms"].split(), _bonds(graph["bonds"])
        tasks = element_truths(atoms)
        for task, label, column in (("indole", "indole", "indole"), ("pains", "PAINS", "pains")):
            true_bonds = _numbers(graph[f"{column}_bonds"])
            is_true = row[label] == "1"
            tasks[task] = TaskTruth(
                int(row[label]),
                (true_bonds,) if is_true else (),
                _numbers(graph[f"{column}_atoms"]) if is_true else (),
            )
        rings = [[int(atom) for atom in ring.split("-")] for ring in graph["rings"].split()]
        size = max(map(len, rings), default=0)
        largest = [ring for ring in rings if len(ring) == size]
        tasks["rings-count"] = _ring_truth(int(row["rings-count"]), rings, bonds)
        tasks["rings-max"] = _ring_truth(int(row["rings-max"]), largest, bonds)
        splits = [row[column] for column in BXAIC_SPLITS]
        return Record(int(row["id"]), row["smiles"], atoms, bonds, tasks, splits)

    return _reading(molecules, convert, graphs.damage)


def masks_truth(label: int, masks: Sequence[Collection[int]], bonds: Bonds) -> TaskTruth:
    """Returns the truth behind published atom sets: bonds with both ends in the set."""
    if not masks:
        return TaskTruth(label)
    atom_sets = [frozenset(mask) for mask in masks]
    bond_sets = (
        frozenset(b for b, (u, v, _) in enumerate(bonds) if u in atoms and v in atoms)
        for atoms in atom_sets
    )
    return TaskTruth(label, distinct(bond_sets), frozenset().union(*atom_sets))


def _ring_truth(label: int, rings: list[list[int]], bonds: Bonds) -> TaskTruth:
    number = {frozenset((u, v)): index for index, (u, v, _) in enumerate(bonds)}
    marked = frozenset(
        number[frozenset(pair)] for ring in rings for pair in pairwise([*ring, ring[0]])
    )
    if not label:
        return TaskTruth(0, annotation=marked)
    return TaskTruth(1, (marked,), {atom for ring in rings for atom in ring}, marked)


def _reading(
    table: Table, convert: Callable[[Row], Record | Rejected], *damage: str | None
) -> Reading:
    def records() -> Iterator[Record | Rejected]:
        for position, row in enumerate(table.rows):
            try:
                yield convert(row)
            except (ValueError, KeyError, TypeError) as error:
                reason = f"a cell is not of its form ({type(error).__name__}: {error})"
                yield Rejected(position, reason, row.get("smiles", ""))

    found = tuple(text for text in (table.damage, *damage) if text)
    return Reading(len(table.rows), records, found)


def _bonds(text: str) -> Bonds:
    bonds = []
    for bond in text.split():
        ends, _, kind = bond.partition(":")
        u, _, v = ends.partition("-")
        bonds.append((int(u), int(v), int(kind)))
    return bonds


def _numbers(text: str) -> Indices:
    return frozenset(map(int, text.split()))
