r"""Chemistry rules that give a molecule its label and the bonds that cause it.

A rule looks at the molecule alone, so label and true explanation need no annotation. A truth may
have several *alternatives*: each is a set of bonds that on its own explains label 1.

Where the published data agree with these rules (see the tests):

* GraphXAI's benzene set follows ``benzene``. Its two carbonyl sets carry each other's name: the
  masks and labels of "alkane-carbonyl" follow ``fluoride-carbonyl`` and those of
  "fluoride-carbonyl" follow ``alkane-carbonyl``. Rules are named here after the chemistry;
  `GRAPHXAI_RULES` maps the published names.
* B-XAIC's tasks are ``indole``, ``pains``, ``rings-count`` and ``rings-max``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from math import prod
from typing import TYPE_CHECKING, Any

from nicegnn.errors import ConfigError
from nicegnn.molecule.smiles import parse_smiles, require_rdkit

if TYPE_CHECKING:
    from rdkit.Chem import Mol

Indices = frozenset[int]

#: Rule behind each published GraphXAI set; the two carbonyl names are swapped there.
GRAPHXAI_RULES = {
    "benzene": "benzene",
    "alkane_carbonyl": "fluoride-carbonyl",
    "fluoride_carbonyl": "alkane-carbonyl",
}

#: Beyond this many combinations only the smallest and the largest are listed.
MAX_ALTERNATIVES = 4096
_ALL_MATCHES = 1_000_000  # RDKit stops at 1000 matches unless told otherwise

_BENZENE = "c1ccccc1"
_CARBONYL = "[CX3]=O"
_FLUORIDE = "[FX1]"
_UNBRANCHED_ALKANE = "[R0;D2,D1][R0;D2][R0;D2,D1]"
_INDOLE = "c1ccc2nccc2c1"


@dataclass(frozen=True)
class Truth:
    """Label of a molecule under a rule, and what causes it.

    Attributes:
        label: 1 if the rule holds, else 0.
        alternatives: sets of RDKit bond numbers, without repetition, the largest one last; empty
            for label 0.
        atom_alternatives: the atom sets behind them, in the order of the published masks. Several
            atom sets may hold the same bonds (a fluorine alone adds no bond), so the two tuples
            can differ in length.
    """

    label: int
    alternatives: tuple[Indices, ...] = ()
    atom_alternatives: tuple[Indices, ...] = ()

    @property
    def union(self) -> Indices:
        """All bonds of all alternatives; empty for label 0."""
        return frozenset().union(*self.alternatives)


@dataclass(frozen=True)
class Rule:
    """A named rule: when its label is 1, and how to find the truth of a molecule."""

    name: str
    meaning: str
    find: Callable[[Mol], Truth]


def truth_of(molecule: Mol | str, task: str) -> Truth:
    """Returns label and true bonds of a molecule under the rule named ``task``.

    Args:
        molecule: A SMILES string or a sanitised RDKit molecule; bond numbers are RDKit's.
        task: A key of `RULES`.

    Raises:
        ConfigError: If no rule has this name.
        MoleculeError: If the SMILES cannot be read.

    >>> sorted(truth_of("Cc1ccccc1", "benzene").union)
    [1, 2, 3, 4, 5, 6]
    """
    rule = RULES.get(task)
    if rule is None:
        raise ConfigError(f"task: expected one of {', '.join(RULES)}, got {task!r}.")
    return rule.find(parse_smiles(molecule) if isinstance(molecule, str) else molecule)


def _groups(*smarts: str) -> Callable[[Mol], Truth]:
    r"""Rule: every pattern occurs; one match of each is enough.

    With matches :math:`M_1, \dots, M_k` of the patterns (atom sets), the alternatives are

    .. math:: \Big\{ \bigcup_{j} \bigcup S_j \;:\; \emptyset \ne S_j \subseteq M_j \Big\},

    the first pattern in the outer loop, smaller subsets first: the order of the published masks.
    The bonds of an atom set are those with both ends in it; they include a bond that links two
    matches, as in biphenyl.
    """

    def find(mol: Mol) -> Truth:
        families = [[frozenset(match) for match in _matches(mol, pattern)] for pattern in smarts]
        if not all(families):
            return Truth(0)
        atom_sets = unions(families)
        ends = [(bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()) for bond in mol.GetBonds()]
        bond_sets = (
            frozenset(b for b, (u, v) in enumerate(ends) if u in atoms and v in atoms)
            for atoms in atom_sets
        )
        return Truth(1, distinct(bond_sets), tuple(atom_sets))

    return find


def unions(families: Sequence[Sequence[Indices]]) -> list[Indices]:
    r"""Returns unions of one non-empty subset of each family; see `_groups` for the order.

    There are :math:`\prod_j (2^{|M_j|} - 1)` of them. Above `MAX_ALTERNATIVES`, only subsets
    with a single member and the full ones are used.
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


