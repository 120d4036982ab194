"""The PyG dataset: views, batches and lazily cut graphs agree; figures of small sets by hand."""

import math

import pytest
import torch
from torch_geometric.data import Batch

from nicegnn.molecule.smiles import graph_from_tables
from nicegnn_lab.datasets.dataset import dataset_statistics
from tests.lab.datasets.small_files import (
    BENZENE,
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


def test_graphs_equal_those_of_the_molecule_tables(folder):
    data = load("benzene", folder)[3]
    expected = graph_from_tables(["C", "C", "O"], [(0, 1, 1), (1, 2, 1)], smiles="CCO")
    for key in ("x", "edge_index", "edge_attr"):
        assert torch.equal(data[key], expected[key])
        assert data[key].dtype == expected[key].dtype
    assert data.y.dtype == torch.long
    assert data.y.shape == (1,)


def test_union_is_that_of_the_alternatives(folder):
    for name in ("benzene", "mutagenicity", "indole", "rings-max"):
        for data in load(name, folder):
            union = {edge for edges in data.edge_alternatives for edge in edges}
            assert data.edge_truth.nonzero().view(-1).tolist() == sorted(union)
            assert bool(data.edge_truth.any()) == bool(data.y)


def test_parts_are_disjoint_views_of_the_whole(folder):
    dataset = load("benzene", folder)
    rows = [part.rows.tolist() for part in (dataset.train, dataset.valid, dataset.test)]
    assert sorted(row for part in rows for row in part) == list(range(40))
    assert len(dataset) == 40
    assert dataset.train.y.tolist() == [data.y.item() for data in dataset.train]
    assert dataset.train[5].smiles == dataset.train.smiles[5]


def test_slices_and_masks_select_as_in_pyg(folder):
    dataset = load("benzene", folder)
    assert dataset[2:4].smiles == [smiles for smiles, _, _ in BENZENE[2:4]]
    positives = dataset[dataset.y == 1]
    assert len(positives) == 20
    assert positives.y.all()
    assert set(positives.train.rows.tolist()) <= set(dataset.train.rows.tolist())


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


def test_figures_of_benzene_by_hand(tmp_path):
    tidy_benzene(tmp_path)  # 7, 6, 14 and 2 bonds
    figures = dataset_statistics(load("benzene", tmp_path))
    assert (figures.num_graphs, figures.num_positives, figures.positive_ratio) == (4, 2, 50)
    assert figures.mean_nodes == (7 + 6 + 13 + 3) / 4
    assert figures.mean_edges == 2 * (7 + 6 + 14 + 2) / 4
    union, first = (6 / 7, 12 / 14), (6 / 7, 6 / 14)
    assert figures.union.mean == pytest.approx(100 * sum(union) / 4)
    assert figures.union.std == pytest.approx(100 * 6 / 14)  # 6/7, 0, 6/7, 0
    assert figures.union_positives.mean == pytest.approx(100 * 6 / 7)
    assert figures.union_positives.std == pytest.approx(0)
    assert figures.first.mean == pytest.approx(100 * sum(first) / 4)
    assert figures.annotation is None


def test_figures_of_a_part_count_only_that_part(tmp_path):
    tidy_benzene(tmp_path)
    dataset = load("benzene", tmp_path)
    assert dataset_statistics(dataset[:1]).union.mean == pytest.approx(100 * 6 / 7)
    empty = dataset_statistics(dataset[:0])
    assert empty.num_graphs == 0
    assert math.isnan(empty.union.mean)
    assert math.isnan(empty.positive_ratio)


def test_marks_of_ring_tasks_count_for_both_labels(tmp_path):
    tidy_bxaic(tmp_path)
    figures = dataset_statistics(load("rings-max", tmp_path))
    assert figures.annotation.mean == pytest.approx(100 * (6 / 10 + 1 + 0) / 3)
    assert figures.union.mean == pytest.approx(100 / 3)
