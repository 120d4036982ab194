"""Tables of atoms and bonds: columns of elements, and what is refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from nicegnn.molecule import smiles
from nicegnn.molecule.smiles import Bond

if TYPE_CHECKING:
    from rdkit.Chem import Mol

#: Node columns of the B-XAIC benchmark; ``Unk`` collects every other element.
ATOMS_BXAIC = ("C", "N", "O", "F", "Cl", "Br", "P", "S", "B", "I", "Unk")
#: Node columns of the TUDataset "Mutagenicity"; it has no column for other elements.
ATOMS_MUTAGENICITY = (*("C", "O", "Cl", "H", "N", "F", "Br", "S", "P", "I"), "Na", "K", "Li", "Ca")


def molecule_tables(mol: Mol) -> tuple[list[str], list[Bond]]:
    """Returns element symbols and bonds ``(u, v, type)`` of an RDKit molecule, in its order."""
    pairs = zip(smiles.bond_ends(mol), smiles.bond_types(mol), strict=True)
    return [atom.GetSymbol() for atom in mol.GetAtoms()], [(u, v, t + 1) for (u, v), t in pairs]


def atom_columns(atoms: Sequence[str], vocabulary: Sequence[str]) -> list[int]:
    """Returns the column of each atom; other elements take a last column ``"Unk"`` or ``"*"``."""
    if not atoms:
        raise smiles.MoleculeError("`atoms` must hold at least one atom (got none). Drop the row.")
    column = {symbol: index for index, symbol in enumerate(vocabulary)}
    lost = [symbol for symbol in atoms if symbol not in column]
    if lost and vocabulary[-1] not in ("Unk", "*"):
        raise smiles.MoleculeError(
            f"Atoms must be among {' '.join(vocabulary)} (got {lost[0]!r}). Add it to the "
            "vocabulary, or append 'Unk'."
        )
    return [column.get(symbol, len(vocabulary) - 1) for symbol in atoms]


def check_bonds(bonds: Sequence[Bond], num_atoms: int) -> None:
    """Raises unless each bond has a known type and joins two atoms that no other bond joins."""
    seen: set[frozenset[int]] = set()
    for u, v, kind in bonds:
        pair = frozenset((u, v))
        is_new = len(pair) == 2 and pair not in seen
        if not is_new or not 0 <= min(pair) <= max(pair) < num_atoms or kind not in (1, 2, 3, 4):
            raise smiles.MoleculeError(
                f"A bond must join two of the atoms 0 to {num_atoms - 1}, once, with the type 1, "
                f"2, 3 or 4 for {', '.join(smiles.BOND_TYPES)} (got {u}-{v}:{kind}). Correct it."
            )
        seen.add(pair)