def _indole(mol: Mol) -> Truth:
    """Indole ring system; alternatives are unions of matches, each with the bonds drawn."""
    pattern = _pattern(_INDOLE)
    matches = _matches(mol, _INDOLE)
    if not matches:
        return Truth(0)
    bond_sets = unions([[_drawn_bonds(mol, pattern, match) for match in matches]])
    atom_sets = unions([[frozenset(match) for match in matches]])
    return Truth(1, distinct(bond_sets), tuple(atom_sets))


def _pains(mol: Mol) -> Truth:
    """PAINS filters; the truth is the union over all filters that hit and all their matches.

    A filter hit reports one match only, so its pattern is searched again for all of them.
    """
    bonds: set[int] = set()
    atoms: set[int] = set()
    for entry in _pains_catalog().GetMatches(mol):
        for hit in entry.GetFilterMatches(mol):
            pattern = hit.filterMatch.GetPattern()
            for match in mol.GetSubstructMatches(pattern, maxMatches=_ALL_MATCHES):
                bonds |= _drawn_bonds(mol, pattern, match)
                atoms |= set(match)
    return Truth(1, (frozenset(bonds),), (frozenset(atoms),)) if atoms else Truth(0)


def _rings_count(mol: Mol) -> Truth:
    """More than four rings; the truth is every ring bond."""
    rings = mol.GetRingInfo().BondRings()
    return _rings(mol, rings) if len(rings) > 4 else Truth(0)


def _rings_max(mol: Mol) -> Truth:
    """A ring of more than six atoms; the truth is every bond of the rings of largest size."""
    rings = mol.GetRingInfo().BondRings()
    size = max(map(len, rings), default=0)
    return _rings(mol, [ring for ring in rings if len(ring) == size]) if size > 6 else Truth(0)


def _rings(mol: Mol, rings: Iterable[Iterable[int]]) -> Truth:
    bonds = frozenset(bond for ring in rings for bond in ring)
    ends = [mol.GetBondWithIdx(bond) for bond in bonds]
    atoms = frozenset(a for b in ends for a in (b.GetBeginAtomIdx(), b.GetEndAtomIdx()))
    return Truth(1, (bonds,), (atoms,))


@cache
def _pattern(smarts: str) -> Any:
    return require_rdkit().MolFromSmarts(smarts)


def _matches(mol: Mol, smarts: str) -> list[tuple[int, ...]]:
    """Matches with distinct atom sets, each as the atoms in the pattern's order."""
    return list(mol.GetSubstructMatches(_pattern(smarts), maxMatches=_ALL_MATCHES))


def _drawn_bonds(mol: Mol, pattern: Any, match: Sequence[int]) -> Indices:
    """Bonds of the molecule that the pattern itself draws between matched atoms."""
    return frozenset(
        mol.GetBondBetweenAtoms(match[bond.GetBeginAtomIdx()], match[bond.GetEndAtomIdx()]).GetIdx()
        for bond in pattern.GetBonds()
    )


@cache
def _pains_catalog() -> Any:
    catalog = require_rdkit("rdkit.Chem.FilterCatalog")
    params = catalog.FilterCatalogParams()
    params.AddCatalog(catalog.FilterCatalogParams.FilterCatalogs.PAINS)
    return catalog.FilterCatalog(params)


#: All rules by name. Rings are RDKit's: the smallest set of smallest rings, symmetrised (equivalent
#: rings are all kept, so cubane has six), which is also what the B-XAIC labels count.
RULES: dict[str, Rule] = {
    rule.name: rule
    for rule in (
        Rule("benzene", "an aromatic ring of six carbons", _groups(_BENZENE)),
        Rule(
            "fluoride-carbonyl",
            "a fluorine and a non-aromatic C=O",
            _groups(_FLUORIDE, _CARBONYL),
        ),
        Rule(
            "alkane-carbonyl",
            "an unbranched chain of three atoms outside rings and a non-aromatic C=O",
            _groups(_UNBRANCHED_ALKANE, _CARBONYL),
        ),
        Rule("indole", "an indole ring system", _indole),
        Rule("pains", "a hit of RDKit's PAINS filters", _pains),
        Rule("rings-count", "more than four rings", _rings_count),
        Rule("rings-max", "a ring of more than six atoms", _rings_max),
    )
}
