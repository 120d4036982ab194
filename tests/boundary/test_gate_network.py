"""The gate network and its inputs against hand numbers."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from nicegnn.boundary.gate_network import GateNetwork, bond_representation
from nicegnn.config import BoundaryConfig
from nicegnn.errors import GraphError
from nicegnn.graph.batch import to_batch
from nicegnn.graph.case import make_case
from nicegnn.intervention.mechanisms import ElementMask
from nicegnn.intervention.query import Query
from nicegnn.target.frozen_model import Target
from tests.boundary.small_models import LogOdds, path_graph

PAPER = BoundaryConfig(objective="penalty", hidden_size=1)
BUDGET = BoundaryConfig(hidden_size=1)


def represented(settings: BoundaryConfig) -> list[list[float]]:
    """Features 1, 2, 4 and -1, 3 on paths: the layer sums up neighbours to 2, 5, 2 and 3, -1."""
    batch = to_batch([path_graph(1.0, 2.0, 4.0), path_graph(-1.0, 3.0)])
    query = Query(Target(LogOdds()), make_case(batch), ElementMask())
    return bond_representation(query, settings).tolist()


def test_the_papers_edges_are_described_by_their_ends_in_the_last_layer():
    """Edges of the first graph are 0-1, 1-2, 1-0, 2-1, then come 0-1 and 1-0 of the second."""
    assert represented(PAPER) == [[2, 5], [5, 2], [5, 2], [2, 5], [3, -1], [-1, 3]]


def test_bonds_are_described_by_sums_and_differences_in_all_layers_and_by_their_graph():
    """Input and layer of both ends; the means over the graphs are 7/3 and 3, then 1 and 1."""
    first, second, other = represented(BUDGET)
    assert first == pytest.approx([3, 7, 1, 3, 7 / 3, 3])
    assert second == pytest.approx([6, 7, 2, 3, 7 / 3, 3])
    assert other == [2, 2, 4, 4, 1, 1]


def small_network(settings: BoundaryConfig = BUDGET) -> GateNetwork:
    r"""Two heads of one hidden unit, :math:`2 ReLU(z_0 + z_1)` and :math:`-ReLU(z_0 - 1)`."""
    net = GateNetwork(2, settings, 2)
    weights = [([[1.0, 1.0]], 0.0, 2.0), ([[1.0, 0.0]], -1.0, -1.0)]
    with torch.no_grad():
        for head, (first, bias, last) in zip(net.heads, weights, strict=True):
            head[0].weight.copy_(torch.tensor(first))
            head[0].bias.fill_(bias)
            head[2].weight.fill_(last)
    return net


def test_each_class_has_a_head_of_its_own():
    z = torch.tensor([[1.0, 2.0], [3.0, 0.5], [-4.0, 1.0], [3.0, 0.5]])
    label = torch.tensor([0, 1, 0, 0])
    assert small_network()(z, label).tolist() == [6.0, -2.0, 0.0, 7.0]


def test_start_is_the_gate_where_nothing_is_known():
    paper = small_network(PAPER.with_(start=0.75))
    logit = paper(torch.zeros(2, 2), torch.tensor([0, 1]))
    assert logit.tolist() == pytest.approx([math.log(3)] * 2)


def test_inputs_are_standardised_and_cut_at_ten_but_not_in_the_paper():
    """Mean 2 and deviation 1 of the first number, and a second one that never varies."""
    z = torch.tensor([[3.0, 5.0], [100.0, 5.0]])
    for settings, expected in ((BUDGET, [2.0, 20.0]), (PAPER, [16.0, 210.0])):
        net = small_network(settings)
        net.standardise(torch.tensor([[1.0, 5.0], [3.0, 5.0]]))
        assert net(z, torch.zeros(2).long()).tolist() == expected


def test_trained_classes_are_known():
    labels = torch.tensor([0, 1, 1, 0])

    def known(num_heads: int, trained: list[bool]) -> list[bool]:
        net = GateNetwork(1, BUDGET, num_heads)
        net.trained.copy_(torch.tensor(trained))
        found: Tensor = net.is_trained_for(labels)
        return found.tolist()

    assert known(2, [False, True]) == [False, True, True, False]
    assert known(1, [True]) == [True] * 4  # one head serves every class


def test_bonds_of_another_width_are_refused():
    with pytest.raises(GraphError, match=r"described by 2 numbers \(got 3\)"):
        small_network()(torch.zeros(1, 3), torch.zeros(1).long())
