r"""Rules of truth: the label of a molecule and the bonds that cause it, from the molecule alone.

`substructures` holds the rules that RDKit evaluates, `toxicophores` those of Mutagenicity. A truth
may have several *alternatives*: each is a set of bonds that explains label 1 on its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import prod

Indices = frozenset[int]

#: Beyond this many combinations only the smallest and the largest are listed.
MAX_ALTERNATIVES = 4096


@dataclass(frozen=True)
class MoleculeTruth:
    """Label of a molecule in one task, and what explains it: nothing for label 0."""

    label: int  # 0 or 1
    alternatives: tuple[Indices, ...] = ()  # sets of bonds, without repetition, the largest last
    atoms: Indices = frozenset()  # atoms behind all alternatives
    annotation: Indices | None = None  # bonds that the benchmark marks whatever the label

    @property
    def union(self) -> Indices:
        """All bonds of all alternatives; empty for label 0."""
        return frozenset().union(*self.alternatives)


def truth_of_atom_sets(
    label: int, atom_sets: Iterable[Iterable[int]], ends: Sequence[tuple[int, ...]]
) -> MoleculeTruth:
    """Returns the truth behind sets of atoms: a bond belongs to a set that holds both its ends.

    This includes a bond that links two matches of a pattern, as in biphenyl. ``ends`` are the two
    atoms of each bond; anything after them is ignored.
    """
    sets = [frozenset(atoms) for atoms in atom_sets]
    if not sets:
        return MoleculeTruth(label)
    bond_sets = (
        frozenset(b for b, (u, v, *_) in enumerate(ends) if u in atoms and v in atoms)
        for atoms in sets
    )
    return MoleculeTruth(label, distinct(bond_sets), frozenset().union(*sets))


def unions(families: Sequence[Sequence[Indices]]) -> list[Indices]:
    r"""Returns the unions of one non-empty subset of each family.

    .. math:: \Big\{ \bigcup_{j} \bigcup S_j \;:\; \emptyset \ne S_j \subseteq M_j \Big\}

    The first family :math:`M_1` is the outer loop and smaller subsets come first: the order of
    the published masks. There are :math:`\prod_j (2^{|M_j|} - 1)` unions. Above
    `MAX_ALTERNATIVES`, only subsets with a single member and the full ones are used.

    >>> [sorted(union) for union in unions([[frozenset({0}), frozenset({1})], [frozenset({2})]])]
    [[0, 2], [1, 2], [0, 1, 2]]
    """
    full = prod(2 ** len(family) - 1 for family in families) <= MAX_ALTERNATIVES
    found: list[Indices] = [frozenset()]
    for family in families:
        sizes = range(1, len(family) + 1) if full else sorted({1, len(family)})
        parts = [frozenset().union(*some) for n in sizes for some in combinations(family, n)]
        found = [union | part for union in found for part in parts]
    return found


def distinct(bond_sets: Iterable[Indices]) -> tuple[Indices, ...]:
    """Returns sets without repetition, as they first appear, the union of all moved to the end."""
    sets = list(dict.fromkeys(bond_sets))
    largest = frozenset().union(*sets)
    return (*(bonds for bonds in sets if bonds != largest), largest)
