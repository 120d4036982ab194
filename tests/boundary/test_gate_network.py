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


def represented(edge_attr: list[float] | None = None, **settings) -> list[list[float]]:
    """Features 1, 2, 4 and -1, 3 on paths: the layer sums up neighbours to 2, 5, 2 and 3, -1."""
    graphs = [path_graph(1.0, 2.0, 4.0), path_graph(-1.0, 3.0)]
    batch = to_batch(graphs)
    if edge_attr is not None:
        batch.edge_attr = torch.tensor(edge_attr)
    query = Query(Target(LogOdds()), make_case(batch), ElementMask())
    config = BoundaryConfig(**({"graph_context": False} | settings))
    return bond_representation(query, config).tolist()


def test_ends_of_a_bond_enter_by_sum_and_difference():
    assert represented(layers="last") == [[7, 3], [7, 3], [2, 4]]


def test_input_and_all_layers_are_read():
    assert represented(layers="all") == [[3, 7, 1, 3], [6, 7, 2, 3], [2, 2, 4, 4]]


def test_mean_state_of_the_own_graph_follows():
    assert represented(layers="last", graph_context=True) == [[7, 3, 3], [7, 3, 3], [2, 4, 1]]


def test_mean_feature_of_a_bonds_edges_follows():
    """Edges of the first graph are 0-1, 1-2, 1-0, 2-1, then come 0-1 and 1-0 of the second."""
    found = represented([1.0, 5.0, 3.0, 7.0, 10.0, 20.0], layers="last", edge_features=True)
    assert found == [[7, 3, 2], [7, 3, 6], [2, 4, 15]]


def test_edge_features_must_be_there():
    with pytest.raises(GraphError, match="`edge_attr` must be given"):
        represented(edge_features=True)


def small_network(start: float = 0.5) -> GateNetwork:
    r"""Two heads of one hidden unit, :math:`2 ReLU(z_0 + z_1)` and :math:`-ReLU(z_0 - 1)`."""
    net = GateNetwork(2, 1, 2, start)
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
    logit = small_network(0.75)(torch.zeros(2, 2), torch.tensor([0, 1]))
    assert logit.tolist() == pytest.approx([math.log(3)] * 2)
    torch.manual_seed(0)
    gate = GateNetwork(4, 64, 1, 0.95)(torch.randn(50, 4), torch.zeros(50).long()).sigmoid()
    assert float((gate.detach() - 0.95).abs().max()) < 0.02


def test_inputs_are_standardised_and_cut_at_ten():
    """Mean 2 and deviation 1 of the first number, and a second one that never varies."""
    net = small_network()
    net.standardise(torch.tensor([[1.0, 5.0], [3.0, 5.0]]))
    assert net.mean.tolist() == [2.0, 5.0]
    assert net.scale.tolist() == pytest.approx([1.0, 1e-6])
    z = torch.tensor([[3.0, 5.0], [100.0, 5.0]])
    assert net(z, torch.zeros(2).long()).tolist() == [2.0, 20.0]


def test_one_head_serves_every_class():
    net = GateNetwork(2, 3, 1, 0.5)
    z = torch.randn(4, 2, generator=torch.Generator().manual_seed(0))
    one, other = (net(z, torch.full((4,), label)) for label in (0, 7))
    assert torch.equal(one, other)


def test_trained_classes_are_known():
    labels = torch.tensor([0, 1, 1, 0])

    def known(net: GateNetwork, trained: list[bool]) -> list[bool]:
        net.trained.copy_(torch.tensor(trained))
        found: Tensor = net.is_trained_for(labels)
        return found.tolist()

    assert known(GateNetwork(1, 1, 2, 0.5), [False, True]) == [False, True, True, False]
    assert known(GateNetwork(1, 1, 1, 0.5), [True]) == [True] * 4


def test_bonds_of_another_width_are_refused():
    with pytest.raises(GraphError, match=r"described by 2 numbers \(got 3\)"):
        small_network()(torch.zeros(1, 3), torch.zeros(1).long())
