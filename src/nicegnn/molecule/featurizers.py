"""From SMILES to the graph that a model reads: featurisers by name, or your own.

A featuriser is called with a SMILES or an RDKit molecule and returns a `Data` with ``x``,
``edge_index``, ``edge_attr`` and ``smiles``. Node ``i`` is atom ``i`` of ``smiles``, so
`molecule_of` leads from nodes back to atoms, whatever the features are. A graph made from an RDKit
molecule also has ``node_atom``: which atom of that molecule each node is.

A model can name its featuriser in an attribute: ``model.featurizer`` is the name of one in
`FEATURIZERS`, ``"module:function"``, or a featuriser. Then SMILES are enough to ask it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, runtime_checkable

import numpy as np
import torch
from torch import nn
from torch_geometric.data import Data

from nicegnn.errors import ConfigError
from nicegnn.molecule.smiles import (
    ATOMS_GRAPHXAI,
    BOND_TYPES,
    MoleculeError,
    Unknown,
    atoms_of,
    bonds_of,
    graph_from_tables,
    matched_molecule,
    molecule_tables,
    parse_smiles,
    require_rdkit,
)

if TYPE_CHECKING:
    from rdkit.Chem import Mol


@runtime_checkable
class Featurizer(Protocol):
    """Turns a SMILES or an RDKit molecule into a graph, or raises `MoleculeError`."""

    @property
    def name(self) -> str: ...

    @property
    def num_node_features(self) -> int: ...  # columns of ``x``

    @property
    def num_edge_features(self) -> int: ...  # columns of ``edge_attr``

    def __call__(self, molecule: str | Mol) -> Data: ...


@dataclass(frozen=True)
class Elements:
    """One-hot elements and bond types, as in the benchmarks of this project."""

    atoms: Sequence[str] = ATOMS_GRAPHXAI  # element of each column of ``x``
    unknown: Unknown = "last"  # other elements take the last column, or are an "error"
    name: ClassVar[str] = "elements"
    num_edge_features: ClassVar[int] = len(BOND_TYPES)

    @property
    def num_node_features(self) -> int:
        return len(self.atoms)

    def __call__(self, molecule: str | Mol) -> Data:
        mol, origin = _read(molecule)
        symbols, bonds = molecule_tables(mol)
        graph = graph_from_tables(symbols, bonds, vocabulary=self.atoms, unknown=self.unknown)
        graph.update(origin)
        return graph


@dataclass(frozen=True)
class Rich:
    """What chemists ask of an atom and a bond, as zeros and ones; `node_columns` tells which.

    Numbers beyond the last column of their kind are counted there. Chirality is R or S, and double
    bonds are E or Z: unlike the marks of a SMILES, they do not depend on the order of atoms.
    """

    name: ClassVar[str] = "rich"
    elements: ClassVar[tuple[str, ...]] = (
        *("C", "N", "O", "S", "F", "P", "Cl", "Br", "I", "B", "H", "Si", "Se"),
        *("Li", "Na", "K", "Mg", "Ca", "Zn", "other"),
    )
    charges: ClassVar[tuple[int, ...]] = (-2, -1, 0, 1, 2)
    hydrogens: ClassVar[range] = range(5)
    degrees: ClassVar[range] = range(7)
    hybridisations: ClassVar[tuple[str, ...]] = ("S", "SP", "SP2", "SP3", "SP3D", "SP3D2", "OTHER")

    @property
    def node_columns(self) -> tuple[str, ...]:
        """Meaning of each column of ``x``."""
        return (
            *(f"element {symbol}" for symbol in self.elements),
            *(f"charge {charge}" for charge in self.charges),
            *(f"hydrogens {number}" for number in self.hydrogens),
            *(f"degree {number}" for number in self.degrees),
            *(f"hybridisation {name.lower()}" for name in self.hybridisations),
            *("chirality R", "chirality S", "aromatic", "in a ring"),
        )

    @property
    def edge_columns(self) -> tuple[str, ...]:
        """Meaning of each column of ``edge_attr``."""
        return (*BOND_TYPES, "other type", "stereo E", "stereo Z", "conjugated", "in a ring")

    @cached_property
    def num_node_features(self) -> int:
        return len(self.node_columns)

    @cached_property
    def num_edge_features(self) -> int:
        return len(self.edge_columns)

    @cached_property
    def _tables(self) -> dict[str, Any]:
        """Where each kind of column begins, and the columns of what RDKit names."""
        chem = require_rdkit()
        place = {name: number for number, name in enumerate(self.node_columns)}
        table, kinds = chem.GetPeriodicTable(), chem.HybridizationType
        other = place["hybridisation other"]
        return {
            "element": {
                table.GetAtomicNumber(symbol): number
                for number, symbol in enumerate(self.elements[:-1])
            },
            "charge": place["charge 0"],
            "hydrogens": place["hydrogens 0"],
            "degree": place["degree 0"],
            "shape": {
                kind: place.get(f"hybridisation {name.lower()}", other)
                for name, kind in kinds.names.items()
            },
            "cip": {"R": place["chirality R"], "S": place["chirality S"]},
            "type": {getattr(chem.BondType, name.upper()): k for k, name in enumerate(BOND_TYPES)},
            "stereo": {
                chem.BondStereo.STEREOE: len(BOND_TYPES) + 1,
                chem.BondStereo.STEREOTRANS: len(BOND_TYPES) + 1,
                chem.BondStereo.STEREOZ: len(BOND_TYPES) + 2,
                chem.BondStereo.STEREOCIS: len(BOND_TYPES) + 2,
            },
            "no_centre": chem.ChiralType.CHI_UNSPECIFIED,
        }

    def __call__(self, molecule: str | Mol) -> Data:
        mol, origin = _read(molecule)
        width, t = self.num_node_features, self._tables
        element, shape, other = t["element"], t["shape"], len(self.elements) - 1
        charge, hydrogens, degree = t["charge"], t["hydrogens"], t["degree"]
        most, no_centre = charge + 2, t["no_centre"]
        columns = [
            (
                element.get(atom.GetAtomicNum(), other),
                max(charge - 2, min(charge + atom.GetFormalCharge(), most)),
                hydrogens + min(atom.GetTotalNumHs(True), 4),
                degree + min(atom.GetDegree(), 6),
                shape[atom.GetHybridization()],
                width if atom.GetChiralTag() == no_centre else self._handedness(atom),
                width - 2 if atom.GetIsAromatic() else width,  # the last column is cut off below
                width - 1 if atom.IsInRing() else width,
            )
            for atom in atoms_of(mol)
        ]
        kinds, stereo, wide = t["type"], t["stereo"], self.num_edge_features
        bonds = [
            (
                kinds.get(bond.GetBondType(), len(BOND_TYPES)),
                stereo.get(bond.GetStereo(), wide),
                wide - 2 if bond.GetIsConjugated() else wide,
                wide - 1 if bond.IsInRing() else wide,
            )
            for bond in bonds_of(mol)
        ]
        edge_attr = _ones(bonds, wide, 4).repeat_interleave(2, 0)
        graph = Data(x=_ones(columns, width, 8), edge_index=_both_ways(mol), edge_attr=edge_attr)
        graph.update(origin)
        return graph

    def _handedness(self, atom: Any) -> int:
        """Returns the column of R or S, or one past the last column."""
        code = atom.GetProp("_CIPCode") if atom.HasProp("_CIPCode") else ""
        return self._tables["cip"].get(code, self.num_node_features)


@dataclass(frozen=True)
class PyG:
    """The integers of ``torch_geometric.utils.from_smiles``, for embedding layers.

    Hydrogens stay implicit. PyG sorts edges by node, so they are not in the order of bonds.
    """

    name: ClassVar[str] = "pyg"
    num_node_features: ClassVar[int] = 9
    num_edge_features: ClassVar[int] = 3

    def __call__(self, molecule: str | Mol) -> Data:
        from torch_geometric.utils.smiles import from_rdmol

        mol, origin = _read(molecule)
        try:
            graph = from_rdmol(mol)
        except ValueError as error:
            raise MoleculeError(
                f"Atoms and bonds must have values that PyG's from_smiles knows (got "
                f"{origin['smiles']!r}: {error}). Drop the molecule, or use the featuriser 'rich'."
            ) from None
        graph.update(origin)
        return graph


@dataclass(frozen=True)
class OwnFeaturizer:
    """A function from SMILES to `Data`, with the attributes of a featuriser."""

    function: Callable[[str], Data]
    name: str

    @cached_property
    def _example(self) -> Data:
        return self("CC")

    @property
    def num_node_features(self) -> int:
        return int(self._example.num_node_features)

    @property
    def num_edge_features(self) -> int:
        return int(self._example.num_edge_features)

    def __call__(self, molecule: str | Mol) -> Data:
        _, origin = _read(molecule)
        graph = self.function(origin["smiles"])
        if not isinstance(graph, Data) or graph.get("x") is None or graph.get("edge_index") is None:
            got = sorted(graph.keys()) if isinstance(graph, Data) else type(graph).__name__
            raise ConfigError(
                f"The featuriser {self.name!r} must return a torch_geometric Data with `x` and "
                f"`edge_index` (got {got})."
            )
        graph.update(origin)
        return graph


#: Featurisers by name.
FEATURIZERS: dict[str, Featurizer] = {each.name: each for each in (Elements(), Rich(), PyG())}


def find_featurizer(featurizer: str | Callable[..., Data]) -> Featurizer:
    """Returns a featuriser by its name, by ``"module:function"``, or from a function of SMILES.

    >>> find_featurizer("rich").num_edge_features
    9
    """
    if isinstance(featurizer, Featurizer) and not isinstance(featurizer, type):
        return featurizer
    if callable(featurizer) and not isinstance(featurizer, str):
        return OwnFeaturizer(featurizer, getattr(featurizer, "__name__", "own"))
    if isinstance(featurizer, str):
        if featurizer in FEATURIZERS:
            return FEATURIZERS[featurizer]
        if ":" in featurizer:
            return _imported(featurizer)
    raise ConfigError(
        f"`featurizer` must be one of {[*FEATURIZERS]}, 'module:function', or a function from "
        f"SMILES to Data (got {featurizer!r})."
    )


@cache
def _imported(name: str) -> Featurizer:
    """Returns the featuriser of ``"module:function"``."""
    module, _, function = name.partition(":")
    try:
        featurizer = getattr(import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(
            f"`featurizer` must name a function that can be imported (got {name!r}: {error})."
        ) from error
    if isinstance(featurizer, Featurizer) and not isinstance(featurizer, type):
        return featurizer
    if not callable(featurizer):
        raise ConfigError(
            f"`featurizer` must name a function (got {name!r}, which is {featurizer!r})."
        )
    return OwnFeaturizer(featurizer, name)


def model_featurizer(model: nn.Module) -> Featurizer:
    """Returns the featuriser that a model names in its attribute ``featurizer``."""
    named = getattr(model, "featurizer", None)
    if named is None:
        raise ConfigError(
            "The model must name its featuriser to be asked about SMILES (got none). Set "
            f"`model.featurizer` to one of {[*FEATURIZERS]}, 'module:function' or a function, or "
            "pass graphs."
        )
    return find_featurizer(named)


def graphs_from_smiles(
    smiles: str | Sequence[str],
    featurizer: str | Callable[..., Data] = "elements",
    *,
    max_atoms: int | None = None,
) -> list[Data]:
    """Returns the graph of each SMILES; `MoleculeError` names the first that cannot be read.

    RDKit molecules may stand among the SMILES. To go on after a molecule that is refused, call
    ``find_featurizer(...)`` and ask it for one molecule after another.

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
            graph = make(molecule)
            if max_atoms is not None and int(graph.num_nodes) > max_atoms:
                raise MoleculeError(
                    f"A molecule must have at most {max_atoms} atoms (got {graph.num_nodes} in "
                    f"{graph.smiles[:60]!r}). Drop it, or raise max_atoms."
                )
        except MoleculeError as error:
            where = f"Molecule {number} of {len(molecules)}: " if len(molecules) > 1 else ""
            raise MoleculeError(f"{where}{error}") from None
        graphs.append(graph)
    return graphs


