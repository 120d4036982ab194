"""What a chemist calls the bonds of a molecule: the groups and rings that they belong to.

Names of groups come from two catalogues that RDKit ships, see ``groups.toml``. Every bond has one
name: that of the most specific group that claims it, else that of its ring, else what it joins.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nicegnn.errors import ConfigError
from nicegnn.molecule.smiles import require_rdkit

if TYPE_CHECKING:
    from rdkit.Chem import Mol


@dataclass(frozen=True)
class Group:
    """A named group, and how its bonds are found."""

    pattern: Any  # RDKit query
    first_counts: bool  # whether all bonds of its first atom belong to it
    in_rings: bool  # whether it claims bonds of rings


@cache
def _tables() -> Mapping[str, Mapping[str, str]]:
    text = files("nicegnn.screening").joinpath("groups.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


@cache
def _catalogues() -> tuple[dict[str, str], dict[str, str]]:
    """Returns the SMARTS of both catalogues by their keys: group hierarchy, and fragments."""
    folder, catalogues = Path(require_rdkit("rdkit.RDConfig").RDDataDir), []
    places = (("Functional_Group_Hierarchy.txt", 1), ("FragmentDescriptors.csv", 2))
    for name, column in places:
        lines = (folder / name).read_text(encoding="utf-8").splitlines()
        cells = ([one.strip() for one in line.split("\t") if one.strip()] for line in lines)
        usable = [row for row in cells if len(row) > column and not row[0].startswith(("//", "#"))]
        catalogues.append({row[0]: row[column] for row in usable})
    return catalogues[0], catalogues[1]


@cache
def named_groups() -> Mapping[str, Group]:
    """Returns the groups of ``groups.toml`` by name, the most specific first."""
    hierarchy, fragments = _catalogues()
    group_of = {}
    for table in ("groups", "outside rings"):
        for name, key in _tables()[table].items():
            smarts = hierarchy.get(key) or fragments.get(key) or key
            group_of[name] = Group(_pattern(name, smarts), key in hierarchy, table == "groups")
    return group_of


@cache
def _ring_patterns() -> Mapping[str, Any]:
    return {name: _pattern(name, smarts) for name, smarts in _tables()["rings"].items()}


def find_patterns(words: tuple[str, ...]) -> dict[str, Any]:
    """Returns the patterns of words such as ``amide=NC=O``; a name of a group stands for itself."""
    rings = {f"{name} ring": pattern for name, pattern in _ring_patterns().items()}
    named = {name: group.pattern for name, group in named_groups().items()} | rings
    patterns = {}
    for word in words:
        name, _, smarts = word.partition("=")
        if smarts:
            patterns[name] = _pattern(name, smarts)
        elif name in named:
            patterns[name] = named[name]
        else:
            raise ConfigError(
                f"`substructure` must be NAME=SMARTS or one of {tuple(named)} (got {word!r})."
            )
    return patterns


def _pattern(name: str, smarts: str) -> Any:
    with require_rdkit("rdkit.rdBase").BlockLogs():
        pattern = require_rdkit().MolFromSmarts(smarts)
    if pattern is None:
        raise ConfigError(f"`substructure` {name!r} must be a SMARTS (got {smarts!r}).")
    return pattern


def groups_in(mol: Mol) -> list[tuple[str, tuple[int, ...], set[int]]]:
    """Returns name, atoms and bonds of the groups in a molecule, the most specific first.

    A group claims the bonds of its pattern that no group before it has. It is left out where a bond
    of one of its hetero atoms is taken: the oxygen of an ester makes no ether.
    """
    taken: set[int] = set()
    groups = []
    for name, group in named_groups().items():
        for match in mol.GetSubstructMatches(group.pattern):
            bonds = _claimed(mol, group, match)
            if not bonds or any(_is_polar(mol, bond) for bond in bonds & taken):
                continue
            if bonds - taken:
                groups.append((name, match, bonds - taken))
                taken |= bonds
    return groups


def _claimed(mol: Mol, group: Group, match: tuple[int, ...]) -> set[int]:
    """Returns the bonds that a group may claim: no aromatic ones, in rings only where it may."""
    edges = ((b.GetBeginAtomIdx(), b.GetEndAtomIdx()) for b in group.pattern.GetBonds())
    bonds = [mol.GetBondBetweenAtoms(match[u], match[v]) for u, v in edges]
    if group.first_counts:
        bonds += mol.GetAtomWithIdx(match[0]).GetBonds()
    usable = (bond for bond in bonds if not bond.GetIsAromatic())
    return {bond.GetIdx() for bond in usable if group.in_rings or not bond.IsInRing()}


def _is_polar(mol: Mol, bond: int) -> bool:
    joined = mol.GetBondWithIdx(bond)
    return any(a.GetAtomicNum() != 6 for a in (joined.GetBeginAtom(), joined.GetEndAtom()))


def ring_systems(mol: Mol) -> list[frozenset[int]]:
    """Returns the atoms of each ring system; rings that share an atom belong together."""
    systems: list[frozenset[int]] = []
    for ring in mol.GetRingInfo().AtomRings():
        joined = frozenset(ring)
        apart = []
        for system in systems:
            if system & joined:
                joined |= system
            else:
                apart.append(system)
        systems = [*apart, joined]
    return systems


def bond_groups(mol: Mol) -> list[str]:
    """Returns the name of each bond: its group, its ring, or what it joins.

    >>> from nicegnn.molecule.smiles import parse_smiles
    >>> bond_groups(parse_smiles("CCOC(=O)c1ccccc1"))[:5]
    ['carbon chain', 'ester', 'ester', 'ester', 'ester']
    """
    groups = groups_in(mol)
    names = {bond: name for name, _, bonds in groups for bond in bonds}
    places = _Places(mol, groups)
    return [names.get(bond.GetIdx()) or places.name(bond) for bond in mol.GetBonds()]


class _Places:
    """Names of the bonds of a molecule that belong to no group: of rings, chains and links."""

    def __init__(self, mol: Mol, groups: list[tuple[str, tuple[int, ...], set[int]]]) -> None:
        self.mol = mol
        self.rings = [frozenset(ring) for ring in mol.GetRingInfo().AtomRings()]
        systems = ring_systems(mol)
        names: dict[frozenset[int], str] = {}
        wanted = {*self.rings, *systems}
        for name, pattern in _ring_patterns().items() if wanted else ():
            for match in mol.GetSubstructMatches(pattern):
                if frozenset(match) in wanted:
                    names.setdefault(frozenset(match), f"{name} ring")
        self.ring_name = {ring: names.get(ring) or self._by_size(ring) for ring in self.rings}
        self.system_of = {atom: system for system in systems for atom in system}
        self.system_name = {system: names.get(system, "") for system in systems}
        self.group_of: dict[int, str] = {}  # of hetero atoms
        for name, atoms, _ in groups:
            for atom in atoms:
                if mol.GetAtomWithIdx(atom).GetAtomicNum() != 6:
                    self.group_of.setdefault(atom, name)

    def name(self, bond: Any) -> str:
        """Returns the name of a bond."""
        ends = bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()
        if bond.IsInRing():
            rings = [self.ring_name[ring] for ring in self.rings if {*ends} <= ring]
            system = self.system_name[self.system_of[ends[0]]]
            if len(rings) == 1:
                return system or rings[0]
            return f"fusion bond of {system or ' and '.join(sorted(rings))}"
        held = sorted(name for name in map(self._holder, ends) if name)
        if len(held) == 2:
            return f"link between {' and '.join(held)}"
        if held:
            return f"chain on {held[0]}"
        symbols = sorted(a.GetSymbol() for a in (bond.GetBeginAtom(), bond.GetEndAtom()))
        return "carbon chain" if symbols == ["C", "C"] else f"{'-'.join(symbols)} bond"

    def _holder(self, atom: int) -> str:
        """Returns the name of the group of a hetero atom, or of an atom's ring; else nothing."""
        if atom in self.group_of or atom not in self.system_of:
            return self.group_of.get(atom, "")
        system = self.system_name[self.system_of[atom]]
        return system or next(self.ring_name[ring] for ring in self.rings if atom in ring)

    def _by_size(self, ring: frozenset[int]) -> str:
        """Returns what a ring without a name is: its size, its elements, whether it is aromatic."""
        atoms = [self.mol.GetAtomWithIdx(atom) for atom in ring]
        kind = "aromatic " if all(atom.GetIsAromatic() for atom in atoms) else ""
        other = sorted({atom.GetSymbol() for atom in atoms} - {"C"})
        return f"{kind}{len(ring)}-membered ring{' with ' + ', '.join(other) if other else ''}"
