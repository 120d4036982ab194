"""Computation graphs of nodes, by hand on a chain."""

from __future__ import annotations

import pytest
import torch
from torch_geometric.data import Batch, Data

from nicegnn.errors import TargetError
from nicegnn.graph.computation_graphs import check_index, surroundings, whole_graph

FORWARD, BACKWARD = "source_to_target", "target_to_source"


def chain(*extra: tuple[int, int]) -> Batch:
    """Messages 0 -> 1 -> 2 -> 3 -> 4, one way."""
    pairs = torch.tensor([(0, 1), (1, 2), (2, 3), (3, 4), *extra])
    data = Data(
        x=10 * torch.arange(5.0).view(-1, 1),
        edge_index=pairs.t(),
        edge_attr=torch.arange(float(len(pairs))),
        y=torch.tensor([1]),
    )
    return Batch.from_data_list([data])


def test_one_hop_more_than_the_model_reads_is_kept() -> None:
    """One layer answers for node 3 by the message 2 -> 3; 1 -> 2 is kept for degrees at the rim."""
    part = surroundings(chain(), 3, 1, FORWARD)
    assert part.x.view(-1).tolist() == [10, 20, 30]
    assert part.edge_index.t().tolist() == [[0, 1], [1, 2]]
    assert part.edge_attr.tolist() == [1, 2]
    assert part.edge_origin.tolist() == [1, 2]
    assert part.root_index.tolist() == [2]
    assert part.edge_reached.tolist() == [False, True]
    assert "y" not in part  # belongs to no node and no edge


@pytest.mark.parametrize(
    ("hops", "reached"),
    [
        (1, [False, False, True, False]),
        (2, [False, True, True, False]),
        (3, [True, True, True, False]),
        (9, [True, True, True, False]),
    ],
)
def test_an_edge_counts_if_its_message_arrives_in_time(hops: int, reached: list[bool]) -> None:
    part = whole_graph(chain(), 3, hops, FORWARD)
    assert part.edge_reached.tolist() == reached
    assert part.edge_origin.tolist() == [0, 1, 2, 3]
    assert part.root_index.tolist() == [3]
    assert part.num_nodes == 5


def test_messages_may_flow_the_other_way() -> None:
    assert whole_graph(chain(), 1, 2, BACKWARD).edge_reached.tolist() == [False, True, True, False]
    part = surroundings(chain(), 3, 1, BACKWARD)
    assert part.x.view(-1).tolist() == [30, 40]
    assert part.edge_reached.tolist() == [True]


def test_edges_of_both_ways_count_for_their_own_direction() -> None:
    """With 3 -> 2 in the graph, two layers bring it to 3 by way of 2."""
    graph = chain((3, 2))
    assert whole_graph(graph, 3, 1, FORWARD).edge_reached.tolist() == [0, 0, 1, 0, 0]
    assert whole_graph(graph, 3, 2, FORWARD).edge_reached.tolist() == [0, 1, 1, 0, 1]


def test_a_node_without_edges_is_a_graph_of_its_own() -> None:
    part = surroundings(chain(), 0, 2, FORWARD)
    assert (part.num_nodes, part.edge_index.size(1)) == (1, 0)
    assert part.root_index.tolist() == [0]


@pytest.mark.parametrize(
    ("index", "expected"),
    [
        (3, [3]),
        ([0, 4], [0, 4]),
        (torch.tensor([2, 2]), [2, 2]),
        (torch.tensor([True, False, False, True, False]), [0, 3]),
    ],
)
def test_explained_nodes_are_numbers_or_a_mask(index: object, expected: list[int]) -> None:
    found = check_index(index, 5)  # type: ignore[arg-type]
    assert found.tolist() == expected
    assert found.dtype == torch.long


@pytest.mark.parametrize(
    ("index", "words"),
    [
        (5, r"between 0 and 4 \(got 5 to 5\)"),
        ([-1, 2], r"\(got -1 to 2\)"),
        (1.5, r"at least one node number.*got 1 values of torch\.float32"),
        ([], "at least one node number"),
        (torch.tensor([True, False]), "mask over all nodes"),
    ],
)
def test_bad_nodes_are_refused(index: object, words: str) -> None:
    with pytest.raises(TargetError, match=words):
        check_index(index, 5)  # type: ignore[arg-type]