def molecule_of(graph: Data) -> Mol:
    """Returns the RDKit molecule whose atom ``i`` is node ``i`` of a graph with ``smiles``.

    >>> molecule_of(graphs_from_smiles("CCO", "pyg")[0]).GetAtomWithIdx(2).GetSymbol()
    'O'
    """
    smiles = graph.get("smiles")
    if not isinstance(smiles, str):
        raise MoleculeError(
            f"The graph must carry its `smiles` as a string (got {type(smiles).__name__})."
        )
    return matched_molecule(smiles, graph.edge_index, graph.num_nodes)


def _read(molecule: str | Mol) -> tuple[Mol, dict[str, Any]]:
    """Returns a molecule in the atom order of its SMILES, and what its graph keeps of it."""
    if isinstance(molecule, str):
        return parse_smiles(molecule), {"smiles": molecule}
    chem = require_rdkit()
    if not isinstance(molecule, chem.Mol):
        raise MoleculeError(
            f"A molecule must be a SMILES or an RDKit Mol (got {type(molecule).__name__} "
            f"{molecule!r})."
        )
    if molecule.GetNumAtoms() == 0:
        raise MoleculeError("A molecule must have at least one atom (got a Mol without atoms).")
    smiles = chem.MolToSmiles(molecule)
    order = list(molecule.GetPropsAsDict(True, True)["_smilesAtomOutputOrder"])
    return chem.RenumberAtoms(molecule, order), {"smiles": smiles, "node_atom": torch.tensor(order)}


def _ones(columns: Sequence[tuple[int, ...]], width: int, num: int) -> torch.Tensor:
    """Returns rows of zeros with ones in some columns, ``[V, F]``; column ``width`` is dropped."""
    places = np.array(columns, dtype=np.int64).reshape(-1, num)
    rows = np.zeros((len(places), width + 1), dtype=np.float32)
    np.put_along_axis(rows, places, 1.0, axis=1)
    return torch.from_numpy(np.ascontiguousarray(rows[:, :width]))


def _both_ways(mol: Mol) -> torch.Tensor:
    """Returns both directions of each bond side by side, in RDKit's order, ``[2, E]``."""
    ends = [(bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()) for bond in bonds_of(mol)]
    pairs = np.array(ends, dtype=np.int64).reshape(-1, 2)
    both = np.stack([pairs, pairs[:, ::-1]], axis=1).reshape(-1, 2)
    return torch.from_numpy(np.ascontiguousarray(both.T))
