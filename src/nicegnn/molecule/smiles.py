"""A molecule as a graph: atoms are nodes, every bond is two directed edges.

Facts every other part of the package may rely on:

* node ``i`` is atom ``i`` of the parsed SMILES (hydrogens stay implicit unless written out);
* bond ``b`` between atoms ``u`` and ``v`` is edge ``2b`` (``u -> v``) and edge ``2b + 1``
  (``v -> u``), bonds in RDKit's order, so ``edge // 2`` is the bond of a directed edge;
* ``x`` is a one-hot over element symbols, ``edge_attr`` a one-hot over `BOND_TYPES`.

RDKit is needed to read SMILES, but not for `graph_from_tables`.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch_geometric.data import Data

from nicegnn.errors import ConfigError, NicegnnError

if TYPE_CHECKING:
    from rdkit.Chem import Mol

Unknown = Literal["error", "last"]

#: Node columns of the B-XAIC benchmark; ``Unk`` collects every other element.
ATOMS_BXAIC = ("C", "N", "O", "F", "Cl", "Br", "P", "S", "B", "I", "Unk")
#: Node columns of the benzene and carbonyl sets of GraphXAI; ``*`` is SMILES' "any atom".
ATOMS_GRAPHXAI = ("C", "N", "O", "S", "F", "P", "Cl", "Br", "Na", "Ca", "I", "B", "H", "*")
#: Node columns of the TUDataset "Mutagenicity"; it has no column for other elements.
ATOMS_MUTAGENICITY = (
    "C", "O", "Cl", "H", "N", "F", "Br", "S", "P", "I", "Na", "K", "Li", "Ca",
)  # fmt: skip
#: Edge columns; a bond of type ``t`` (1, 2, 3 or 4) sets column ``t - 1``.
BOND_TYPES = ("single", "double", "triple", "aromatic")

#: Column names that stand for "any other element".
CATCH_ALL = ("Unk", "*")


class MoleculeError(NicegnnError, ValueError):
    """A molecule that cannot be read or turned into a graph."""


def require_rdkit(module: str = "rdkit.Chem") -> Any:
    """Returns an RDKit module, or says how to install RDKit."""
    try:
        return import_module(module)
    except ImportError as error:
        raise ImportError(
            f"RDKit is needed to read and draw molecules, but {module!r} cannot be imported. "
            "Install it with `pip install 'nicegnn[molecules]'`."
        ) from error


def parse_smiles(smiles: str, *, position: int | None = None) -> Mol:
    """Returns the sanitised RDKit molecule of a SMILES string.

    A single atom is a valid molecule (without bonds); an empty string is not. RDKit's own
    messages go into the error, never to the terminal.

    Args:
        smiles: One SMILES, without a name after it.
        position: Where the string stands in the caller's list; only used in the error text.

    Raises:
        MoleculeError: If RDKit cannot read the string, or it holds no atom.

    >>> parse_smiles("Cc1ccccc1").GetNumBonds()
    7
    """
    chem = require_rdkit()
    rd_base = require_rdkit("rdkit.rdBase")
    place = "" if position is None else f" at position {position}"
    if not isinstance(smiles, str):
        raise MoleculeError(
            f"smiles{place}: expected a SMILES string, got {type(smiles).__name__} {smiles!r}. "
            "Convert an RDKit molecule with `Chem.MolToSmiles`."
        )
    if not smiles.strip():
        raise MoleculeError(
            f"smiles{place}: expected at least one atom, got the empty string {smiles!r}. "
            "Drop the row or fill in its SMILES."
        )
    if any(character.isspace() for character in smiles):
        raise MoleculeError(
            f"smiles{place}: expected one SMILES without spaces, got {smiles!r}. RDKit would "
            "ignore what follows the first space; pass only the SMILES itself."
        )
    with rd_base.BlockLogs():
        mol: Mol | None = chem.MolFromSmiles(smiles)
    if mol is None:
        raise MoleculeError(
            f"smiles{place}: RDKit cannot read {smiles!r}: {_reason(smiles)}. "
            "Correct the string (ring closures, brackets, valences, aromatic atoms) or drop it."
        )
    if mol.GetNumAtoms() == 0:
        raise MoleculeError(
            f"smiles{place}: expected at least one atom, got {smiles!r} with none. Drop the row."
        )
    return mol


def _reason(smiles: str) -> str:
    """RDKit's explanation for refusing a string, time stamps removed, on one line."""
    chem = require_rdkit()
    rd_base = require_rdkit("rdkit.rdBase")
    lines: list[str] = []
    if hasattr(rd_base, "CaptureErrorLog"):
        with rd_base.CaptureErrorLog() as log:
            chem.MolFromSmiles(smiles)
        lines = [line.partition("] ")[2].strip() for line in log.messages.splitlines()]
    else:  # older RDKit: only the sanitisation step tells its reason to Python
        with rd_base.BlockLogs():
            mol = chem.MolFromSmiles(smiles, sanitize=False)
            try:
                if mol is not None:
                    chem.SanitizeMol(mol)
            except ValueError as error:
                lines = [str(error)]
    # RDKit also repeats the input and underlines the spot; keep what says something new.
    kept = [
        line.removeprefix("SMILES Parse Error: ").rstrip(":.")
        for line in dict.fromkeys(lines)
        if line and set(line) - set("~^") and line != smiles and "Failed parsing" not in line
    ]
    return "; ".join(kept) or "syntax error"


