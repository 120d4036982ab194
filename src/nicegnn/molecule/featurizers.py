"""From SMILES to the graph that a model reads: featurisers by name, or your own.

A featuriser takes a SMILES or an RDKit molecule and returns a `Data` with ``x``, ``edge_index``,
``edge_attr`` and ``smiles``, of which node ``i`` is atom ``i``. Made from an RDKit molecule it also
has ``node_atom``: which atom of that molecule each node is. A model can name its featuriser in an
attribute: ``model.featurizer`` is the name of one in `FEATURIZERS`, ``"module:function"``, or a
featuriser. Then SMILES are enough to ask it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, runtime_checkable

import torch
from torch import nn
from torch_geometric.data import Data

from nicegnn.errors import ConfigError
from nicegnn.molecule.smiles import (
    ATOMS,
    BOND_TYPES,
    MoleculeError,
    atoms_of,
    bond_ends,
    bond_types,
    bonds_of,
    both_ways,
    graph_tensors,
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

    def __call__(self, molecule: str | Mol) -> Data: ...


@dataclass(frozen=True)
class Elements:
    """One-hot elements and bond types, as in the benchmarks of this project.

    Elements that are not among `ATOMS` take the last column.
    """

    name: ClassVar[str] = "elements"

    def __call__(self, molecule: str | Mol) -> Data:
        mol, origin = _read(molecule)
        column = {symbol: number for number, symbol in enumerate(ATOMS)}
        columns = [column.get(atom.GetSymbol(), len(ATOMS) - 1) for atom in atoms_of(mol)]
        ends = torch.tensor(bond_ends(mol), dtype=torch.long).view(-1, 2)
        types = torch.tensor(bond_types(mol), dtype=torch.long)
        graph = Data(**graph_tensors(torch.tensor(columns), ends, types, len(ATOMS)))
        return graph.update(origin)


_ELEMENTS = (
    *("C", "N", "O", "S", "F", "P", "Cl", "Br", "I", "B", "H", "Si", "Se"),
    *("Li", "Na", "K", "Mg", "Ca", "Zn", "other"),
)
_SHAPES = ("s", "sp", "sp2", "sp3", "sp3d", "sp3d2", "other")
_STEREO = {"STEREOE": "E", "STEREOTRANS": "E", "STEREOZ": "Z", "STEREOCIS": "Z"}


@dataclass(frozen=True)
class Rich:
    """What chemists ask of an atom and a bond, as zeros and ones; `node_columns` tells which.

    Numbers beyond the last column of their kind are counted there. Chirality is R or S, and double
    bonds are E or Z: unlike the marks of a SMILES, they do not depend on the order of atoms.
    """

    name: ClassVar[str] = "rich"
    #: Meaning of each column of ``x``.
    node_columns: ClassVar[tuple[str, ...]] = (
        *(f"element {symbol}" for symbol in _ELEMENTS),
        *(f"charge {charge}" for charge in range(-2, 3)),
        *(f"hydrogens {number}" for number in range(5)),
        *(f"degree {number}" for number in range(7)),
        *(f"hybridisation {shape}" for shape in _SHAPES),
        *("chirality R", "chirality S", "aromatic", "in a ring"),
    )
    #: Meaning of each column of ``edge_attr``.
    edge_columns: ClassVar[tuple[str, ...]] = (
        *(*BOND_TYPES, "other type"),
        *("stereo E", "stereo Z", "conjugated", "in a ring"),
    )

    def __call__(self, molecule: str | Mol) -> Data:
        mol, origin = _read(molecule)
        at, none = _PLACE, len(self.node_columns)  # the last column is cut off
        atoms = [
            (
                at.get(f"element {atom.GetSymbol()}", at["element other"]),
                at[f"charge {max(-2, min(atom.GetFormalCharge(), 2))}"],
                at[f"hydrogens {min(atom.GetTotalNumHs(True), 4)}"],
                at[f"degree {min(atom.GetDegree(), 6)}"],
                at.get(f"hybridisation {atom.GetHybridization().name.lower()}", _OTHER_SHAPE),
                at.get(f"chirality {atom.HasProp('_CIPCode') and atom.GetProp('_CIPCode')}", none),
                at["aromatic"] if atom.GetIsAromatic() else none,
                at["in a ring"] if atom.IsInRing() else none,
            )
            for atom in atoms_of(mol)
        ]
        to, far = _EDGE_PLACE, len(self.edge_columns)
        bonds = [
            (
                to.get(bond.GetBondType().name.lower(), to["other type"]),
                to.get(f"stereo {_STEREO.get(bond.GetStereo().name)}", far),
                to["conjugated"] if bond.GetIsConjugated() else far,
                to["in a ring"] if bond.IsInRing() else far,
            )
            for bond in bonds_of(mol)
        ]
        x, edge_attr = _ones(atoms, none, 8), _ones(bonds, far, 4).repeat_interleave(2, 0)
        ends = torch.tensor(bond_ends(mol), dtype=torch.long).view(-1, 2)
        return Data(x=x, edge_index=both_ways(ends), edge_attr=edge_attr).update(origin)


_PLACE = {name: place for place, name in enumerate(Rich.node_columns)}
_OTHER_SHAPE = _PLACE["hybridisation other"]
_EDGE_PLACE = {name: place for place, name in enumerate(Rich.edge_columns)}


def _ones(places: Sequence[tuple[int, ...]], width: int, num: int) -> torch.Tensor:
    """Returns rows of zeros with ones in `num` columns each; column ``width`` is dropped."""
    index = torch.tensor(places, dtype=torch.long).view(-1, num)
    return torch.zeros(len(index), width + 1).scatter_(1, index, 1.0)[:, :width].contiguous()


@dataclass(frozen=True)
class PyG:
    """The integers of ``torch_geometric.utils.from_smiles``, for embedding layers.

    Hydrogens stay implicit. PyG sorts edges by node, so they are not in the order of bonds.
    """

    name: ClassVar[str] = "pyg"

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
        return graph.update(origin)


@dataclass(frozen=True)
class OwnFeaturizer:
    """A function from SMILES to `Data`, with a name."""

    function: Callable[[str], Data]
    name: str

    def __call__(self, molecule: str | Mol) -> Data:
        _, origin = _read(molecule)
        graph = self.function(origin["smiles"])
        if not isinstance(graph, Data) or graph.get("x") is None or graph.get("edge_index") is None:
            got = sorted(graph.keys()) if isinstance(graph, Data) else type(graph).__name__
            raise ConfigError(
                f"The featuriser {self.name!r} must return a torch_geometric Data with `x` and "
                f"`edge_index` (got {got})."
            )
        return graph.update(origin)


#: Featurisers by name.
FEATURIZERS: dict[str, Featurizer] = {each.name: each for each in (Elements(), Rich(), PyG())}


def find_featurizer(featurizer: str | Callable[..., Data]) -> Featurizer:
    """Returns a featuriser by its name, by ``"module:function"``, or from a function of SMILES.

    >>> find_featurizer("rich")("CO").num_edge_features
    9
    """
    named: Any = FEATURIZERS.get(featurizer) if isinstance(featurizer, str) else featurizer
    name = getattr(named, "__name__", "own")
    if isinstance(featurizer, str) and ":" in featurizer:
        named, name = import_named("featurizer", featurizer), featurizer
    if isinstance(named, Featurizer) and not isinstance(named, type):
        return named
    if callable(named):
        return OwnFeaturizer(named, name)
    raise ConfigError(
        f"`featurizer` must be one of {[*FEATURIZERS]}, 'module:function', or a function from "
        f"SMILES to Data (got {featurizer!r})."
    )


def import_named(what: str, word: str) -> Any:
    """Returns what ``module:name`` names, from the current folder or what is installed."""
    module, _, name = word.partition(":")
    sys.path.insert(0, "")  # as `python` does, to import modules of the current folder
    try:
        thing: Any = import_module(module)
        for part in name.split("."):
            thing = getattr(thing, part)
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise ConfigError(
            f"`{what}` must be module:name of something that can be imported (got {word!r}: "
            f"{error}). Run the command in the folder of the module, or install it."
        ) from error
    finally:
        sys.path.remove("")
    return thing


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
    smiles: str | Sequence[str], featurizer: str | Callable[..., Data] = "elements"
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
            graphs.append(make(molecule))
        except MoleculeError as error:
            where = f"Molecule {number} of {len(molecules)}: " if len(molecules) > 1 else ""
            raise MoleculeError(f"{where}{error}") from None
    return graphs


def _read(molecule: str | Mol) -> tuple[Mol, dict[str, Any]]:
    """Returns a molecule in the atom order of its SMILES, and what its graph keeps of it."""
    if isinstance(molecule, str):
        return parse_smiles(molecule), {"smiles": molecule}
    chem = require_rdkit()
    if not isinstance(molecule, chem.Mol) or molecule.GetNumAtoms() == 0:
        what = "without atoms" if isinstance(molecule, chem.Mol) else repr(molecule)
        raise MoleculeError(
            f"A molecule must be a SMILES or an RDKit Mol with an atom (got "
            f"{type(molecule).__name__} {what})."
        )
    smiles = chem.MolToSmiles(molecule)
    order = list(molecule.GetPropsAsDict(True, True)["_smilesAtomOutputOrder"])
    return chem.RenumberAtoms(molecule, order), {"smiles": smiles, "node_atom": torch.tensor(order)}
