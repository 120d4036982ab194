"""The gate network and its inputs against hand numbers."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from nicegnn.boundary import srb
from nicegnn.boundary.srb import GateNetwork, bond_representation
from nicegnn.config import BoundaryConfig
from nicegnn.errors import GraphError
from nicegnn.graph.batch import to_batch
from nicegnn.graph.case import make_case
from nicegnn.intervention.mechanisms import ElementMask
from nicegnn.intervention.query import Query
from nicegnn.target.frozen_model import Target
from tests.boundary.small_models import LogOdds, path_graph


def two_graphs() -> Query:
    """Features 1, 2, 4 and -1, 3 on paths: the layer sums up neighbours to 2, 5, 2 and 3, -1."""
    batch = to_batch([path_graph(1.0, 2.0, 4.0), path_graph(-1.0, 3.0)])
    return Query(Target(LogOdds()), make_case(batch), ElementMask())


def test_edges_are_described_by_their_ends_in_the_last_layer() -> None:
    """Edges of the first graph are 0-1, 1-2, 1-0, 2-1, then come 0-1 and 1-0 of the second."""
    found = bond_representation(two_graphs()).tolist()
    assert found == [[2, 5], [5, 2], [5, 2], [2, 5], [3, -1], [-1, 3]]


def logits_of(monkeypatch: Any, rows: list[list[float]], start: float = 0.5) -> list[float]:
    """Logits of one hidden unit, 2 ReLU(z_0 + z_1), for representations of the six edges."""
    net = GateNetwork(2, BoundaryConfig(hidden_size=1, start=start))
    with torch.no_grad():
        net.first.weight.fill_(1.0)
        net.first.bias.fill_(0.0)
        net.last.weight.fill_(2.0)
    monkeypatch.setattr(srb, "bond_representation", lambda _: torch.tensor(rows))
    return list(net(two_graphs()).tolist())


def test_a_bond_has_the_mean_over_its_directions_and_inputs_are_not_cut(monkeypatch: Any) -> None:
    """Edges 0 and 2 are one bond, 1 and 3 the next, 4 and 5 the last."""
    rows = [[1.0, 2.0], [100.0, 5.0], [3.0, 4.0], [100.0, 5.0], [-4.0, 1.0], [0.5, 0.5]]
    assert logits_of(monkeypatch, rows) == [10.0, 210.0, 1.0]


def test_start_is_the_gate_where_nothing_is_known(monkeypatch: Any) -> None:
    found = logits_of(monkeypatch, [[0.0, 0.0]] * 6, start=0.75)
    assert found == pytest.approx([math.log(3)] * 3)


def test_bonds_of_another_width_are_refused(monkeypatch: Any) -> None:
    with pytest.raises(GraphError, match=r"described by 2 numbers \(got 3\)"):
        logits_of(monkeypatch, [[0.0] * 3] * 6)
