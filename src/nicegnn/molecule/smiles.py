"""A molecule as a graph: atoms are nodes, every bond is two directed edges.

All other packages rely on these facts:

* node ``i`` is atom ``i`` of the parsed SMILES (hydrogens stay implicit unless written out);
* bond ``b`` between atoms ``u`` and ``v`` is edge ``2b`` (``u -> v``) and edge ``2b + 1``
  (``v -> u``), bonds in RDKit's order, so ``edge // 2`` is the bond of a directed edge;
* ``x`` is a one-hot over element symbols, ``edge_attr`` a one-hot over `BOND_TYPES`.

RDKit is needed to read SMILES, but not for `graph_from_tables`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, get_args

import torch
from torch import Tensor
from torch_geometric.data import Data

from nicegnn.config import check_choice
from nicegnn.errors import ConfigError, NicegnnError

if TYPE_CHECKING:
    from rdkit.Chem import Mol

Unknown = Literal["error", "last"]
Bond = tuple[int, int, int]  # atoms u and v, and the type: 1, 2, 3 or 4, see `BOND_TYPES`

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

MOST_LETTERS = 20_000  # of a SMILES, which takes half a second to read

#: Column names that stand for "any other element".
CATCH_ALL = ("Unk", "*")


class MoleculeError(NicegnnError, ValueError):
    """A molecule cannot be read or turned into a graph."""


def require_rdkit(module: str = "rdkit.Chem") -> Any:
    """Returns an RDKit module, or says how to install RDKit."""
    try:
        return import_module(module)
    except ImportError as error:
        raise ImportError(
            f"RDKit is needed to read and draw molecules, but {module!r} cannot be imported. "
            "Install it with `pip install 'nicegnn[molecules]'`."
        ) from error


def check_letters(smiles: str) -> None:
    """Raises for a SMILES that would take minutes to read."""
    if len(smiles) > MOST_LETTERS:
        raise MoleculeError(
            f"A SMILES must have at most {MOST_LETTERS:,} letters (got {len(smiles):,}). To read "
            "it takes minutes: the time grows with their square. Explain a part of the molecule."
        )


def parse_smiles(smiles: str) -> Mol:
    """Returns the sanitised RDKit molecule of a SMILES string, which must hold an atom.

    RDKit's own messages go into the `MoleculeError`, never to the terminal.

    >>> parse_smiles("Cc1ccccc1").GetNumBonds()
    7
    """
    if not isinstance(smiles, str):
        raise MoleculeError(
            f"`smiles` must be a string (got {type(smiles).__name__} {smiles!r}). "
            "`Chem.MolToSmiles` converts an RDKit molecule."
        )
    check_letters(smiles)
    if not smiles.isascii() or smiles != "".join(smiles.split()):
        raise MoleculeError(
            f"`smiles` must be of ASCII signs without spaces (got {smiles!r}). Write the SMILES "
            "alone, without a name."
        )
    with require_rdkit("rdkit.rdBase").BlockLogs():
        mol: Mol | None = require_rdkit().MolFromSmiles(smiles)
    if mol is None:
        raise MoleculeError(
            f"`smiles` must be a SMILES that RDKit can read (got {smiles!r}: {_reason(smiles)}). "
            "Correct ring closures, brackets, valences or aromatic atoms, or drop the molecule."
        )
    if mol.GetNumAtoms() == 0:
        raise MoleculeError(
            f"`smiles` must hold at least one atom (got {smiles!r}). Drop the row or fill it in."
        )
    return mol


def matched_molecule(smiles: str, bond_index: Tensor, num_atoms: int | None = None) -> Mol:
    """Returns the molecule of a SMILES whose atom ``i`` is node ``i`` of a graph, or raises.

    Every bond of the graph must be a bond of the molecule and the other way round. Hydrogens are
    atoms where the graph has them as nodes: all of them, those written out, or none.

    Args:
        bond_index: the two ends of each bond, ``[2, M]``.
        num_atoms: number of nodes, where it is known.

    >>> matched_molecule("CO", torch.tensor([[1], [0]])).GetNumAtoms()
    2
    """
    plain, wanted = parse_smiles(smiles), {tuple(sorted(pair)) for pair in bond_index.t().tolist()}
    for mol in _with_hydrogens(plain, smiles):
        if num_atoms in (None, mol.GetNumAtoms()) and _pairs(mol) == wanted:
            return mol
    if num_atoms not in (None, plain.GetNumAtoms()):
        difference = f"it has {plain.GetNumAtoms()} atoms, the graph {num_atoms} nodes"
    else:
        sides = ("graph", wanted - _pairs(plain)), ("molecule", _pairs(plain) - wanted)
        difference = "; ".join(
            f"{len(some)} bond(s) such as {min(some)[0]}-{min(some)[1]} are only in the {where}"
            for where, some in sides
            if some
        )
    raise MoleculeError(
        f"`smiles` must describe the explained graph, atom by atom (got {smiles!r}: {difference}). "
        "Pass the SMILES that the graph was made from, in its atom order; an empty one draws a "
        "plain graph."
    )


def _with_hydrogens(plain: Mol, smiles: str) -> Iterator[Mol]:
    """Yields a molecule with no hydrogens as atoms, with those written out, and with all."""
    chem = require_rdkit()
    yield plain
    if "[H]" in smiles:
        settings = chem.SmilesParserParams()
        settings.removeHs = False
        yield chem.MolFromSmiles(smiles, settings)
    yield chem.AddHs(plain)


def _pairs(mol: Mol) -> set[tuple[int, ...]]:
    """Returns the two atoms of each bond, the lower number first."""
    return {tuple(sorted(pair)) for pair in bond_ends(mol)}


def _reason(smiles: str) -> str:
    """Returns why RDKit refuses a string, on one line without time stamps."""
    rd_base = require_rdkit("rdkit.rdBase")
    if not hasattr(rd_base, "CaptureErrorLog"):  # an older RDKit, which writes to the terminal
        return "no reason given"
    with rd_base.CaptureErrorLog() as log:
        require_rdkit().MolFromSmiles(smiles)
    lines = [line.partition("] ")[2].strip() for line in log.messages.splitlines()]
    kept = [  # RDKit also repeats the input and underlines the error
        line.removeprefix("SMILES Parse Error: ").rstrip(":.")
        for line in dict.fromkeys(lines)
        if line and set(line) - set("~^") and line != smiles and "Failed parsing" not in line
    ]
    return "; ".join(kept) or "syntax error"


def atoms_of(mol: Mol) -> Iterator[Any]:
    """Yields the atoms of a molecule, twice as fast as ``mol.GetAtoms()``."""
    return map(mol.GetAtomWithIdx, range(mol.GetNumAtoms()))


def bonds_of(mol: Mol) -> Iterator[Any]:
    """Yields the bonds of a molecule, twice as fast as ``mol.GetBonds()``."""
    return map(mol.GetBondWithIdx, range(mol.GetNumBonds()))


def bond_ends(mol: Mol) -> list[tuple[int, int]]:
    """Returns the two atoms of each bond."""
    return [(bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()) for bond in bonds_of(mol)]


def molecule_tables(mol: Mol) -> tuple[list[str], list[Bond]]:
    """Returns element symbols and bonds ``(u, v, type)`` of an RDKit molecule, in its order."""
    symbols, bonds = [atom.GetSymbol() for atom in atoms_of(mol)], []
    for bond, (u, v) in zip(bonds_of(mol), bond_ends(mol), strict=True):
        kind = str(bond.GetBondType()).lower()
        if kind not in BOND_TYPES:
            raise MoleculeError(
                f"Bond {bond.GetIdx()} ({symbols[u]}{u}-{symbols[v]}{v}) must be one of "
                f"{BOND_TYPES} (got {bond.GetBondType()}). Rewrite the molecule or drop it."
            )
        bonds.append((u, v, BOND_TYPES.index(kind) + 1))
    return symbols, bonds


def graph_from_tables(
    atoms: Sequence[str],
    bonds: Sequence[Bond],
    *,
    vocabulary: Sequence[str] = ATOMS_GRAPHXAI,
    unknown: Unknown = "error",
    smiles: str | None = None,
) -> Data:
    """Returns the graph of an atom list and a bond list, without RDKit.

    ``atoms`` are element symbols, ``vocabulary`` those of the columns of ``x``. An element that is
    not among them is an ``"error"``, or takes the ``"last"`` column, then ``"Unk"`` or ``"*"``.

    >>> graph_from_tables(["C", "O"], [(0, 1, 2)]).edge_attr.tolist()
    [[0.0, 1.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0]]
    """
    columns = atom_columns(atoms, vocabulary, unknown)
    check_bonds(bonds, len(atoms))
    ends = torch.tensor([(u, v) for u, v, _ in bonds], dtype=torch.long).view(-1, 2)
    types = torch.tensor([t - 1 for _, _, t in bonds], dtype=torch.long)
    data = Data(**graph_tensors(torch.tensor(columns), ends, types, len(vocabulary)))
    if smiles is not None:
        data.smiles = smiles
    return data


def graph_tensors(
    columns: Tensor, ends: Tensor, types: Tensor, num_columns: int
) -> dict[str, Tensor]:
    """Returns ``x``, ``edge_index`` and ``edge_attr`` of checked atoms and bonds.

    Symbols: column of ``x`` of each atom -> ``columns``, ``[V]``; atoms of each bond -> ``ends``,
    long ``[E/2, 2]``; column of ``edge_attr`` of each bond -> ``types``, ``[E/2]``.
    """
    one_hot = torch.nn.functional.one_hot
    return {
        "x": one_hot(columns.long(), num_columns).float(),  # [V, F]
        "edge_index": both_ways(ends),
        "edge_attr": one_hot(types.long(), len(BOND_TYPES)).float().repeat_interleave(2, 0),
    }


def both_ways(ends: Tensor) -> Tensor:
    """Returns both directions of each bond ``[M, 2]`` side by side, ``[2, 2M]``."""
    return torch.stack([ends, ends.flip(1)], dim=1).view(-1, 2).t().contiguous()


def atom_columns(atoms: Sequence[str], vocabulary: Sequence[str], unknown: str) -> list[int]:
    """Returns the column of each atom in ``vocabulary``; see `graph_from_tables`."""
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
