"""The gate network and its inputs against hand numbers."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from nicegnn.boundary import gate_network
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


def small_network(monkeypatch: Any, rows: list[list[float]], settings: Any = BUDGET) -> Any:
    r"""Two heads of one hidden unit, :math:`2 ReLU(z_0 + z_1)` and :math:`-ReLU(z_0 - 1)`.

    Bonds of the query have these representations, in graphs explained for the classes 0 and 1.
    """
    net = GateNetwork(2, settings, 2)
    weights = [([[1.0, 1.0]], 0.0, 2.0), ([[1.0, 0.0]], -1.0, -1.0)]
    with torch.no_grad():
        for head, (first, bias, last) in zip(net.heads, weights, strict=True):
            head[0].weight.copy_(torch.tensor(first))
            head[0].bias.fill_(bias)
            head[2].weight.fill_(last)
    z = torch.tensor(rows)
    monkeypatch.setattr(gate_network, "bond_representation", lambda *_: z)
    batch = to_batch([path_graph(1.0, 2.0, 4.0), path_graph(-1.0, 3.0)])
    query = Query(Target(LogOdds()), make_case(batch), ElementMask(), explained=torch.arange(2))
    return net, query


def test_each_class_has_a_head_of_its_own(monkeypatch):
    net, query = small_network(monkeypatch, [[1.0, 2.0], [-4.0, 1.0], [3.0, 0.5]])
    assert net(query).tolist() == [6.0, 0.0, -2.0]


def test_start_is_the_gate_where_nothing_is_known(monkeypatch):
    net, query = small_network(monkeypatch, [[0.0, 0.0]] * 6, PAPER.with_(start=0.75))
    assert net(query).tolist() == pytest.approx([math.log(3)] * 3)


@pytest.mark.parametrize(
    ("settings", "expected"), [(BUDGET, [2.0, 20.0]), (PAPER, [16.0, 210.0])], ids=str
)
def test_inputs_are_standardised_and_cut_at_ten_but_not_in_the_paper(
    settings, expected, monkeypatch
):
    """Mean 2 and deviation 1 of the first number, and a second one that never varies."""
    rows = [[3.0, 5.0], [100.0, 5.0], [0.0, 0.0]]  # of bonds; of the paper, both directions
    rows = rows if settings is BUDGET else [rows[0], rows[1], rows[0], rows[1], rows[2], rows[2]]
    net, query = small_network(monkeypatch, rows, settings)
    net.standardise(torch.tensor([[1.0, 5.0], [3.0, 5.0]]))
    assert net(query)[:2].tolist() == expected


def test_bonds_of_another_width_are_refused(monkeypatch):
    net, query = small_network(monkeypatch, [[0.0] * 3] * 3)
    with pytest.raises(GraphError, match=r"described by 2 numbers \(got 3\)"):
        net(query)


@pytest.mark.parametrize(
    ("trained", "known"),
    [([False, True], [False, True, True, False]), ([True], [True] * 4)],  # one serves every class
)
def test_trained_classes_are_known(trained, known):
    net = GateNetwork(1, BUDGET, len(trained))
    net.trained.copy_(torch.tensor(trained))
    assert net.is_trained_for(torch.tensor([0, 1, 1, 0])).tolist() == known
