"""Tables of atoms and bonds: columns of elements, and what is refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, get_args

from nicegnn.config import check_choice
from nicegnn.errors import ConfigError
from nicegnn.molecule.smiles import (
    BOND_TYPES,
    CATCH_ALL,
    Bond,
    MoleculeError,
    bond_ends,
    bond_types,
)

if TYPE_CHECKING:
    from rdkit.Chem import Mol

Unknown = Literal["error", "last"]

#: Node columns of the B-XAIC benchmark; ``Unk`` collects every other element.
ATOMS_BXAIC = ("C", "N", "O", "F", "Cl", "Br", "P", "S", "B", "I", "Unk")
#: Node columns of the TUDataset "Mutagenicity"; it has no column for other elements.
ATOMS_MUTAGENICITY = (
    "C", "O", "Cl", "H", "N", "F", "Br", "S", "P", "I", "Na", "K", "Li", "Ca",
)  # fmt: skip


def molecule_tables(mol: Mol) -> tuple[list[str], list[Bond]]:
    """Returns element symbols and bonds ``(u, v, type)`` of an RDKit molecule, in its order."""
    pairs = zip(bond_ends(mol), bond_types(mol), strict=True)
    return [atom.GetSymbol() for atom in mol.GetAtoms()], [(u, v, t + 1) for (u, v), t in pairs]


def atom_columns(atoms: Sequence[str], vocabulary: Sequence[str], unknown: str) -> list[int]:
    """Returns the column of each atom in ``vocabulary``.

    An element that is not among them is an ``"error"``, or takes the ``"last"`` column, then
    ``"Unk"`` or ``"*"``.
    """
    check_choice("unknown", unknown, get_args(Unknown))
    if not atoms:
        raise MoleculeError("`atoms` must hold at least one atom (got none). Drop the row.")
    if unknown == "last" and vocabulary[-1] not in CATCH_ALL:
        raise ConfigError(
            f"The last atom of the vocabulary must be one of {CATCH_ALL} with unknown='last' (got "
            f"{vocabulary[-1]!r}). Append 'Unk' to it."
        )
    column = {symbol: index for index, symbol in enumerate(vocabulary)}
    lost = [where for where, symbol in enumerate(atoms) if symbol not in column]
    if lost and unknown == "error":
        raise MoleculeError(
            f"Atom {lost[0]} must be one of {' '.join(vocabulary)} (got {atoms[lost[0]]!r}). Add "
            "it to the vocabulary, or append 'Unk' and pass unknown='last'."
        )
    return [column.get(symbol, len(vocabulary) - 1) for symbol in atoms]


def check_bonds(bonds: Sequence[Bond], num_atoms: int) -> None:
    """Raises unless each bond has a known type and joins two atoms that no other bond joins."""
    seen: set[frozenset[int]] = set()
    for index, (u, v, t) in enumerate(bonds):
        if not (0 <= u < num_atoms and 0 <= v < num_atoms):
            raise MoleculeError(
                f"`bonds[{index}]` must join atoms from 0 to {num_atoms - 1} (got {u} and {v}). "
                "Count atoms from 0."
            )
        pair = frozenset((u, v))
        if len(pair) < 2 or pair in seen:
            raise MoleculeError(
                f"`bonds[{index}]` must join two atoms that no earlier bond joins (got {u} and {v}"
                f"{' again' if pair in seen else ''}). Remove it."
            )
        if t not in (1, 2, 3, 4):
            raise MoleculeError(
                f"`bonds[{index}]` must have the type 1, 2, 3 or 4, for {', '.join(BOND_TYPES)} "
                f"(got {t!r}). Replace other types by one of these."
            )
        seen.add(pair)
