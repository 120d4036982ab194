"""Guided backpropagation: hand numbers, Captum, and a note wherever a ReLU was out of reach."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import global_add_pool

from nicegnn_lab.rivals import get_explainer
from tests.conftest import random_graph
from tests.explain.score_properties import (
    CHECKS,
    Sum,
    captum_scores,
    gin,
)


@pytest.mark.parametrize("check", CHECKS)
def test_has_the_properties_of_every_rival(check):
    check("guided-backprop")


@pytest.mark.parametrize("name", ["gin", "gcn", "sage", "gine"])
def test_equals_captum(name):
    model, graph = gin(name=name), random_graph(7, 3)
    plain = get_explainer("saliency", model, absolute=False, undirected=False)
    guided = get_explainer("guided-backprop", model, undirected=False)
    for output in range(3):
        expected = captum_scores("GuidedBackprop", model, graph, output)
        found = guided.explain(graph, target=output).bond_score
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
        assert not torch.allclose(found, plain.explain(graph, target=output).bond_score)


class TwoPaths(nn.Module):
    """One message m feeds relu(m) with weight 3 and relu(2 m) with weight -1."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.relu = Sum(), nn.ReLU()

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        h = self.relu(self.conv(x, edge_index) * torch.tensor([1.0, 2.0]))
        out = global_add_pool(h @ torch.tensor([[3.0], [-1.0]]), batch)
        return torch.cat([out, -out], dim=1)


def test_negative_gradients_are_cut_by_hand():
    """The plain slope is 3 - 2 = 1; the guided one keeps only the 3. Class 1: only the 2."""
    graph = Data(x=torch.tensor([[1.0, 1.0], [-1.0, -1.0]]), edge_index=torch.tensor([[0], [1]]))
    model = TwoPaths()
    plain = get_explainer("saliency", model, absolute=False)
    guided = get_explainer("guided-backprop", model)
    assert [float(plain.explain(graph, target=c).bond_score) for c in (0, 1)] == [1, -1]
    assert [float(guided.explain(graph, target=c).bond_score) for c in (0, 1)] == [3, 2]
