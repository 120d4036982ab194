"""From SMILES to the graph that a model reads: featurisers by name, or your own.

Node ``i`` of the `Data` is atom ``i``. A model that names its featuriser in the attribute
``featurizer`` can be asked about SMILES.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from nicegnn.errors import ConfigError
from nicegnn.molecule.smiles import (
    ATOMS,
    BOND_TYPES,
    MoleculeError,
    bond_ends,
    bond_types,
    both_ways,
    graph_tensors,
    parse_smiles,
    require_rdkit,
)

if TYPE_CHECKING:
    from rdkit.Chem import Mol


@dataclass(frozen=True)
class Featurizer:
    """Turns a SMILES into a graph, or raises `MoleculeError`."""

    name: str
    function: Callable[[Any], Data]
    takes_molecules: bool = False  # of RDKit; else SMILES

    def __call__(self, smiles: str) -> Data:
        mol = parse_smiles(smiles)
        with require_rdkit("rdkit.rdBase").BlockLogs():  # PyG's from_smiles ends them for good
            graph = self.function(mol if self.takes_molecules else smiles)
        if not isinstance(graph, Data) or graph.get("x") is None or graph.get("edge_index") is None:
            got = sorted(graph.keys()) if isinstance(graph, Data) else type(graph).__name__
            raise ConfigError(
                f"The featuriser {self.name!r} must return a torch_geometric Data with `x` and "
                f"`edge_index` (got {got})."
            )
        graph.smiles = smiles
        return graph


def elements(mol: Mol) -> Data:
    """One-hot elements and bond types; elements not among `ATOMS` take the last column."""
    symbols = [atom.GetSymbol() for atom in mol.GetAtoms()]
    columns = [ATOMS.index(one if one in ATOMS else ATOMS[-1]) for one in symbols]
    types = torch.tensor(bond_types(mol), dtype=torch.long)
    return Data(**graph_tensors(torch.tensor(columns), _ends(mol), types, len(ATOMS)))


_ELEMENTS = (
    *("C", "N", "O", "S", "F", "P", "Cl", "Br", "I", "B", "H", "Si", "Se"),
    *("Li", "Na", "K", "Mg", "Ca", "Zn"),
)
_SHAPES = ("s", "sp", "sp2", "sp3", "sp3d", "sp3d2")
_STEREO = {"STEREOE": "E", "STEREOTRANS": "E", "STEREOZ": "Z", "STEREOCIS": "Z"}
#: Meaning of each column of ``x`` of the featuriser "rich".
RICH_ATOMS = (
    *(f"element {symbol}" for symbol in (*_ELEMENTS, "other")),
    *(f"charge {charge}" for charge in range(-2, 3)),
    *(f"hydrogens {number}" for number in range(5)),
    *(f"degree {number}" for number in range(7)),
    *(f"hybridisation {shape}" for shape in (*_SHAPES, "other")),
    *("chirality R", "chirality S", "aromatic", "in a ring"),
)
#: Meaning of each column of its ``edge_attr``.
RICH_BONDS = (*BOND_TYPES, "other type", "stereo E", "stereo Z", "conjugated", "in a ring")


def rich(mol: Mol) -> Data:
    """What chemists ask of an atom and a bond, as zeros and ones: `RICH_ATOMS`, `RICH_BONDS`.

    Numbers beyond the last column of their kind are counted there. R, S, E and Z do not depend on
    the order of atoms, unlike the marks of a SMILES.
    """
    atoms, bonds = [], []
    for atom in mol.GetAtoms():
        symbol, shape = atom.GetSymbol(), atom.GetHybridization().name.lower()
        words = {
            f"element {symbol if symbol in _ELEMENTS else 'other'}",
            f"charge {max(-2, min(atom.GetFormalCharge(), 2))}",
            f"hydrogens {min(atom.GetTotalNumHs(True), 4)}",
            f"degree {min(atom.GetDegree(), 6)}",
            f"hybridisation {shape if shape in _SHAPES else 'other'}",
            f"chirality {atom.GetProp('_CIPCode')}" if atom.HasProp("_CIPCode") else "",
            "aromatic" if atom.GetIsAromatic() else "",
            "in a ring" if atom.IsInRing() else "",
        }
        atoms.append([float(name in words) for name in RICH_ATOMS])
    for bond in mol.GetBonds():
        kind = bond.GetBondType().name.lower()
        words = {
            kind if kind in BOND_TYPES else "other type",
            f"stereo {_STEREO.get(bond.GetStereo().name)}",
            "conjugated" if bond.GetIsConjugated() else "",
            "in a ring" if bond.IsInRing() else "",
        }
        bonds.append([float(name in words) for name in RICH_BONDS])
    edge_attr = torch.tensor(bonds).view(-1, len(RICH_BONDS)).repeat_interleave(2, 0)
    return Data(x=torch.tensor(atoms), edge_index=both_ways(_ends(mol)), edge_attr=edge_attr)


def _ends(mol: Mol) -> Tensor:
    """Returns the two atoms of each bond, ``[M, 2]``."""
    return torch.tensor(bond_ends(mol), dtype=torch.long).view(-1, 2)


#: Featurisers by name.
FEATURIZERS = {one.__name__: Featurizer(one.__name__, one, True) for one in (elements, rich)}


def find_featurizer(featurizer: str | Callable[..., Data]) -> Featurizer:
    """Returns a featuriser by its name, by ``"module:function"``, or from a function of SMILES.

    >>> find_featurizer("rich")("CO").num_edge_features
    9
    """
    named: Any = featurizer
    name = getattr(featurizer, "__name__", "own")
    if isinstance(featurizer, str):
        is_import, name = ":" in featurizer, featurizer
        named = import_named("featurizer", name) if is_import else FEATURIZERS.get(name)
    if callable(named):
        return named if isinstance(named, Featurizer) else Featurizer(name, named)
    raise ConfigError(
        f"`featurizer` must be one of {[*FEATURIZERS]}, 'module:function', or a function from "
        f"SMILES to Data (got {featurizer!r})."
    )


def import_named(what: str, word: str) -> Any:
    """Returns what ``module:name`` names, in the current folder or installed."""
    module, _, name = word.partition(":")
    sys.path.insert(0, "")  # as `python` does, to import modules of the current folder
    try:
        return attrgetter(name)(import_module(module))
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise ConfigError(
            f"`{what}` must be module:name of something that can be imported (got {word!r}: "
            f"{error}). Run the command in the folder of the module, or install it."
        ) from error
    finally:
        sys.path.remove("")


def model_featurizer(model: nn.Module) -> Featurizer:
    """Returns the featuriser that a model names in its attribute ``featurizer``."""
    named = getattr(model, "featurizer", None)
    if named is None:
        raise ConfigError(
            "To be asked about SMILES, the model must name its featuriser (got none). Set "
            f"`model.featurizer` to one of {[*FEATURIZERS]} or a function, or pass graphs."
        )
    return find_featurizer(named)


def graphs_from_smiles(
    smiles: str | Sequence[str], featurizer: str | Callable[..., Data] = "elements"
) -> list[Data]:
    """Returns the graph of each SMILES; `MoleculeError` names the first that cannot be read.

    >>> [graph.num_nodes for graph in graphs_from_smiles(["CCO", "c1ccccc1"])]
    [3, 6]
    """
    is_one = isinstance(smiles, str) or not isinstance(smiles, Sequence)
    molecules: Sequence[Any] = [smiles] if is_one else smiles
    if not molecules:
        raise MoleculeError("`smiles` must hold at least one molecule (got none).")
    make, graphs = find_featurizer(featurizer), []
    for number, molecule in enumerate(molecules):
        try:
            graphs.append(make(molecule))
        except MoleculeError as error:
            where = f"Molecule {number} of {len(molecules)}: " if len(molecules) > 1 else ""
            raise MoleculeError(f"{where}{error}") from None
    return graphs
