"""Stacked graphs give the same batches as PyG's own collation."""

from __future__ import annotations

import pytest
import torch
from torch_geometric.data import Batch, Data

from nicegnn.graph.minibatches import GraphStack
from tests.conftest import NUM_FEATURES, random_graph


def make_graphs() -> list[Data]:
    graphs = [random_graph(3 + n % 5, seed=n) for n in range(9)]
    graphs.append(Data(x=torch.ones(2, NUM_FEATURES), edge_index=torch.zeros(2, 0).long()))
    graphs[-1].edge_attr, graphs[-1].y = torch.zeros(0, 3), torch.tensor([1])
    for n, graph in enumerate(graphs):
        graph.root_index = torch.tensor([n % graph.num_nodes])  # a node number per graph
        graph.edge_label_index = torch.tensor([[0], [n % graph.num_nodes]])  # a pair per graph
        graph.edge_reached = torch.arange(graph.num_edges) % 2 == 0
        graph.name = f"graph {n}"
    return graphs


@pytest.mark.parametrize("chosen", [[0], [3, 1, 4], [9], [8, 9, 0, 9], list(range(10))])
def test_batches_equal_pygs_collation(chosen: list[int]) -> None:
    graphs = make_graphs()
    expected = Batch.from_data_list([graphs[k] for k in chosen])
    found = GraphStack(graphs).take(torch.tensor(chosen))
    assert found.num_graphs == expected.num_graphs
    assert {"edge_label_index", "edge_reached", "root_index"} <= set(expected.keys())
    for key in set(expected.keys()) - {"name"}:
        assert torch.equal(found[key], expected[key]), key


def test_edges_of_chosen_graphs() -> None:
    graphs = make_graphs()
    whole = Batch.from_data_list(graphs)
    stack = GraphStack(graphs)
    chosen = torch.tensor([4, 9, 1, 4])
    assert stack.num_edges.tolist() == [graph.num_edges for graph in graphs]
    edges, home = stack.edges_of(chosen)
    assert torch.equal(whole.batch[whole.edge_index[0]][edges], chosen[home])
    assert torch.equal(whole.edge_attr[edges], stack.take(chosen).edge_attr)


def test_lists_are_kept_where_they_are_wanted() -> None:
    whole = Batch.from_data_list(make_graphs())
    stack = GraphStack(whole, wanted=lambda key: key in ("edge_index", "name"))
    found = stack.take(torch.tensor([2, 2, 0]))
    assert found.name == ["graph 2", "graph 2", "graph 0"]
    assert "x" not in found
    assert stack.lost == set()
    assert GraphStack(whole).take(torch.tensor([1])).name == ["graph 1"]  # by default all are


def test_what_cannot_be_cut_is_named() -> None:
    whole = Batch.from_data_list(make_graphs())
    assert GraphStack(whole, wanted=lambda key: True).lost == set()
    whole.scale = torch.tensor(2.0)  # of the batch, not of a graph
    whole.x_batch = whole.batch
    whole.pair_index = torch.zeros(2, 4, dtype=torch.long)
    whole.edge_index = whole.edge_index.flip(1)
    lost = GraphStack(whole, wanted=lambda key: True).lost
    assert lost == {"scale", "x_batch", "pair_index", "edge_index"}


class Odd(Data):
    """Joins `table` along its second dimension."""

    def __cat_dim__(self, key: str, value: object, *args: object) -> object:
        return 1 if key == "table" else super().__cat_dim__(key, value, *args)


def test_attributes_of_any_size_are_cut_as_pyg_joins_them() -> None:
    graphs = [Odd.from_dict(graph.to_dict()) for graph in make_graphs()]
    for n, graph in enumerate(graphs):
        graph.table = torch.full((2, 1 + n), float(n))
        graph.parts = [torch.full((2,), float(n)), torch.full((3,), float(n))]
        graph.u, graph.ragged = torch.full((5,), float(n)), torch.full((n % 3, 2), float(n))
    expected = Batch.from_data_list([graphs[k] for k in (3, 0, 3)])
    for source in (graphs, Batch.from_data_list(graphs)):
        stack = GraphStack(source)
        found = stack.take(torch.tensor([3, 0, 3]))
        assert stack.lost == {"parts"}
        for key in ("table", "u", "ragged"):
            assert torch.equal(found[key], expected[key]), key
