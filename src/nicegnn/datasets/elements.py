"""B-XAIC's tasks ``B``, ``P`` and ``X``: does a molecule hold an element? Truth is on atoms."""

from __future__ import annotations

from collections.abc import Sequence

from nicegnn.datasets.records import TaskTruth

#: Elements that make a molecule positive, by task.
ELEMENTS = {
    "B": frozenset({"B"}),
    "P": frozenset({"P"}),
    "X": frozenset({"F", "Cl", "Br", "I"}),
}


def element_truths(atoms: Sequence[str]) -> dict[str, TaskTruth]:
    """Returns label and true atoms of the three tasks; their bonds explain nothing.

    >>> element_truths(["C", "Cl"])["X"].atoms
    frozenset({1})
    """
    truths = {}
    for task, elements in ELEMENTS.items():
        found = frozenset(index for index, atom in enumerate(atoms) if atom in elements)
        truths[task] = TaskTruth(int(bool(found)), atoms=found)
    return truths
