"""Saliency: hand numbers and Captum."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch_geometric.nn import global_add_pool

from nicegnn.explain.registry import get_explainer
from tests.conftest import random_graph
from tests.explain.opinions.score_properties import (
    CHECKS,
    Linear,
    captum_scores,
    check_cuda_equals_cpu,
    gin,
)


@pytest.mark.parametrize("check", CHECKS)
def test_has_the_properties_of_every_rival(check):
    check("saliency")


@pytest.mark.parametrize("name", ["gin", "gcn", "sage", "gat", "gine"])
def test_equals_captum(name):
    model, graph = gin(name=name), random_graph(7, 3)
    for output in range(3):
        expected = captum_scores("Saliency", model, graph, output)
        directed = get_explainer("saliency", model, undirected=False).explain(graph, target=output)
        torch.testing.assert_close(directed.bond_score, expected, rtol=1e-5, atol=1e-6)
        found = get_explainer("saliency", model).explain(graph, target=output)
        torch.testing.assert_close(
            found.bond_score, expected.view(-1, 2).mean(1), rtol=1e-5, atol=1e-6
        )


def test_linear_model_by_hand():
    model, graph = Linear(), random_graph(6, 1, torch.float64)
    share = model.shares(graph, 2)
    found = get_explainer("saliency", model).explain(graph, target=2)
    torch.testing.assert_close(found.bond_score, share.abs().view(-1, 2).mean(1))
    signed = get_explainer("saliency", model, absolute=False).explain(graph, target=2)
    torch.testing.assert_close(signed.bond_score, share.view(-1, 2).mean(1))


def test_model_that_ignores_its_messages_gets_zeros():
    class Deaf(Linear):
        def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
            self.conv(x, edge_index)
            return self.head(global_add_pool(x, batch))

    found = get_explainer("saliency", Deaf()).explain(random_graph(6, 1, torch.float64))
    assert bool((found.bond_score == 0).all())


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_cuda_equals_cpu():
    check_cuda_equals_cpu("saliency")
