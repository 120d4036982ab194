"""True explanations as flat tensors: from graphs, from lists, from datasets."""

from __future__ import annotations

import os
import time
from dataclasses import fields

import pytest
import torch
from torch_geometric.data import Batch, Data

from nicegnn.metrics import MetricError, Truth


def chain(num_nodes: int, alternatives: list[list[int]]) -> Data:
    """A chain of atoms; bond b is edges 2b and 2b + 1."""
    pairs = [pair for u in range(num_nodes - 1) for pair in ((u, u + 1), (u + 1, u))]
    edge_index = torch.tensor(pairs, dtype=torch.long).view(-1, 2).t().contiguous()
    edge_truth = torch.zeros(len(pairs), dtype=torch.bool)
    edge_truth[[edge for edges in alternatives for edge in edges]] = True
    return Data(
        x=torch.ones(num_nodes, 1),
        edge_index=edge_index,
        edge_truth=edge_truth,
        edge_alternatives=alternatives,
    )


def assert_same(first: Truth, second: Truth) -> None:
    assert first.num_graphs == second.num_graphs
    for field in fields(Truth):
        if field.name != "num_graphs":
            assert torch.equal(getattr(first, field.name), getattr(second, field.name)), field.name


@pytest.fixture
def graphs() -> list[Data]:
    return [
        chain(4, [[0, 1], [4, 5], [0, 1, 4, 5]]),
        chain(3, []),
        chain(1, []),
        chain(2, [[0, 1]]),
    ]


def test_alternatives_become_entries(graphs: list[Data]) -> None:
    truth = Truth.from_graphs(graphs)
    assert truth.num_graphs == 4
    assert truth.num_edges.tolist() == [6, 4, 0, 2]
    assert truth.num_true.tolist() == [4, 0, 0, 2]
    assert truth.entry_edge.tolist() == [0, 1, 4, 5, 0, 1, 4, 5, 10, 11]
    assert truth.entry_alternative.tolist() == [0, 0, 1, 1, 2, 2, 2, 2, 3, 3]
    assert truth.alternative_batch.tolist() == [0, 0, 0, 3]


def test_a_batch_a_list_and_a_moved_truth_are_the_same(graphs: list[Data]) -> None:
    truth = Truth.from_graphs(graphs)
    assert_same(Truth.from_graphs(Batch.from_data_list(graphs)), truth)
    assert_same(truth.to("cpu"), truth)


def test_edges_need_not_lie_graph_by_graph(graphs: list[Data]) -> None:
    """Edge j of a graph is the j-th of that graph, wherever it stands in the batch."""
    batch = Batch.from_data_list(graphs)
    order = torch.tensor([6, 0, 10, 1, 7, 2, 3, 8, 4, 9, 5, 11])
    batch.edge_index, batch.edge_truth = batch.edge_index[:, order], batch.edge_truth[order]
    truth = Truth.from_graphs(batch)
    assert order[truth.entry_edge].tolist() == Truth.from_graphs(graphs).entry_edge.tolist()


def test_without_alternatives_the_union_is_the_only_one(graphs: list[Data]) -> None:
    for graph in graphs:
        del graph.edge_alternatives
    truth = Truth.from_graphs(graphs)
    assert truth.alternative_batch.tolist() == [0, 3]
    assert truth.entry_edge.tolist() == [0, 1, 4, 5, 10, 11]


def test_an_empty_alternative_explains_nothing() -> None:
    truth = Truth.from_graphs(chain(3, [[], [0, 1]]))
    assert truth.alternative_batch.tolist() == [0]
    assert truth.entry_alternative.tolist() == [0, 0]


def test_graphs_without_truth_are_an_error(path: Data) -> None:
    with pytest.raises(MetricError, match="edge_truth"):
        Truth.from_graphs(path)


needs_data = pytest.mark.skipif(
    "NICEGNN_DATA" not in os.environ,
    reason="set NICEGNN_DATA to a folder with the published data files",
)


@needs_data
@pytest.mark.parametrize("name", ["mutagenicity", "fluoride-carbonyl", "rings-max"])
def test_a_dataset_and_its_batch_have_the_same_truth(name: str) -> None:
    from nicegnn.datasets import load_dataset

    test = load_dataset(name).test
    positions = torch.randperm(len(test), generator=torch.Generator().manual_seed(0))[:150]
    assert_same(Truth.from_dataset(test, positions), Truth.from_graphs(test.batch(positions)))
    some = [test[int(position)] for position in positions[:20]]
    assert_same(Truth.from_dataset(test, positions[:20]), Truth.from_graphs(some))


@needs_data
@pytest.mark.slow
def test_five_thousand_graphs_take_less_than_a_second() -> None:
    from nicegnn.datasets import load_dataset

    dataset = load_dataset("fluoride-carbonyl")
    batch = dataset.batch(torch.arange(5000))
    start = time.perf_counter()
    truth = Truth.from_graphs(batch)
    assert time.perf_counter() - start < 1
    assert truth.num_graphs == 5000


@needs_data
def test_truth_on_atoms_is_an_error() -> None:
    from nicegnn.datasets import load_dataset

    with pytest.raises(MetricError, match="truth lies on "):
        Truth.from_dataset(load_dataset("B"))