def molecule_graph(
    smiles: str, *, atoms: Sequence[str] = ATOMS_GRAPHXAI, unknown: Unknown = "error"
) -> Data:
    """Returns the graph of a SMILES string, with the string itself as ``smiles``.

    Args:
        smiles: One SMILES; atoms and bonds keep RDKit's order.
        atoms: Element symbols, one per column of ``x``.
        unknown: What to do with an element not in ``atoms``: ``"error"``, or ``"last"`` to use
            the last column, which must then be ``"Unk"`` or ``"*"``.

    Raises:
        MoleculeError: If the SMILES, an element or a bond type cannot be represented.
        ConfigError: If ``unknown`` is neither of the two, or has no column to use.

    >>> molecule_graph("C=O").edge_index.tolist()
    [[0, 1], [1, 0]]
    """
    symbols, bonds = molecule_tables(parse_smiles(smiles))
    return graph_from_tables(symbols, bonds, vocabulary=atoms, unknown=unknown, smiles=smiles)


def molecule_tables(mol: Mol) -> tuple[list[str], list[tuple[int, int, int]]]:
    """Returns element symbols and bonds ``(u, v, type)`` of an RDKit molecule, in its order."""
    bond_type = require_rdkit().BondType
    codes = {bond_type.SINGLE: 1, bond_type.DOUBLE: 2, bond_type.TRIPLE: 3, bond_type.AROMATIC: 4}
    symbols = [atom.GetSymbol() for atom in mol.GetAtoms()]
    bonds = []
    for bond in mol.GetBonds():
        code = codes.get(bond.GetBondType())
        u, v = bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()
        if code is None:
            raise MoleculeError(
                f"bond {bond.GetIdx()} ({symbols[u]}{u}-{symbols[v]}{v}): expected one of "
                f"{', '.join(BOND_TYPES)}, got {bond.GetBondType()}. Rewrite the molecule with "
                "ordinary bonds, or drop it."
            )
        bonds.append((u, v, code))
    return symbols, bonds


