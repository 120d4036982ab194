r"""The groups that GraphXAI takes as the explanation of Mutagenicity, found in the bare graph.

Hydrogens are explicit atoms there; the degree of an atom is its number of neighbours.

* ``NH2``: N of degree 3 with two H of degree 1;
* ``NO2``: N of degree 3 with two O of degree 1;
* ``nitroso``: N of degree 2 bonded to an O of degree 1;
* ``azo``: two bonded N, both of degree 2;
* ``ring_halide``: F, Cl, Br or I of degree 1 whose neighbour has a bond that is in rings, the
  smallest of which has more than 4 atoms.

GraphXAI looks for that ring in one cycle basis, which depends on the order of the atoms; on all
4,337 published graphs both agree (see the tests).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from nicegnn.datasets.rules import Indices, MoleculeTruth, distinct, unions
from nicegnn.molecule.smiles import Bond

_HALOGENS = ("F", "Cl", "Br", "I")
_MAX_SMALL_RING = 4


def toxicophore_matches(atoms: Sequence[str], bonds: Sequence[Bond]) -> list[tuple[str, Indices]]:
    """Returns kind and atoms of every group, kinds in the order above, GraphXAI's order.

    >>> toxicophore_matches(["C", "N", "O"], [(0, 1, 1), (1, 2, 2)])
    [('nitroso', frozenset({1, 2}))]
    """
    near: list[list[int]] = [[] for _ in atoms]
    for u, v, _ in bonds:
        near[u].append(v)
        near[v].append(u)

    def ends(atom: int, symbol: str) -> list[int]:
        """Neighbours of that element which have no other neighbour."""
        return sorted(a for a in near[atom] if atoms[a] == symbol and len(near[a]) == 1)

    nitrogens = [n for n, symbol in enumerate(atoms) if symbol == "N"]
    matches: list[tuple[str, Indices]] = []
    for kind, symbol in (("NH2", "H"), ("NO2", "O")):
        for n in nitrogens:
            if len(near[n]) == 3:
                pairs = combinations(ends(n, symbol), 2)
                matches += [(kind, frozenset((n, *pair))) for pair in pairs]
    twofold = [n for n in nitrogens if len(near[n]) == 2]
    matches += [("nitroso", frozenset((n, o))) for n in twofold for o in ends(n, "O")]
    matches += [
        ("azo", frozenset((n, m)))
        for n in twofold
        for m in near[n]
        if m > n and atoms[m] == "N" and len(near[m]) == 2
    ]
    matches += [
        ("ring_halide", frozenset((a,)))
        for a, symbol in enumerate(atoms)
        if symbol in _HALOGENS and len(near[a]) == 1 and _is_on_ring(near[a][0], near)
    ]
    return matches


def toxicophore_truth(
    label: int, matches: Sequence[Indices], bonds: Sequence[Bond]
) -> MoleculeTruth:
    r"""Returns the truth of a graph: the alternatives are all non-empty unions of its matches.

    .. math:: E(M) = \{ uv : u \in M \text{ or } v \in M \}

    A bond belongs to a match if at least one of its ends does; see `unions` for very many matches.
    """
    if not label or not matches:
        return MoleculeTruth(label)
    bond_sets = [
        frozenset(b for b, (u, v, _) in enumerate(bonds) if u in match or v in match)
        for match in matches
    ]
    return MoleculeTruth(label, distinct(unions([bond_sets])), frozenset().union(*matches))


def _is_on_ring(atom: int, near: Sequence[Sequence[int]]) -> bool:
    return any(_smallest_ring(atom, other, near) > _MAX_SMALL_RING for other in near[atom])


def _smallest_ring(u: int, v: int, near: Sequence[Sequence[int]]) -> int:
    """Atoms of the smallest ring through a bond, by a breadth-first search around it; 0 if none."""
    seen, front, size = {u}, [a for a in near[u] if a != v], 2
    while front:
        if v in front:
            return size
        seen.update(front)
        front = sorted({other for a in front for other in near[a]} - seen)
        size += 1
    return 0
