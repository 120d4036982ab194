"""Integrated gradients: completeness, Captum, hand numbers, and the rule behind them."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GINConv, global_add_pool

from nicegnn.attribution.joint_path import path_nodes
from nicegnn.errors import ConfigError
from nicegnn.explain.registry import get_explainer
from nicegnn.graph.batch import to_batch
from tests.conftest import NUM_FEATURES, random_graph
from tests.explain.opinions.score_properties import (
    CHECKS,
    Linear,
    captum_scores,
    check_cuda_equals_cpu,
    gin,
)


class Smooth(nn.Module):
    """A GIN of tanh, without kinks."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.convs = nn.ModuleList(
            GINConv(nn.Sequential(nn.Linear(a, 6), nn.Tanh())) for a in (NUM_FEATURES, 6)
        )
        self.head = nn.Linear(6, 3)
        self.double()

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        for conv in self.convs:
            x = conv(x, edge_index)
        return self.head(global_add_pool(x, batch))


def graph64() -> Data:
    return random_graph(6, 1, torch.float64)


@pytest.mark.parametrize("mechanism", ["em", "nc"])
@pytest.mark.parametrize("check", CHECKS)
def test_has_the_properties_of_every_rival(check, mechanism):
    check("integrated-gradients", mechanism=mechanism, num_nodes=4, num_draws=2)


@pytest.mark.parametrize("name", ["gin", "gcn", "gat"])
def test_equals_captum(name):
    model, graph = gin(name=name), random_graph(7, 3)
    expected = captum_scores("IntegratedGradients", model, graph, 1, n_steps=10)
    settings = {"num_nodes": 10}
    directed = get_explainer("integrated-gradients", model, undirected=False, **settings)
    found = directed.explain(graph, target=1).bond_score
    torch.testing.assert_close(found, expected.to(found), rtol=1e-4, atol=1e-5)
    bonds = get_explainer("integrated-gradients", model, **settings).explain(graph, target=1)
    torch.testing.assert_close(
        bonds.bond_score, expected.to(found).view(-1, 2).sum(1), rtol=1e-4, atol=1e-5
    )


def test_scores_sum_to_the_rise_of_the_logit():
    model, graphs = Smooth(), [random_graph(n, n, torch.float64) for n in (4, 7)]
    found = get_explainer("integrated-gradients", model).explain(graphs, target=2)
    for part, graph in zip(found.split(), graphs, strict=True):
        batch = torch.zeros(graph.num_nodes, dtype=torch.long)
        with torch.no_grad():
            rise = model(graph.x, graph.edge_index, batch) - model(
                graph.x, graph.edge_index[:, :0], batch
            )
        torch.testing.assert_close(part.bond_score.sum(), rise[0, 2], rtol=0, atol=1e-6)
        torch.testing.assert_close(part.edge_score.sum(), rise[0, 2], rtol=0, atol=1e-6)


def test_scores_sum_to_the_mean_rise_from_noise():
    model, graph, num = Smooth(), graph64(), 400
    explainer = get_explainer("integrated-gradients+nc", model, num_draws=num, num_nodes=8)
    found = explainer.explain(graph, target=2)
    query = explainer._query(explainer.target, to_batch(graph), 2, None)
    with torch.no_grad():
        noisy = query.evidence(torch.zeros(num, graph.num_edges, dtype=torch.float64), stream=9)
        clean = query.evidence(torch.ones(1, graph.num_edges, dtype=torch.float64))
    rise = (clean - noisy)[:, 0]
    error = float(rise.std()) / num**0.5
    # the path has errors of its own, about as large as those of its noisy end
    assert float(found.bond_score.sum()) == pytest.approx(float(rise.mean()), abs=6 * error)
    assert abs(float(rise.mean())) > 12 * error  # so that the test can fail


@pytest.mark.parametrize("rule", ["riemann", "gauss", "gauss-linear"])
def test_linear_model_by_hand(rule):
    model, graph = Linear(), graph64()
    found = get_explainer("integrated-gradients", model, quadrature=rule, num_nodes=3)
    expected = model.shares(graph, 1).view(-1, 2).sum(1)
    torch.testing.assert_close(found.explain(graph, target=1).bond_score, expected)


def test_linear_model_under_noise_tends_to_the_same_numbers():
    r"""The slope of :math:`\sqrt t` integrates to 1 and noise has mean 0."""
    model, graph = Linear(), graph64()
    explainer = get_explainer("integrated-gradients+nc", model, num_draws=1000, num_nodes=6)
    expected = model.shares(graph, 1).view(-1, 2).sum(1)
    found = explainer.explain(graph, target=1).bond_score
    assert explainer.quadrature == "gauss-sine"
    assert float((found - expected).abs().max()) < 0.1 * float(expected.abs().max())


@pytest.mark.parametrize("num", [1, 2, 5])
def test_linear_gauss_rule_is_exact_on_polynomials_up_to_twice_its_nodes(num):
    t, w = path_nodes("gauss-linear", num)
    for degree in range(2 * num):
        assert float((w * t**degree).sum()) == pytest.approx(1 / (degree + 1), rel=1e-12)
    assert float((w * t ** (2 * num)).sum()) != pytest.approx(1 / (2 * num + 1), rel=1e-12)


def test_linear_gauss_rule_of_two_nodes_by_hand():
    t, w = path_nodes("gauss-linear", 2)
    expected = torch.tensor([0.5 - 12**-0.5, 0.5 + 12**-0.5], dtype=torch.float64)
    torch.testing.assert_close(t, expected)
    assert w.tolist() == pytest.approx([0.5, 0.5])


def test_bad_settings_are_refused():
    with pytest.raises(ConfigError, match="got 'simpson'"):
        get_explainer("integrated-gradients", gin(), quadrature="simpson")
    with pytest.raises(ConfigError, match=r"at least 1 \(got 0\)"):
        get_explainer("integrated-gradients", gin(), num_nodes=0)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("mechanism", ["em", "nc"])
def test_cuda_equals_cpu(mechanism):
    check_cuda_equals_cpu("integrated-gradients", mechanism=mechanism)