def graph_from_tables(
    atoms: Sequence[str],
    bonds: Sequence[tuple[int, int, int]],
    *,
    vocabulary: Sequence[str] = ATOMS_GRAPHXAI,
    unknown: Unknown = "error",
    smiles: str | None = None,
) -> Data:
    """Returns the graph of an atom list and a bond list, without RDKit.

    Args:
        atoms: Element symbol of each atom.
        bonds: ``(u, v, t)`` per bond, ``t``: 1 single, 2 double, 3 triple, 4 aromatic.
        vocabulary: Element symbols, one per column of ``x``.
        unknown: As in `molecule_graph`.
        smiles: Stored on the graph when given.

    Raises:
        MoleculeError: If an element, an atom number or a bond type is not valid.

    >>> graph_from_tables(["C", "O"], [(0, 1, 2)]).edge_attr.tolist()
    [[0.0, 1.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0]]
    """
    if len(atoms) == 0:
        raise MoleculeError("atoms: expected at least one atom, got none. Drop the row.")
    columns = atom_columns(atoms, vocabulary, unknown)
    check_bonds(bonds, len(atoms))
    x = torch.zeros(len(atoms), len(vocabulary))  # [V, F]
    x[torch.arange(len(atoms)), torch.tensor(columns)] = 1.0
    ends = torch.tensor([(u, v) for u, v, _ in bonds], dtype=torch.long).view(-1, 2)  # [E/2, 2]
    types = torch.tensor([t - 1 for _, _, t in bonds], dtype=torch.long)  # [E/2]
    edge_index = torch.stack([ends, ends.flip(1)], dim=1).view(-1, 2).t().contiguous()  # [2, E]
    edge_attr = torch.zeros(2 * len(bonds), len(BOND_TYPES))  # [E, 4]
    edge_attr[torch.arange(2 * len(bonds)), types.repeat_interleave(2)] = 1.0
    data = Data(x=x, edge_index=edge_index, edge_attr=edge_attr)
    if smiles is not None:
        data.smiles = smiles
    return data


def atom_columns(atoms: Sequence[str], vocabulary: Sequence[str], unknown: str) -> list[int]:
    """Returns the column of each atom in ``vocabulary``; see `molecule_graph` for ``unknown``."""
    if unknown not in ("error", "last"):
        raise ConfigError(f"unknown: expected 'error' or 'last', got {unknown!r}.")
    if unknown == "last" and vocabulary[-1] not in CATCH_ALL:
        raise ConfigError(
            f"unknown='last': the last column must stand for any other element "
            f"({' or '.join(CATCH_ALL)}), got {vocabulary[-1]!r}. Append 'Unk' to the atom list."
        )
    column = {symbol: index for index, symbol in enumerate(vocabulary)}
    last = len(vocabulary) - 1 if unknown == "last" else None
    columns = [column.get(symbol, last) for symbol in atoms]
    known = [index for index in columns if index is not None]
    if len(known) < len(columns):
        where = columns.index(None)
        raise MoleculeError(
            f"atom {where}: expected one of {' '.join(vocabulary)}, got {atoms[where]!r}. Pass an "
            "atom list that has it, or one that ends with 'Unk' together with unknown='last'."
        )
    return known


def check_bonds(bonds: Sequence[tuple[int, int, int]], num_atoms: int) -> None:
    """Refuses bonds that are not between two different atoms, repeated, or of no known type."""
    seen: set[frozenset[int]] = set()
    for index, (u, v, t) in enumerate(bonds):
        if not (0 <= u < num_atoms and 0 <= v < num_atoms):
            raise MoleculeError(
                f"bonds[{index}]: expected atom numbers from 0 to {num_atoms - 1}, got {u} and "
                f"{v}. Atom numbers start at 0."
            )
        pair = frozenset((u, v))
        if len(pair) < 2 or pair in seen:
            raise MoleculeError(
                f"bonds[{index}]: expected one bond per pair of different atoms, got {u}-{v} "
                f"{'again' if pair in seen else 'with itself'}. Remove it."
            )
        if t not in (1, 2, 3, 4):
            raise MoleculeError(
                f"bonds[{index}]: expected bond type 1, 2, 3 or 4 "
                f"({', '.join(BOND_TYPES)}), got {t!r}. Map other types to one of these."
            )
        seen.add(pair)
