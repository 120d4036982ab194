"""What happens if one atom is another: molecules that differ from a given one in a single atom."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from nicegnn.molecule.smiles import require_rdkit

if TYPE_CHECKING:
    from rdkit.Chem import Atom, Mol, RWMol

_ELEMENTS = ("C", "N", "O", "S", "F", "Cl")  # an atom can become
_ADDED = {"CH₃": "C", "NH₂": "N", "OH": "O", "F": "F", "Cl": "Cl"}  # instead of a hydrogen


def changed_molecules(mol: Mol, atom: int) -> list[tuple[str, str]]:
    """Returns what was changed and the SMILES, for each molecule with one other atom.

    Molecules that break rules of valence or fall apart are left out.

    >>> from nicegnn.molecule.smiles import parse_smiles
    >>> [smiles for what, smiles in changed_molecules(parse_smiles("CF"), 1)]
    ['CC', 'CN', 'CO', 'CS', 'CCl', 'C']
    """
    chem = require_rdkit()
    change_of: dict[str, str] = {}
    start = chem.MolToSmiles(chem.RemoveHs(mol))
    plain = chem.RWMol(mol)
    chem.Kekulize(plain, clearAromaticFlags=True)
    with require_rdkit("rdkit.rdBase").BlockLogs():
        for what, changed in _candidates(plain, atom):
            try:
                chem.SanitizeMol(changed)
                smiles = chem.MolToSmiles(chem.RemoveHs(changed))
            except (ValueError, RuntimeError):  # RDKit's errors of valence and aromatic rings
                continue
            if smiles and smiles != start and smiles.count(".") == start.count("."):
                change_of.setdefault(smiles, what)
    return [(what, smiles) for smiles, what in change_of.items()]


def _candidates(mol: RWMol, atom: int) -> Iterator[tuple[str, RWMol]]:
    """Yields an atom as another element, left out, or with a neighbour instead of a hydrogen."""
    chem = require_rdkit()
    old = mol.GetAtomWithIdx(atom)
    name = f"{old.GetSymbol()}{atom}"
    joined = old.GetTotalValence() - old.GetTotalNumHs()  # valence without hydrogens
    for symbol in _ELEMENTS:
        if symbol != old.GetSymbol() and (symbol != "S" or joined <= 2):  # RDKit allows S(IV)
            changed = chem.RWMol(mol)
            changed.ReplaceAtom(atom, chem.Atom(symbol))  # without charge, isotope or chirality
            yield f"{name} → {symbol}", changed
    if old.GetDegree() == 1:
        changed = chem.RWMol(mol)
        _count_hydrogens_anew(changed.GetAtomWithIdx(old.GetNeighbors()[0].GetIdx()))
        changed.RemoveAtom(atom)
        yield f"without {name}", changed
    if old.GetTotalNumHs() > 0:
        groups = _ADDED if old.GetSymbol() == "C" else {"CH₃": "C"}  # no peroxides and the like
        for group, symbol in groups.items():
            changed = chem.RWMol(mol)
            _count_hydrogens_anew(changed.GetAtomWithIdx(atom))
            changed.AddBond(atom, changed.AddAtom(chem.Atom(symbol)), chem.BondType.SINGLE)
            yield f"{group} on {name}", changed


def _count_hydrogens_anew(atom: Atom) -> None:
    atom.SetNumExplicitHs(0)
    atom.SetNoImplicit(False)
