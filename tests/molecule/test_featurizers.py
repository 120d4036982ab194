"""Featurisers: values by hand, the same atoms in every order, PyG's own numbers, refusals."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch_geometric.data import Data
from torch_geometric.utils.smiles import from_rdmol

from nicegnn.errors import ConfigError
from nicegnn.molecule.featurizers import (
    FEATURIZERS,
    RICH_ATOMS,
    RICH_BONDS,
    Featurizer,
    find_featurizer,
    graphs_from_smiles,
    model_featurizer,
)
from nicegnn.molecule.smiles import MoleculeError, matched_molecule, parse_smiles

rdBase = pytest.importorskip("rdkit.rdBase")
Chem = pytest.importorskip("rdkit.Chem", reason="needs RDKit: pip install 'nicegnn[molecules]'")

MOLECULES = ("CCO", "CC(=O)Nc1ccc(O)cc1", "[Na+].[Cl-]", "C[C@H](N)C(=O)O", "F/C=C/F", "C", "C[Si]")


def named(row: torch.Tensor, columns: tuple[str, ...]) -> set[str]:
    return {columns[place] for place in row.nonzero().view(-1).tolist()}


def molecule_of(graph: Data) -> Chem.Mol:
    """The molecule whose atom ``i`` is node ``i``, or an error."""
    return matched_molecule(graph.smiles, graph.edge_index, graph.num_nodes)


def own(smiles: str) -> Data:
    """A featuriser of a user: one node feature, no edge features."""
    mol = Chem.MolFromSmiles(smiles)
    ends = [(b.GetBeginAtomIdx(), b.GetEndAtomIdx()) for b in mol.GetBonds()]
    edge_index = torch.tensor([*ends, *(pair[::-1] for pair in ends)]).view(-1, 2).t()
    return Data(x=torch.ones(mol.GetNumAtoms(), 1), edge_index=edge_index.long())


@pytest.mark.parametrize("name", FEATURIZERS)
@pytest.mark.parametrize("smiles", MOLECULES)
def test_every_featuriser_keeps_the_contract(name: str, smiles: str) -> None:
    make = find_featurizer(name)
    assert isinstance(make, Featurizer)
    assert make.name == name
    graph = make(smiles)
    mol = parse_smiles(smiles)
    widths = {"elements": (14, 4), "rich": (len(RICH_ATOMS), 9)}
    assert graph.x.shape == (mol.GetNumAtoms(), widths[name][0])
    assert graph.edge_attr.shape == (2 * mol.GetNumBonds(), widths[name][1])
    assert graph.edge_index.shape == (2, 2 * mol.GetNumBonds())
    assert graph.edge_index.dtype == torch.long
    assert graph.smiles == smiles
    atoms = molecule_of(graph).GetAtoms()
    assert [a.GetSymbol() for a in atoms] == [a.GetSymbol() for a in mol.GetAtoms()]
    for key in ("x", "edge_index", "edge_attr"):
        assert torch.equal(graph[key], make(smiles)[key])


def test_rich_atoms_and_bonds_by_hand() -> None:
    rich = FEATURIZERS["rich"]
    graph = rich("C[C@H]([NH3+])C(=O)[O-]")
    tell = [named(row, RICH_ATOMS) for row in graph.x]
    sp3, sp2 = "hybridisation sp3", "hybridisation sp2"
    assert tell[1] == {"element C", "charge 0", "hydrogens 1", "degree 3", sp3, "chirality S"}
    assert tell[2] == {"element N", "charge 1", "hydrogens 3", "degree 1", sp3}
    assert tell[4] == {"element O", "charge 0", "hydrogens 0", "degree 1", sp2}
    assert "charge -1" in tell[5]
    assert named(graph.edge_attr[0], RICH_BONDS) == {"single"}
    assert graph.x.dtype == graph.edge_attr.dtype == torch.float32
    benzene = rich("c1ccccc1")
    assert {"aromatic", "in a ring"} <= named(benzene.x[0], RICH_ATOMS)
    assert named(benzene.edge_attr[0], RICH_BONDS) == {"aromatic", "conjugated", "in a ring"}
    assert "stereo E" in named(rich("F/C=C/F").edge_attr[2], RICH_BONDS)
    assert "stereo Z" in named(rich("F/C=C\\F").edge_attr[2], RICH_BONDS)
    assert "other type" in named(rich("N->B").edge_attr[0], RICH_BONDS)
    far = named(rich("[Cu+4]").x[0], RICH_ATOMS)
    assert {"element other", "charge 2"} <= far  # beyond the last column


@pytest.mark.parametrize("name", ["rich", "elements"])
def test_features_do_not_depend_on_the_order_of_atoms(name: str) -> None:
    mol = parse_smiles("C[C@H](N)C(=O)/C=C/c1ccccc1")
    one = find_featurizer(name)(Chem.MolToSmiles(mol))
    other = find_featurizer(name)(Chem.MolToSmiles(mol, rootedAtAtom=5))

    def sorted_rows(value: torch.Tensor) -> list[list[float]]:
        return sorted(value.tolist())

    assert one.smiles != other.smiles
    assert sorted_rows(one.x) == sorted_rows(other.x)
    assert sorted_rows(one.edge_attr) == sorted_rows(other.edge_attr)


def test_functions_of_users_become_featurisers() -> None:
    make = find_featurizer(own)
    assert make.name == "own"
    graph = make("CCO")
    assert graph.smiles == "CCO"
    assert molecule_of(graph).GetNumAtoms() == 3
    by_name = find_featurizer("tests.molecule.test_featurizers:own")
    assert by_name("CCO").num_nodes == 3
    assert by_name.name == "tests.molecule.test_featurizers:own"
    assert find_featurizer(make) is make
    before = rdBase.LogStatus()
    of_pyg = find_featurizer("torch_geometric.utils:from_smiles")("CC(=O)N")
    for key, value in from_rdmol(Chem.MolFromSmiles("CC(=O)N")).to_dict().items():
        assert torch.equal(of_pyg[key], value)
    assert of_pyg.smiles == "CC(=O)N"
    assert rdBase.LogStatus() == before  # PyG alone would silence RDKit
    with pytest.raises(ConfigError, match=r"must return a torch_geometric Data .*got int"):
        find_featurizer(lambda smiles: 3)("C")


@pytest.mark.parametrize(
    ("featurizer", "reason"),
    [
        ("nosuch", r"one of \['elements', 'rich'\].*got 'nosuch'"),
        ("nosuch.module:f", "can be imported .*No module named 'nosuch'"),
        ("tests.molecule.test_featurizers:nosuch", "has no attribute 'nosuch'"),
        ("tests.molecule.test_featurizers:MOLECULES", "or a function from SMILES"),
        (3, "got 3"),
    ],
)
def test_unknown_featurisers_are_named(featurizer: object, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        find_featurizer(featurizer)


@pytest.mark.parametrize("name", [*FEATURIZERS, own])
@pytest.mark.parametrize(
    ("smiles", "reason"),
    [
        ("", "at least one atom"),
        ("c1cc", "unclosed ring"),
        ("CCO ethanol", "without spaces"),
        (None, "got NoneType"),
    ],
)
def test_refused_molecules_are_named(name, smiles, reason) -> None:
    with pytest.raises(MoleculeError, match=rf"Molecule 1 of 2: .*{reason}"):
        graphs_from_smiles(["C", smiles], name)
    with pytest.raises(MoleculeError, match=rf"^(?!Molecule).*{reason}"):
        graphs_from_smiles(smiles, name)
    with pytest.raises(MoleculeError, match="at least one molecule"):
        graphs_from_smiles([])


def test_a_model_names_its_featuriser() -> None:
    model = nn.Linear(1, 1)
    with pytest.raises(ConfigError, match=r"Set `model.featurizer` to one of \['elements'"):
        model_featurizer(model)
    model.featurizer = "rich"
    assert model_featurizer(model) is FEATURIZERS["rich"]
    model.featurizer = own
    assert model_featurizer(model)("CO").num_nodes == 2
