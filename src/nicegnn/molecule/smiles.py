"""A molecule as a graph: atoms are nodes, every bond is two directed edges.

All other packages rely on these facts:

* node ``i`` is atom ``i`` of the parsed SMILES (hydrogens stay implicit unless written out);
* bond ``b`` between atoms ``u`` and ``v`` is edge ``2b`` (``u -> v``) and edge ``2b + 1``
  (``v -> u``), bonds in RDKit's order, so ``edge // 2`` is the bond of a directed edge;
* ``x`` is a one-hot over element symbols, ``edge_attr`` a one-hot over `BOND_TYPES`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from nicegnn.errors import NicegnnError

if TYPE_CHECKING:
    from rdkit.Chem import Mol

Bond = tuple[int, int, int]  # atoms u and v, and the type: 1, 2, 3 or 4, see `BOND_TYPES`

#: Node columns of the benzene and carbonyl sets of GraphXAI; ``*`` is any other element.
ATOMS = ("C", "N", "O", "S", "F", "P", "Cl", "Br", "Na", "Ca", "I", "B", "H", "*")
#: Edge columns; a bond of type ``t`` (1, 2, 3 or 4) sets column ``t - 1``.
BOND_TYPES = ("single", "double", "triple", "aromatic")

MOST_LETTERS = 20_000  # of a SMILES, which takes half a second to read


class MoleculeError(NicegnnError, ValueError):
    """A molecule cannot be read or turned into a graph."""


def require_rdkit(module: str = "rdkit.Chem") -> Any:
    """Returns an RDKit module, or says how to install RDKit."""
    return require(module, "molecules", "RDKit")


def require(module: str, extra: str, name: str = "") -> Any:
    """Returns a module of an optional package, or says which extra installs it."""
    try:
        return import_module(module)
    except ImportError as error:
        raise ImportError(
            f"{name or module.partition('.')[0]} is needed, but {module!r} cannot be imported. "
            f"Install it with `pip install 'nicegnn[{extra}]'`."
        ) from error


def parse_smiles(smiles: str) -> Mol:
    """Returns the sanitised molecule of a SMILES; what RDKit says goes into the `MoleculeError`.

    >>> parse_smiles("Cc1ccccc1").GetNumBonds()
    7
    """
    if not isinstance(smiles, str):
        raise MoleculeError(
            f"`smiles` must be a string (got {type(smiles).__name__} {smiles!r}). Pass a SMILES."
        )
    if len(smiles) > MOST_LETTERS:
        raise MoleculeError(
            f"A SMILES must have at most {MOST_LETTERS:,} letters (got {len(smiles):,}). Explain a "
            "part of the molecule."
        )
    if not smiles.isascii() or smiles != "".join(smiles.split()):
        raise MoleculeError(
            f"`smiles` must be of ASCII signs without spaces (got {smiles!r}). Leave out the name."
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

    Both must have the same bonds, ``[2, M]``. Hydrogens are atoms where the graph has them as
    nodes: all of them, those written out, or none.

    >>> matched_molecule("CO", torch.tensor([[1], [0]])).GetNumAtoms()
    2
    """
    plain, wanted = parse_smiles(smiles), {tuple(sorted(pair)) for pair in bond_index.t().tolist()}
    pairs = {tuple(sorted(pair)) for pair in bond_ends(plain)}
    if pairs == wanted and num_atoms in (None, plain.GetNumAtoms()):
        return plain
    chem = require_rdkit()
    settings = chem.SmilesParserParams()
    settings.removeHs = False
    for mol in (chem.MolFromSmiles(smiles, settings), chem.AddHs(plain)):
        all_pairs = {tuple(sorted(pair)) for pair in bond_ends(mol)}
        if all_pairs == wanted and num_atoms in (None, mol.GetNumAtoms()):
            return mol
    if num_atoms not in (None, plain.GetNumAtoms()):
        difference = f"it has {plain.GetNumAtoms()} atoms, the graph {num_atoms} nodes"
    else:
        sides = ("graph", wanted - pairs), ("molecule", pairs - wanted)
        difference = "; ".join(
            f"{len(some)} bond(s) such as {min(some)[0]}-{min(some)[1]} are only in the {where}"
            for where, some in sides
            if some
        )
    raise MoleculeError(
        f"`smiles` must describe the explained graph, atom by atom (got {smiles!r}: {difference}). "
        "Pass the SMILES that the graph was made from, or none."
    )


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


def bond_ends(mol: Mol) -> list[tuple[int, int]]:
    """Returns the two atoms of each bond."""
    return [(bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()) for bond in mol.GetBonds()]


def bond_types(mol: Mol) -> list[int]:
    """Returns the place of each bond's type in `BOND_TYPES`; others are a `MoleculeError`."""
    types = []
    for bond in mol.GetBonds():
        kind = bond.GetBondType().name.lower()
        if kind not in BOND_TYPES:
            ends = f"{bond.GetBeginAtomIdx()}-{bond.GetEndAtomIdx()}"
            raise MoleculeError(
                f"Bond {ends} must be one of {BOND_TYPES} (got {bond.GetBondType()}). Drop it."
            )
        types.append(BOND_TYPES.index(kind))
    return types


def graph_tensors(
    columns: Tensor, ends: Tensor, types: Tensor, num_columns: int
) -> dict[str, Tensor]:
    """Returns a graph of columns of atoms, ``[V]``, ends of bonds, ``[M, 2]``, and their types."""
    one_hot = torch.nn.functional.one_hot
    return {
        "x": one_hot(columns.long(), num_columns).float(),  # [V, F]
        "edge_index": both_ways(ends),
        "edge_attr": one_hot(types.long(), len(BOND_TYPES)).float().repeat_interleave(2, 0),
    }


def both_ways(ends: Tensor) -> Tensor:
    """Returns both directions of each bond ``[M, 2]`` side by side, ``[2, 2M]``."""
    return torch.stack([ends, ends.flip(1)], dim=1).view(-1, 2).t().contiguous()
