"""Cases: bonds, slots, ranks, and what counts in each graph."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch_geometric.data import Batch, Data

from nicegnn.graph.case import edge_slots, find_bonds, make_case, merge_equal, rank_within


def bonds_of(pairs: list[tuple[int, int]], **kwargs: Any) -> tuple[list, list, list]:
    edge_index = torch.tensor(pairs, dtype=torch.long).view(-1, 2).t()
    bonds = find_bonds(edge_index, torch.zeros(len(pairs), dtype=torch.long), **kwargs)
    assert bonds.batch.tolist() == [0] * bonds.index.size(1)
    return bonds.index.t().tolist(), bonds.edge_bond.tolist(), bonds.count.tolist()


# --- bonds -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pairs", "index", "edge_bond", "count"),
    [
        ([(0, 1), (1, 0), (1, 2), (2, 1)], [[0, 1], [1, 2]], [0, 0, 1, 1], [2, 2]),
        ([(2, 1), (0, 1), (1, 0), (1, 2)], [[1, 2], [0, 1]], [0, 1, 1, 0], [2, 2]),
        ([(0, 1), (0, 1), (1, 0)], [[0, 1]], [0, 0, 0], [3]),
        ([(3, 0), (1, 2)], [[0, 3], [1, 2]], [0, 1], [1, 1]),
        ([(1, 1), (0, 1), (1, 1), (1, 0)], [[1, 1], [0, 1]], [0, 1, 0, 1], [2, 2]),
        ([], [], [], []),
    ],
    ids=["undirected", "by-first-appearance", "duplicates", "one-way", "loops", "empty"],
)
def test_bonds_by_hand(pairs, index, edge_bond, count):
    assert bonds_of(pairs) == (index, edge_bond, count)


def test_directed_edges_are_bonds_of_their_own():
    pairs = [(1, 0), (0, 1), (0, 1), (2, 2)]
    assert bonds_of(pairs, undirected=False) == (
        [list(pair) for pair in pairs],
        [0, 1, 2, 3],
        [1] * 4,
    )


def test_bonds_know_their_graph_and_sum_and_average_their_edges(batch):
    edge_batch = batch.batch[batch.edge_index[0]]
    bonds = find_bonds(batch.edge_index, edge_batch)
    assert torch.equal(bonds.batch, batch.batch[bonds.index[0]])
    assert torch.equal(bonds.batch, batch.batch[bonds.index[1]])
    value = torch.randn(3, batch.num_edges, generator=torch.Generator().manual_seed(0))
    total = bonds.sum(value)
    for k, (u, v) in enumerate(bonds.index.t().tolist()):
        s, t = batch.edge_index
        mine = ((s == u) & (t == v)) | ((s == v) & (t == u))
        torch.testing.assert_close(total[:, k], value[:, mine].sum(1))
        torch.testing.assert_close(bonds.mean(value)[:, k], value[:, mine].mean(1))
    assert int(bonds.count.sum()) == batch.num_edges


# --- slots -------------------------------------------------------------------------------------


def test_slots_follow_the_order_within_a_graph_also_when_graphs_are_interleaved():
    edge_batch = torch.tensor([2, 0, 2, 2, 0, 4])
    assert edge_slots(edge_batch, 5).tolist() == [0, 0, 1, 2, 1, 0]
    assert edge_slots(torch.zeros(0, dtype=torch.long), 2).tolist() == []


# --- cases -------------------------------------------------------------------------------------


def test_mean_gate_of_a_graph_weighs_bonds_by_their_directed_edges():
    edge_index = torch.tensor([[0, 1, 1, 0, 1], [1, 0, 2, 1, 3]])  # 0-1 three times, two one-way
    case = make_case(Batch.from_data_list([Data(x=torch.ones(4, 1), edge_index=edge_index)]))
    mean = case.per_graph_mean(torch.tensor([1.0, 0.5, 0.0]))
    assert mean.tolist() == pytest.approx([(3 * 1 + 0.5 + 0) / 5])


def two_graphs(**extra: Any) -> Batch:
    """0 - 1 - 2 and 3 - 4."""
    edges = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    graphs = [
        Data(x=torch.ones(3, 1), edge_index=edges),
        Data(x=torch.ones(2, 1), edge_index=edges[:, :2]),
    ]
    batch = Batch.from_data_list(graphs)
    for key, value in extra.items():
        batch[key] = value
    return batch


def test_case_of_graphs_has_one_row_each_and_reaches_all_bonds():
    case = make_case(two_graphs())
    assert case.rows.tolist() == [0, 1]
    assert case.reached.tolist() == [True] * 3
    assert case.slot.tolist() == [0, 1, 2, 3, 0, 1]
    assert (case.num_graphs, case.num_edges) == (2, 6)


def test_case_of_computation_graphs_reads_what_they_carry():
    """A bond is reached if one of its directions is."""
    batch = two_graphs(
        root_index=torch.tensor([1, 3]),
        edge_reached=torch.tensor([False, True, False, False, True, True]),
    )
    case = make_case(batch)
    assert case.rows.tolist() == [1, 3]
    assert case.reached.tolist() == [True, False, True]


def test_gates_of_edges_are_those_of_bonds_and_clean_out_of_reach():
    case = make_case(two_graphs(edge_reached=torch.tensor([1, 1, 0, 0, 1, 1]).bool()))
    gate = case.edge_gate(torch.tensor([[0.1, 0.2, 0.3], [0.4, 0.5, 0.6]]))
    expected = torch.tensor([[0.1, 0.1, 1, 1, 0.3, 0.3], [0.4, 0.4, 1, 1, 0.6, 0.6]])
    assert torch.equal(gate, expected)
    assert case.per_graph_mean(torch.tensor([0.1, 0.2, 0.3])).tolist() == pytest.approx([0.1, 0.3])


def test_ranks_count_within_each_graph_and_keep_the_order_of_equal_scores():
    score = torch.tensor([0.5, 2.0, 0.5, 1.0, 7.0, 0.5])
    batch = torch.tensor([0, 1, 0, 0, 1, 0])
    assert rank_within(score, batch, 3).tolist() == [1, 1, 2, 0, 0, 3]


def test_values_that_differ_by_rounding_become_one_and_what_is_rounding_becomes_zero() -> None:
    eps = 256 * torch.finfo(torch.float32).eps  # 3.05e-5
    value = torch.tensor([1.0, 1 + eps, 2.0, 1.0, eps / 2, -eps / 2, 3 * eps, torch.inf])
    batch = torch.tensor([0, 0, 0, 1, 1, 1, 1, 1])
    found = merge_equal(value, batch, torch.zeros(2))
    assert found[:2].tolist() == pytest.approx([1 + eps / 2] * 2, abs=1e-7)
    assert found[0] == found[1]  # to the last bit
    assert found[2:].tolist() == [2.0, 1.0, 0.0, 0.0, value[6], torch.inf]
    large = merge_equal(value[2:], batch[2:], torch.tensor([0.0, 9.0]))
    assert large[4] == 0  # numbers of ten are known less exactly
