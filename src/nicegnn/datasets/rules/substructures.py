"""Rules that RDKit evaluates: benzene, carbonyl groups, indole, PAINS filters, rings, elements.

Where the published data agree with these rules (see the tests):

* GraphXAI's benzene set follows ``benzene``. Its two carbonyl sets carry each other's name: the
  masks and labels of "alkane-carbonyl" follow ``fluoride-carbonyl`` and those of
  "fluoride-carbonyl" follow ``alkane-carbonyl``. Rules are named here after the chemistry.
* B-XAIC's tasks are ``indole``, ``pains``, ``rings-count`` and ``rings-max``; its tasks ``B``,
  ``P`` and ``X`` ask for an element (`ELEMENTS`), so their truth lies on atoms.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from nicegnn.config import check_choice
from nicegnn.datasets.rules import Indices, MoleculeTruth, distinct, truth_of_atom_sets, unions
from nicegnn.molecule.smiles import parse_smiles, require_rdkit

if TYPE_CHECKING:
    from rdkit.Chem import Mol

_ALL_MATCHES = 1_000_000  # RDKit stops at 1000 matches unless told otherwise

_CARBONYL = "[CX3]=O"  # not aromatic
_UNBRANCHED_ALKANE = "[R0;D2,D1][R0;D2][R0;D2,D1]"  # three atoms outside rings
_INDOLE = "c1ccc2nccc2c1"

#: Elements that make a molecule positive, by task of B-XAIC.
ELEMENTS = {"B": frozenset({"B"}), "P": frozenset({"P"}), "X": frozenset({"F", "Cl", "Br", "I"})}


def truth_of(molecule: Mol | str, task: str) -> MoleculeTruth:
    """Returns label and true bonds of a molecule under the rule named ``task``.

    Args:
        molecule: a SMILES string or a sanitised RDKit molecule; bond numbers are RDKit's.
        task: a key of `RULES`.

    >>> sorted(truth_of("Cc1ccccc1", "benzene").union)
    [1, 2, 3, 4, 5, 6]
    """
    check_choice("task", task, RULES)
    return RULES[task](parse_smiles(molecule) if isinstance(molecule, str) else molecule)


def element_truth(atoms: Sequence[str], task: str) -> MoleculeTruth:
    """Returns label and true atoms for a task of `ELEMENTS`; its bonds explain nothing.

    >>> element_truth(["C", "Cl"], "X").atoms
    frozenset({1})
    """
    found = frozenset(index for index, atom in enumerate(atoms) if atom in ELEMENTS[task])
    return MoleculeTruth(int(bool(found)), atoms=found)


def _groups(*smarts: str) -> Callable[[Mol], MoleculeTruth]:
    """Rule: every pattern occurs; the alternatives are the `unions` of their matches, as atoms."""

    def find(mol: Mol) -> MoleculeTruth:
        families = [[frozenset(match) for match in _matches(mol, pattern)] for pattern in smarts]
        if not all(families):
            return MoleculeTruth(0)
        ends = [(bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()) for bond in mol.GetBonds()]
        return truth_of_atom_sets(1, unions(families), ends)

    return find


def _indole(mol: Mol) -> MoleculeTruth:
    """Indole ring system; alternatives are unions of matches, each with the bonds drawn."""
    matches = _matches(mol, _INDOLE)
    if not matches:
        return MoleculeTruth(0)
    bond_sets = unions([[_drawn_bonds(mol, _pattern(_INDOLE), match) for match in matches]])
    return MoleculeTruth(1, distinct(bond_sets), frozenset().union(*matches))


def _pains(mol: Mol) -> MoleculeTruth:
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
    return MoleculeTruth(1, (frozenset(bonds),), frozenset(atoms)) if atoms else MoleculeTruth(0)


def _rings_count(mol: Mol) -> MoleculeTruth:
    """More than four rings; the truth is every ring bond."""
    rings = mol.GetRingInfo().BondRings()
    return _ring_bonds(mol, rings) if len(rings) > 4 else MoleculeTruth(0)


def _rings_max(mol: Mol) -> MoleculeTruth:
    """A ring of more than six atoms; the truth is every bond of the rings of largest size."""
    rings = mol.GetRingInfo().BondRings()
    size = max(map(len, rings), default=0)
    if size <= 6:
        return MoleculeTruth(0)
    return _ring_bonds(mol, [ring for ring in rings if len(ring) == size])


def _ring_bonds(mol: Mol, rings: Iterable[Iterable[int]]) -> MoleculeTruth:
    bonds = frozenset(bond for ring in rings for bond in ring)
    ends = [mol.GetBondWithIdx(bond) for bond in bonds]
    atoms = frozenset(a for b in ends for a in (b.GetBeginAtomIdx(), b.GetEndAtomIdx()))
    return MoleculeTruth(1, (bonds,), atoms)


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


#: All rules by name; each finds the truth of a molecule. Rings are RDKit's: the smallest set of
#: smallest rings, symmetrised (equivalent rings are all kept, so cubane has six), which is also
#: what the B-XAIC labels count.
RULES: dict[str, Callable[[Mol], MoleculeTruth]] = {
    "benzene": _groups("c1ccccc1"),
    "fluoride-carbonyl": _groups("[FX1]", _CARBONYL),
    "alkane-carbonyl": _groups(_UNBRANCHED_ALKANE, _CARBONYL),
    "indole": _indole,
    "pains": _pains,
    "rings-count": _rings_count,
    "rings-max": _rings_max,
}
