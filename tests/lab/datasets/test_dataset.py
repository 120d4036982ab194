"""The PyG dataset: views, batches and lazily cut graphs agree; figures of small sets by hand."""

import pytest
import torch
from torch_geometric.data import Batch

from nicegnn_lab.datasets.graph_tables import ATOMS_MUTAGENICITY
from tests.lab.datasets.small_files import (
    BENZENE,
    bonds_of,
    load,
    tidy_benzene,
    tidy_bxaic,
    tidy_mutagenicity,
)


@pytest.fixture
def folder(tmp_path):
    tidy_benzene(tmp_path, copies=10)
    tidy_bxaic(tmp_path)
    tidy_mutagenicity(tmp_path)
    return tmp_path


def test_parts_are_disjoint_views_of_the_whole(folder):
    dataset = load("benzene", folder)
    rows = [part.flat()[2].tolist() for part in (dataset.train, dataset.valid, dataset.test)]
    assert sorted(row for part in rows for row in part) == list(range(40))
    assert len(dataset) == 40
    assert dataset.train.y.tolist() == [data.y.item() for data in dataset.train]
    assert dataset.train[5].smiles == dataset.train.smiles[5]


@pytest.mark.parametrize("name", ["benzene", "mutagenicity", "rings-max"])
def test_one_batch_equals_the_collated_graphs(name, folder):
    dataset = load(name, folder)
    ours, theirs = dataset.batch(), Batch.from_data_list(list(dataset))
    assert sorted(ours.keys()) == sorted(theirs.keys())
    assert ours.num_graphs == theirs.num_graphs == len(dataset)
    for key, value in theirs:
        same = torch.equal(ours[key], value) if torch.is_tensor(value) else ours[key] == value
        assert same, key
    for mine, other in zip(ours.to_data_list(), dataset, strict=True):
        assert torch.equal(mine.edge_index, other.edge_index)
        assert mine.smiles == other.smiles
        assert mine.get("edge_alternatives") == other.get("edge_alternatives")


def test_benzene_by_hand(tmp_path):
    tidy_benzene(tmp_path)
    dataset = load("benzene", tmp_path)
    assert [data.smiles for data in dataset] == [smiles for smiles, _, _ in BENZENE]
    assert dataset.y.tolist() == [1, 0, 1, 0]
    toluene, cyclohexane, diphenylmethane, _ = dataset
    assert toluene.edge_attr.argmax(1).tolist() == [0, 0] + [3] * 12
    assert [bonds_of(edges) for edges in toluene.edge_alternatives] == [{1, 2, 3, 4, 5, 6}]
    assert toluene.edge_truth.tolist() == [False] * 2 + [True] * 12
    assert toluene.node_truth.tolist() == [False] + [True] * 6
    assert not cyclohexane.edge_truth.any()
    sizes = [len(bonds_of(edges)) for edges in diphenylmethane.edge_alternatives]
    assert sizes == [6, 6, 12]  # either ring, or both


def test_mutagenicity_by_hand(tmp_path):
    tidy_mutagenicity(tmp_path)
    dataset = load("mutagenicity", tmp_path)
    assert dataset.flat()[2].tolist() == [0, 1, 2]  # the last graph has class 0, yet a match
    assert "left out: 1 (class and match disagree (GraphXAI's filter))" in dataset.report
    nitroso, methane, halide = dataset
    symbols = [ATOMS_MUTAGENICITY[column] for column in nitroso.x.argmax(1)]
    assert symbols == ["C", "N", "O"]
    assert nitroso.edge_truth.all()  # each bond touches N or O
    assert nitroso.node_truth.tolist() == [False, True, True]
    assert (methane.y.item(), bool(methane.edge_truth.any())) == (0, False)
    assert [bonds_of(edges) for edges in halide.edge_alternatives] == [{2}]  # C-Cl alone
