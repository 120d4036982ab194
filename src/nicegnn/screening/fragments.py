"""What a chemist calls the bonds of a molecule: the groups and rings that they belong to.

Every bond has one name: of the most specific group that claims it, its ring, or what it joins.
"""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

from nicegnn.errors import ConfigError
from nicegnn.molecule.smiles import require_rdkit


class Group(NamedTuple):
    """A named group, and how its bonds are found."""

    pattern: Any  # RDKit query
    first_counts: bool  # whether all bonds of its first atom belong to it
    in_rings: bool  # whether it claims bonds of rings


@cache
def _named() -> tuple[dict[str, Group], dict[str, Any]]:
    """Returns the groups of ``groups.toml``, the most specific first, and the patterns of rings."""
    told = tomllib.loads((files("nicegnn.screening") / "groups.toml").read_text(encoding="utf-8"))
    groups = {
        name: Group(_pattern(name, smarts), name in told["whole"], table == "groups")
        for table in ("groups", "outside rings")
        for name, smarts in told[table].items()
    }
    return groups, {f"{name} ring": _pattern(name, one) for name, one in told["rings"].items()}


def find_patterns(words: tuple[str, ...]) -> dict[str, Any]:
    """Returns the patterns of words such as ``amide=NC=O``; a name of a group stands for itself."""
    groups, rings = _named()
    named, patterns = {**{name: group.pattern for name, group in groups.items()}, **rings}, {}
    for word in words:
        name, _, smarts = word.partition("=")
        if not smarts and name not in named:
            raise ConfigError(
                f"`substructure` must be NAME=SMARTS or one of {tuple(named)} (got {word!r})."
            )
        patterns[name] = _pattern(name, smarts) if smarts else named[name]
    return patterns


def _pattern(name: str, smarts: str) -> Any:
    with require_rdkit("rdkit.rdBase").BlockLogs():
        pattern = require_rdkit().MolFromSmarts(smarts)
    if pattern is None:
        raise ConfigError(f"`substructure` {name!r} must be a SMARTS (got {smarts!r}).")
    return pattern


def groups_in(mol: Any) -> list[tuple[str, tuple[int, ...], set[int]]]:
    """Returns name, atoms and bonds of the groups in a molecule, the most specific first.

    A group claims the bonds of its pattern that no group before it has: no aromatic ones, and those
    of rings only where it may. It is left out where a bond of one of its hetero atoms is taken: the
    oxygen of an ester makes no ether.
    """
    taken: set[int] = set()
    groups = []
    for name, group in _named()[0].items():
        edges = [(b.GetBeginAtomIdx(), b.GetEndAtomIdx()) for b in group.pattern.GetBonds()]
        for match in mol.GetSubstructMatches(group.pattern):
            inside = [mol.GetBondBetweenAtoms(match[u], match[v]) for u, v in edges]
            inside += mol.GetAtomWithIdx(match[0]).GetBonds() if group.first_counts else ()
            claimed = {
                bond.GetIdx(): {bond.GetBeginAtom().GetSymbol(), bond.GetEndAtom().GetSymbol()}
                for bond in inside
                if not bond.GetIsAromatic() and (group.in_rings or not bond.IsInRing())
            }
            new = claimed.keys() - taken
            if new and all(claimed[bond] == {"C"} for bond in claimed.keys() & taken):
                groups.append((name, match, new))
                taken |= new
    return groups


def bond_groups(mol: Any) -> list[str]:
    """Returns the name of each bond: its group, its ring, or what it joins."""
    groups = groups_in(mol)
    rings = [frozenset(ring) for ring in mol.GetRingInfo().AtomRings()]
    system_of: dict[int, frozenset[int]] = {}  # atom to all atoms of its fused rings
    for ring in rings:
        joined = ring.union(*(system_of.get(atom, ()) for atom in ring))
        system_of |= dict.fromkeys(joined, joined)
    known, wanted = dict[frozenset[int], str](), {*rings, *system_of.values()}
    for name, pattern in _named()[1].items() if wanted else ():
        for match in mol.GetSubstructMatches(pattern):
            if frozenset(match) in wanted:
                known.setdefault(frozenset(match), name)
    of_ring = {ring: known.get(ring) or _by_size(mol, ring) for ring in rings}
    holder = {  # atom to the name of what holds it: its ring, for hetero atoms their group
        atom: known.get(system) or next(of_ring[ring] for ring in rings if atom in ring)
        for atom, system in system_of.items()
    }
    names: dict[int, str] = {}
    for name, atoms, bonds in reversed(groups):  # the most specific group has the last word
        names |= dict.fromkeys(bonds, name)
        hetero = (atom for atom in atoms if mol.GetAtomWithIdx(atom).GetAtomicNum() != 6)
        holder |= dict.fromkeys(hetero, name)
    for bond in mol.GetBonds():
        if bond.GetIdx() in names:
            continue
        ends = {bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()}
        held = sorted(holder[end] for end in ends if end in holder)
        around = sorted(of_ring[ring] for ring in rings if ends <= ring)
        if around:
            name = known.get(system_of[min(ends)]) or " and ".join(around)
            name = name if len(around) == 1 else f"fusion bond of {name}"
        elif held:
            name = f"chain on {held[0]}" if len(held) == 1 else f"link between {' and '.join(held)}"
        else:
            symbols = sorted((bond.GetBeginAtom().GetSymbol(), bond.GetEndAtom().GetSymbol()))
            name = "carbon chain" if symbols == ["C", "C"] else f"{'-'.join(symbols)} bond"
        names[bond.GetIdx()] = name
    return [names[number] for number in range(mol.GetNumBonds())]


def _by_size(mol: Any, ring: frozenset[int]) -> str:
    """Returns what a ring without a name is: its size, its elements, whether it is aromatic."""
    atoms = [mol.GetAtomWithIdx(atom) for atom in ring]
    kind = "aromatic " if all(atom.GetIsAromatic() for atom in atoms) else ""
    other = sorted({atom.GetSymbol() for atom in atoms} - {"C"})
    return f"{kind}{len(ring)}-membered ring{' with ' + ', '.join(other) if other else ''}"
