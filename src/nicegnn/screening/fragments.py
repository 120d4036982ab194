"""Parts of a molecule that a chemist has a name for: groups, ring systems, BRICS fragments."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from nicegnn.errors import ConfigError
from nicegnn.molecule.smiles import require_rdkit

if TYPE_CHECKING:
    from rdkit.Chem import Mol


@dataclass(frozen=True)
class Fragment:
    """One part of one molecule."""

    kind: str  # "group", "ring system" or "BRICS"
    name: str  # of a group, else a SMILES
    atoms: frozenset[int]
    bonds: frozenset[int]  # bonds between these atoms; of a group, those that its pattern draws


def fragments_of(mol: Mol) -> Iterator[Fragment]:
    """Yields all parts of a molecule; they overlap."""
    for name, pattern in named_groups().items():
        for match in mol.GetSubstructMatches(pattern):
            yield Fragment("group", name, frozenset(match), _drawn_bonds(mol, pattern, match))
    for ring in ring_systems(mol):
        yield _by_smiles("ring system", mol, ring)
    for piece in brics_pieces(mol):
        yield _by_smiles("BRICS", mol, piece)


@cache
def named_groups() -> Mapping[str, Any]:
    """Returns the patterns of ``groups.toml`` by name."""
    text = files("nicegnn.screening").joinpath("groups.toml").read_text(encoding="utf-8")
    return {name: _pattern(name, smarts) for name, smarts in tomllib.loads(text).items()}


def find_patterns(words: tuple[str, ...]) -> dict[str, Any]:
    """Returns the patterns of words such as ``amide=NC=O``; a name of a group stands for itself."""
    found = {}
    for word in words:
        name, _, smarts = word.partition("=")
        if smarts:
            found[name] = _pattern(name, smarts)
        elif name in named_groups():
            found[name] = named_groups()[name]
        else:
            raise ConfigError(
                f"`substructure` must be NAME=SMARTS or one of {tuple(named_groups())} (got "
                f"{word!r})."
            )
    return found


def _pattern(name: str, smarts: str) -> Any:
    with require_rdkit("rdkit.rdBase").BlockLogs():
        found = require_rdkit().MolFromSmarts(smarts)
    if found is None:
        raise ConfigError(f"`substructure` {name!r} must be a SMARTS (got {smarts!r}).")
    return found


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


def brics_pieces(mol: Mol) -> list[frozenset[int]]:
    """Returns the atoms of each piece that is left when all BRICS bonds are cut; none uncut."""
    chem, brics = require_rdkit(), require_rdkit("rdkit.Chem.BRICS")
    cut = {frozenset(atoms) for atoms, _ in brics.FindBRICSBonds(mol)}
    if not cut:
        return []
    numbers = [mol.GetBondBetweenAtoms(*pair).GetIdx() for pair in cut]
    pieces = chem.FragmentOnBonds(mol, numbers, addDummies=False)
    return [frozenset(atoms) for atoms in chem.GetMolFrags(pieces)]


def _by_smiles(kind: str, mol: Mol, atoms: frozenset[int]) -> Fragment:
    name = require_rdkit().MolFragmentToSmiles(mol, sorted(atoms), isomericSmiles=False)
    inside = (
        bond.GetIdx()
        for bond in mol.GetBonds()
        if {bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()} <= atoms
    )
    return Fragment(kind, name, atoms, frozenset(inside))


def _drawn_bonds(mol: Mol, pattern: Any, match: tuple[int, ...]) -> frozenset[int]:
    pairs = ((b.GetBeginAtomIdx(), b.GetEndAtomIdx()) for b in pattern.GetBonds())
    return frozenset(mol.GetBondBetweenAtoms(match[u], match[v]).GetIdx() for u, v in pairs)


def bond_groups(mol: Mol) -> list[str]:
    """Returns for each bond the named groups that hold it, as words; else what kind of place it is.

    >>> from nicegnn.molecule.smiles import parse_smiles
    >>> bond_groups(parse_smiles("CCO"))
    ['chain', 'alcohol']
    """
    names: list[dict[str, None]] = [{} for _ in range(mol.GetNumBonds())]
    for name, pattern in named_groups().items():
        for match in mol.GetSubstructMatches(pattern):
            for bond in _drawn_bonds(mol, pattern, match):
                names[bond][name] = None
    return [", ".join(own) or _place(mol.GetBondWithIdx(bond)) for bond, own in enumerate(names)]


def _place(bond: Any) -> str:
    if bond.IsInRing():
        return "ring"
    in_ring = bond.GetBeginAtom().IsInRing(), bond.GetEndAtom().IsInRing()
    return "link between rings" if all(in_ring) else "on a ring" if any(in_ring) else "chain"
