"""Generated molecules: valid, distinct, repeatable; datasets balanced and with correct truth."""

import pytest
import torch

pytest.importorskip("rdkit", reason="needs RDKit: pip install 'nicegnn[molecules]'")

from nicegnn.errors import ConfigError
from nicegnn.molecule.smiles import parse_smiles
from nicegnn_lab.datasets import generator
from nicegnn_lab.datasets.generator import (
    GENERATED_TASKS,
    GenerationError,
    generate_dataset,
    generate_smiles,
)
from nicegnn_lab.datasets.rules import truth_of

NUM = 800


@pytest.fixture(scope="module")
def smiles():
    return generate_smiles(NUM, seed=0)


@pytest.fixture(scope="module")
def mols(smiles):
    return [parse_smiles(text) for text in smiles]


@pytest.fixture(scope="module", params=GENERATED_TASKS)
def dataset(request):
    return request.param, generate_dataset(request.param, 100, seed=5)


def test_molecules_are_valid_distinct_and_canonical(smiles, mols):
    from rdkit import Chem

    assert len(set(smiles)) == NUM
    assert [Chem.MolToSmiles(mol) for mol in mols] == smiles


def test_truth_is_that_of_the_rule(dataset):
    task, graphs = dataset
    for data in graphs:
        truth = truth_of(data.smiles, task)
        assert data.y.tolist() == [truth.label]
        assert data.y.dtype == torch.long
        assert data.edge_truth.dtype == torch.bool
        edges = data.edge_truth.nonzero().flatten().tolist()
        assert edges == [e for bond in sorted(truth.union) for e in (2 * bond, 2 * bond + 1)]
        assert bool(edges) == bool(truth.label)
        found = [{edge // 2 for edge in edges} for edges in data.edge_alternatives]
        assert found == [set(bonds) for bonds in truth.alternatives]


def test_impossible_requests_are_explained(monkeypatch):
    with pytest.raises(ConfigError, match=r"benzene.*got 'pains'"):
        generate_dataset("pains", 4)
    with pytest.raises(ConfigError, match="got -1"):
        generate_smiles(-1)
    monkeypatch.setattr(generator, "MAX_DRAWS_PER_MOLECULE", 0)
    with pytest.raises(GenerationError, match=r"at most 0 for seed 0 \(got 3\)"):
        generate_smiles(3)
    with pytest.raises(GenerationError, match=r"at most 0 for 'benzene'.*several seeds"):
        generate_dataset("benzene", 3)
