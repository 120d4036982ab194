"""The drawing of a graph as numbers: points, labels and bonds, to be coloured in the browser.

A picture per method would repeat the same molecule twenty times. Here it is laid out once, and the
page draws it as often as it needs, with the colours of each method.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nicegnn.molecule.smiles import BOND_TYPES, CATCH_ALL, MoleculeError, parse_smiles
from nicegnn.molecule.smiles import require_rdkit as rdkit

if TYPE_CHECKING:
    from rdkit.Chem import Mol

UNIT = 100  # length of a usual bond
_SUBSCRIPT = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")
_SUPERSCRIPT = str.maketrans("0123456789+-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻")

Bond = tuple[int, int, int]  # two ends, and 1 + its column of `BOND_TYPES`


@dataclass(frozen=True)
class Sketch:
    """A graph as it is drawn.

    Attributes:
        points: of the atoms; y grows downwards, a usual bond is `UNIT` long.
        atoms: element symbols.
        labels: (atom, text, side): side 0 centres the text on the atom, 1 lets it grow to the
            right, -1 to the left, so that hydrogens do not cover bonds.
        bonds: in the order of the scores.
        is_molecule: drawn as chemists do; otherwise every node is shown.
    """

    points: Sequence[tuple[int, int]]
    atoms: Sequence[str]
    labels: Sequence[tuple[int, str, int]]
    bonds: Sequence[Bond]
    is_molecule: bool

    def to_dict(self) -> dict[str, Any]:
        """Returns plain lists, flat where that is shorter."""
        return {
            "xy": [value for point in self.points for value in point],
            "atoms": " ".join(self.atoms),
            "labels": [list(label) for label in self.labels],
            "bonds": [value for bond in self.bonds for value in bond],
            "chem": int(self.is_molecule),
        }


def sketch(smiles: str, atoms: Sequence[str], bonds: Sequence[Bond]) -> Sketch:
    """Returns the drawing of a graph, as a molecule if its SMILES is that of the graph.

    Args:
        smiles: may be empty; then nodes and links are drawn, named by `atoms`.
        atoms: element symbol of each node.
        bonds: in the order of the scores.
    """
    if smiles:
        try:
            mol = parse_smiles(smiles)
        except MoleculeError:
            return _node_link(atoms, bonds)
        wanted = {frozenset(bond[:2]) for bond in bonds}
        found = {frozenset((b.GetBeginAtomIdx(), b.GetEndAtomIdx())) for b in mol.GetBonds()}
        if wanted == found and mol.GetNumAtoms() == len(atoms):
            return _molecule(mol, bonds)
    return _node_link(atoms, bonds)


def _molecule(mol: Mol, bonds: Sequence[Bond]) -> Sketch:
    prepare = rdkit("rdkit.Chem.Draw.rdMolDraw2D").PrepareMolForDrawing
    drawn = prepare(mol, addChiralHs=False, wedgeBonds=False)
    points = _points(drawn)
    order = {}
    for bond in drawn.GetBonds():  # Kekulé's form, so that rings have double bonds
        ends = frozenset((bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()))
        order[ends] = 1 + BOND_TYPES.index(str(bond.GetBondType()).lower())
    labels = []
    for atom in drawn.GetAtoms():
        if text := _label(atom, side := _free_side(atom, points)):
            labels.append((atom.GetIdx(), text, side))
    return Sketch(
        points=points,
        atoms=[atom.GetSymbol() for atom in drawn.GetAtoms()],
        labels=labels,
        bonds=[(u, v, order[frozenset((u, v))]) for u, v, _ in bonds],
        is_molecule=True,
    )


def _node_link(atoms: Sequence[str], bonds: Sequence[Bond]) -> Sketch:
    """Lays out nodes and links; chemistry is not checked, for the source did not."""
    chem = rdkit()
    mol = chem.RWMol()
    for symbol in atoms:
        mol.AddAtom(chem.Atom(0 if symbol in CATCH_ALL else symbol))
    for u, v, kind in bonds:
        mol.AddBond(u, v, getattr(chem.BondType, BOND_TYPES[kind - 1].upper()))
    mol.UpdatePropertyCache(strict=False)
    chem.FastFindRings(mol)
    rdkit("rdkit.Chem.rdDepictor").Compute2DCoords(mol)
    return Sketch(
        points=_points(mol),
        atoms=list(atoms),
        labels=[(node, symbol, 0) for node, symbol in enumerate(atoms) if symbol != "C"],
        bonds=list(bonds),
        is_molecule=False,
    )


def _points(mol: Mol) -> list[tuple[int, int]]:
    scale = UNIT / 1.5  # RDKit's usual bond is 1.5 long
    spots = mol.GetConformer().GetPositions()
    return [(round(scale * float(x)), round(-scale * float(y))) for x, y, _ in spots]


def _free_side(atom: Any, points: Sequence[tuple[int, int]]) -> int:
    """Tells where hydrogens have room: -1 left, 1 right."""
    here = points[atom.GetIdx()][0]
    lean = sum(points[other.GetIdx()][0] - here for other in atom.GetNeighbors())
    return -1 if lean > 0 else 1


def _label(atom: Any, side: int) -> str:
    """Returns the text at an atom; carbon inside a molecule has none."""
    charge, hydrogens = atom.GetFormalCharge(), atom.GetTotalNumHs()
    is_plain = atom.GetSymbol() == "C" and charge == 0 and atom.GetNumRadicalElectrons() == 0
    if is_plain and atom.GetDegree() > 0:
        return ""
    number = str(hydrogens).translate(_SUBSCRIPT) if hydrogens > 1 else ""
    tail = f"H{number}" if hydrogens else ""
    size = str(abs(charge)) if abs(charge) > 1 else ""
    sign = f"{size}{'+' if charge > 0 else '-'}".translate(_SUPERSCRIPT) if charge else ""
    return f"{tail}{atom.GetSymbol()}{sign}" if side < 0 else f"{atom.GetSymbol()}{tail}{sign}"
