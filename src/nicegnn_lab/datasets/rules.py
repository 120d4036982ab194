r"""Rules of truth: the label of a molecule and the bonds that cause it.

A truth may have several *alternatives*: each is a set of bonds that explains label 1 on its own.
GraphXAI's benzene set follows ``benzene``. Its two carbonyl sets carry each other's name: the masks
and labels of "alkane-carbonyl" follow ``fluoride-carbonyl`` and those of "fluoride-carbonyl" follow
``alkane-carbonyl``. Rules are named here after the chemistry; all published data agree with them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import prod
from typing import TYPE_CHECKING

from nicegnn.config import check_choice
from nicegnn.molecule.smiles import Bond, bond_ends, parse_smiles, require_rdkit

if TYPE_CHECKING:
    from rdkit.Chem import Mol

Indices = frozenset[int]

#: Beyond this many combinations only the smallest and the largest are listed.
MAX_ALTERNATIVES = 4096

_ALL_MATCHES = 1_000_000  # RDKit stops at 1000 matches unless told otherwise
_CARBONYL = "[CX3]=O"  # not aromatic
_UNBRANCHED_ALKANE = "[R0;D2,D1][R0;D2][R0;D2,D1]"  # three atoms outside rings


@dataclass(frozen=True)
class MoleculeTruth:
    """Label of a molecule in one task, and its explanation, which is empty for label 0."""

    label: int  # 0 or 1
    alternatives: tuple[Indices, ...] = ()  # sets of bonds, without repetition, the largest last
    atoms: Indices = frozenset()  # atoms of all alternatives
    annotation: Indices | None = None  # bonds that the benchmark marks for both labels

    @property
    def union(self) -> Indices:
        """All bonds of all alternatives; empty for label 0."""
        return frozenset().union(*self.alternatives)


def truth_of_atom_sets(
    label: int, atom_sets: Iterable[Iterable[int]], ends: Sequence[tuple[int, ...]]
) -> MoleculeTruth:
    """Returns the truth of sets of atoms: a bond belongs to a set that holds both its ends.

    This includes bonds between two matches, as in biphenyl. ``ends`` starts with the two atoms of
    each bond.
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

    The order is that of the published masks: :math:`M_1` is the outer loop, smaller subsets come
    first. For more than `MAX_ALTERNATIVES` unions, only single members and full families are used.
    """
    full = prod(2 ** len(family) - 1 for family in families) <= MAX_ALTERNATIVES
    joined: list[Indices] = [frozenset()]
    for family in families:
        sizes = range(1, len(family) + 1) if full else sorted({1, len(family)})
        parts = [frozenset().union(*members) for n in sizes for members in combinations(family, n)]
        joined = [union | part for union in joined for part in parts]
    return joined


def distinct(bond_sets: Iterable[Indices]) -> tuple[Indices, ...]:
    """Returns sets without repetition, in order, with the union of all at the end."""
    sets = list(dict.fromkeys(bond_sets))
    largest = frozenset().union(*sets)
    return (*(bonds for bonds in sets if bonds != largest), largest)


#: Groups that explain label 1 together, by the name of their rule.
GROUPS = {
    "benzene": ("c1ccccc1",),
    "fluoride-carbonyl": ("[FX1]", _CARBONYL),
    "alkane-carbonyl": (_UNBRANCHED_ALKANE, _CARBONYL),
}


def truth_of(molecule: Mol | str, task: str) -> MoleculeTruth:
    """Returns label and true bonds of a molecule under a rule of `GROUPS`.

    The molecule is a SMILES string or a sanitised RDKit molecule; bond numbers are RDKit's.

    >>> sorted(truth_of("Cc1ccccc1", "benzene").union)
    [1, 2, 3, 4, 5, 6]
    """
    check_choice("task", task, GROUPS)
    mol = parse_smiles(molecule) if isinstance(molecule, str) else molecule
    sets = group_atoms(mol, GROUPS[task])
    return truth_of_atom_sets(int(bool(sets)), sets, bond_ends(mol))


def group_atoms(mol: Mol, smarts: Sequence[str]) -> list[Indices]:
    """Returns the sets of atoms that explain label 1, none unless every pattern occurs."""
    families = []
    for pattern in map(require_rdkit().MolFromSmarts, smarts):
        matches = mol.GetSubstructMatches(pattern, maxMatches=_ALL_MATCHES)
        families.append([frozenset(match) for match in matches])
    return unions(families) if all(families) else []


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
