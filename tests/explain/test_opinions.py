"""Second opinions: hand numbers, Captum, completeness, and graphs with a bond really deleted."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.nn import GINConv, global_add_pool

from nicegnn.errors import ConfigError
from nicegnn.explain.registry import get_explainer
from nicegnn.graph.batch import to_batch
from nicegnn.seeding import mix
from tests.conftest import NUM_FEATURES, random_graph
from tests.explain.score_properties import (
    CHECKS,
    Linear,
    captum_scores,
    check_cuda_equals_cpu,
    deletion_evidence,
    gin,
    some_graphs,
)

FEW = {
    "saliency": {},
    "occlusion": {"num_draws": 2},
    "occlusion+nc": {"num_draws": 2},
    "integrated-gradients": {"num_nodes": 4, "num_draws": 2},
    "integrated-gradients+nc": {"num_nodes": 4, "num_draws": 2},
}


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


@pytest.mark.parametrize("name", FEW)
@pytest.mark.parametrize("check", CHECKS)
def test_has_the_properties_of_every_explainer(check, name):
    check(name, **FEW[name])


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("name", FEW)
def test_cuda_equals_cpu(name):
    check_cuda_equals_cpu(name, **FEW[name])


@pytest.mark.parametrize(
    ("name", "method", "ours", "theirs", "join"),
    [
        ("saliency", "Saliency", {}, {}, torch.mean),
        ("integrated-gradients", "IntegratedGradients", {"num_nodes": 10}, {"n_steps": 10}, sum),
    ],
)
@pytest.mark.parametrize("kind", ["gin", "gcn", "sage", "gat", "gine"])
def test_equals_captum(kind, name, method, ours, theirs, join):
    model, graph = gin(name=kind), random_graph(7, 3)
    expected = captum_scores(method, model, graph, 1, **theirs)
    directed = get_explainer(name, model, undirected=False, **ours).explain(graph, target=1)
    near = {"rtol": 1e-4, "atol": 1e-5}
    torch.testing.assert_close(directed.bond_score, expected.to(directed.bond_score), **near)
    pairs = expected.to(directed.bond_score).view(-1, 2)
    bonds = get_explainer(name, model, **ours).explain(graph, target=1).bond_score
    wanted = pairs.sum(1) if join is sum else pairs.mean(1)
    torch.testing.assert_close(bonds, wanted, **near)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("occlusion", {}),
        ("integrated-gradients", {}),
        ("integrated-gradients", {"num_nodes": 3}),
    ],
)
def test_linear_model_by_hand(name, settings):
    model, graph = Linear(), random_graph(6, 1, torch.float64)
    share = model.shares(graph, 2)
    found = get_explainer(name, model, **settings).explain(graph, target=2)
    torch.testing.assert_close(found.bond_score, share.view(-1, 2).sum(1))
    one_way = get_explainer(name, model, undirected=False, **settings).explain(graph, target=2)
    torch.testing.assert_close(one_way.bond_score, share)


def test_slopes_of_a_linear_model_by_hand():
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


def test_occlusion_equals_a_loop_that_deletes_one_bond_at_a_time():
    """A GIN without a message is a GIN without the edge."""
    model, graphs = gin().double(), [graph.clone() for graph in some_graphs()[:3]]
    for graph in graphs:
        graph.x = graph.x.double()
    found = get_explainer("occlusion", model).explain(graphs, target=1)
    for part, graph in zip(found.split(), graphs, strict=True):
        bonds = list(range(graph.num_edges // 2))
        whole = deletion_evidence(model, graph, bonds, 1)
        expected = [
            whole - deletion_evidence(model, graph, [b for b in bonds if b != out], 1)
            for out in bonds
        ]
        torch.testing.assert_close(part.bond_score, torch.stack(expected), rtol=1e-4, atol=1e-5)


def test_noise_damages_one_bond_only():
    """The mean over draws is that of queries with the same noise, asked one by one."""
    model, graph, num = gin(), random_graph(5, 2), 3
    explainer = get_explainer("occlusion+nc", model, num_draws=num)
    found = explainer.explain(graph, target=0, seed=4)
    query = explainer._query(explainer.target, to_batch(graph), 0)
    whole = query.evidence(torch.ones(1, graph.num_edges))[0, 0]
    for bond in range(graph.num_edges // 2):
        gate = torch.ones(1, graph.num_edges)
        gate[0, 2 * bond : 2 * bond + 2] = 0
        values = [query.evidence(gate, mix(4, "occlusion"), draw)[0, 0] for draw in range(num)]
        torch.testing.assert_close(
            found.bond_score[bond], whole - torch.stack(values).mean(), rtol=1e-4, atol=1e-5
        )


def test_integrated_slopes_sum_to_the_rise_of_the_logit():
    model, graphs = Smooth(), [random_graph(n, n, torch.float64) for n in (4, 7)]
    found = get_explainer("integrated-gradients", model).explain(graphs, target=2)
    for part, graph in zip(found.split(), graphs, strict=True):
        batch = torch.zeros(graph.num_nodes, dtype=torch.long)
        with torch.no_grad():
            rise = model(graph.x, graph.edge_index, batch) - model(
                graph.x, graph.edge_index[:, :0], batch
            )
        for score in (part.bond_score, part.edge_score):
            torch.testing.assert_close(score.sum(), rise[0, 2], rtol=0, atol=1e-6)


def test_bad_settings_are_refused():
    with pytest.raises(ConfigError, match=r"at least 1 \(got 0\)"):
        get_explainer("integrated-gradients", gin(), num_nodes=0)
