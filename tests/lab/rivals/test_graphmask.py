"""GraphMask: its gates by hand, the loss it minimises, and an edge that alone matters."""

from __future__ import annotations

import pytest
import torch

from nicegnn_lab.rivals import get_explainer
from nicegnn_lab.rivals.graphmask import sample_gates
from tests.conftest import make_graph
from tests.explain.score_properties import CHECKS, Linear, gin, some_graphs


@pytest.mark.parametrize("check", CHECKS)
def test_has_the_properties_of_every_rival(check):
    check("graphmask", steps=4, allowance=0.0)  # so that the prediction always has a say


def test_gates_by_hand():
    """u = 1/2: the soft gate is 1.2 sigma(3 a) - 0.2, and it is rounded at one half."""
    location = torch.tensor([-2.0, -0.2, 0.0, 0.2, 2.0], dtype=torch.float64, requires_grad=True)
    gate = sample_gates(location, torch.full_like(location, 0.5))
    assert gate.tolist() == [0, 0, 0, 1, 1]
    (slope,) = torch.autograd.grad(gate.sum(), location)
    s = torch.sigmoid(3 * location)
    soft = 1.2 * s - 0.2
    inside = (soft > 0) & (soft < 1)
    torch.testing.assert_close(slope, torch.where(inside, 3.6 * s * (1 - s), 0.0))
    assert slope[0] == 0  # clipped at 0


def test_the_one_edge_that_matters_is_kept():
    """Only node 0 holds something, so only the message it sends to node 1 carries anything."""
    model = Linear(num_outputs=2, dtype=torch.float32)
    graph = make_graph([(0, 1), (1, 2), (2, 3), (3, 4)], 5, seed=1)
    graph.x = torch.zeros(5, 5)
    graph.x[0, 0] = 1
    with torch.no_grad():
        model.head.weight.zero_()
        model.head.weight[0, 0], model.head.weight[1, 0] = 4.0, -4.0
    found = get_explainer("graphmask", model, undirected=False, learning_rate=0.05).explain(graph)
    first, others = found.bond_score[0], found.bond_score[1:]
    assert graph.edge_index[:, 0].tolist() == [0, 1]
    assert float(first) > 0.6
    assert float(others.max()) < float(first) - 0.2


@pytest.mark.parametrize("name", ["gin", "gcn", "sage", "gat", "gine", "transformer"])
def test_layers_that_pyg_cannot_mask_are_masked(name):
    found = get_explainer("graphmask", gin(name=name), steps=3).explain(some_graphs())
    assert bool(((found.bond_score > 0) & (found.bond_score < 1)).all())
