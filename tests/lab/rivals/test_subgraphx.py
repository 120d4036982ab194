"""Shapley values: the axioms, and all coalitions of a small graph enumerated."""

from __future__ import annotations

from itertools import combinations
from math import factorial

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from nicegnn.graph.batch import to_batch
from nicegnn.graph.case import make_case
from nicegnn_lab.rivals import get_explainer
from tests.conftest import make_graph, random_graph
from tests.explain.score_properties import (
    CHECKS,
    deletion_evidence,
    gin,
    some_graphs,
)


@pytest.mark.parametrize("mechanism", ["em", "nc"])
@pytest.mark.parametrize("check", CHECKS)
def test_has_the_properties_of_every_rival(check, mechanism):
    check("subgraphx", mechanism=mechanism, num_orders=3, num_draws=2)


def exact_values(model: nn.Module, graph: Data, output: int) -> Tensor:
    """Returns the Shapley values by their definition, over all coalitions of really kept bonds."""
    bonds = range(graph.num_edges // 2)
    num = len(bonds)
    values = []
    for bond in bonds:
        others, value = [b for b in bonds if b != bond], torch.tensor(0.0)
        for size in range(num):
            weight = factorial(size) * factorial(num - size - 1) / factorial(num)
            for coalition in combinations(others, size):
                with_bond = deletion_evidence(model, graph, sorted([*coalition, bond]), output)
                without = deletion_evidence(model, graph, sorted(coalition), output)
                value = value + weight * (with_bond - without)
        values.append(value)
    return torch.stack(values)


def test_tends_to_the_exact_values():
    model, graph = gin(), make_graph([(0, 1), (1, 2), (2, 3), (0, 3)], 4, seed=1)
    exact = exact_values(model, graph, 1)
    errors = []
    for num in (8, 800):
        found = get_explainer("subgraphx", model, num_orders=num).explain(graph, target=1)
        errors.append(float((found.bond_score - exact).abs().max()))
    assert errors[1] < 0.02 * float(exact.abs().max())
    assert errors[1] < errors[0]


def test_scores_sum_to_the_value_of_all_bonds():
    model, graphs = gin(), some_graphs()[:3]
    found = get_explainer("subgraphx", model, num_orders=3).explain(graphs, target=2)
    for part, graph in zip(found.split(), graphs, strict=True):
        bonds = list(range(graph.num_edges // 2))
        rise = deletion_evidence(model, graph, bonds, 2) - deletion_evidence(model, graph, [], 2)
        torch.testing.assert_close(part.bond_score.sum(), rise, rtol=1e-4, atol=1e-5)


def test_orders_are_permutations_and_come_in_reversed_pairs():
    batch = to_batch([random_graph(6, 1), random_graph(4, 2)])
    case = make_case(batch)
    explainer = get_explainer("subgraphx", gin(), num_orders=6)
    size = torch.bincount(case.bonds.batch)
    place = explainer._places(case, size, range(6), seed=0)
    for graph in range(2):
        own = place[:, case.bonds.batch == graph]
        assert torch.equal(own.sort(1).values, torch.arange(own.size(1)).expand(6, -1))
        assert torch.equal(own[1::2], own.size(1) - 1 - own[::2])
    assert len({tuple(row) for row in place.tolist()}) == 6
