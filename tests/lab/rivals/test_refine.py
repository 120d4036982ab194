"""ReFine: mask networks equal PyG's layers, contrast by hand, copies tuned apart."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch_geometric.data import Batch
from torch_geometric.nn import ARMAConv

from nicegnn.graph.batch import to_batch
from nicegnn.graph.case import make_case
from nicegnn_lab.rivals import get_explainer
from nicegnn_lab.rivals.refine import (
    MaskNetworks,
    ReFine,
    best_bonds,
    contrast_loss,
)
from tests.conftest import NUM_EDGE_FEATURES, NUM_FEATURES, make_graph, random_graph
from tests.explain.score_properties import gin, same_scores, some_graphs
from tests.lab.rivals.learned_properties import CHECKS, fitted


class OneNetwork(nn.Module):
    """The mask network of one class, of PyG's and torch's own layers."""

    def __init__(self, stacked: MaskNetworks, label: int, width: int) -> None:
        super().__init__()
        w = {name: value.detach()[label] for name, value in stacked.stacked.items()}
        self.convs = nn.ModuleList(ARMAConv(width, width) for _ in range(2))
        self.norms = nn.ModuleList(nn.BatchNorm1d(width) for _ in range(2))
        for layer, (conv, norm) in enumerate(zip(self.convs, self.norms, strict=True)):
            conv.init_weight.data[0] = w[f"spread{layer}"]
            conv.root_weight.data[0, 0] = w[f"root{layer}"]
            conv.bias.data[0, 0, 0] = w[f"root{layer}_bias"]
            norm.weight.data, norm.bias.data = w[f"scale{layer}"], w[f"shift{layer}"]
        self.linears = nn.ModuleDict()
        for name in ("enter", "ends", "edge", "hidden", "out"):
            if name in w:
                linear = nn.Linear(*w[name].shape)
                linear.weight.data, linear.bias.data = w[name].t(), w[f"{name}_bias"]
                self.linears[name] = linear

    def forward(self, x, edge_index, edge_attr):
        h = self.linears["enter"](x).relu()
        for conv, norm in zip(self.convs, self.norms, strict=True):
            h = norm(conv(h, edge_index).relu())
        e = torch.cat([h[edge_index[0]], h[edge_index[1]]], dim=1)
        if "edge" in self.linears:
            e = torch.cat([self.linears["ends"](e), self.linears["edge"](edge_attr)], dim=1)
        return self.linears["out"](self.linears["hidden"](e).tanh()).squeeze(1)


@pytest.mark.parametrize("edge_size", [0, NUM_EDGE_FEATURES])
def test_networks_equal_pyg_layers_in_training_and_after(edge_size):
    torch.manual_seed(0)
    stacked = MaskNetworks(3, NUM_FEATURES, edge_size, 6)
    for value in stacked.stacked.values():
        value.data += 0.1 * torch.randn_like(value)
    singles = [OneNetwork(stacked, label, 6) for label in range(3)]
    graphs = [random_graph(size, seed) for seed, size in enumerate((4, 7, 3, 6))]
    label = torch.tensor([1, 0, 1, 2])
    explainer = ReFine(gin())
    query = explainer._query(explainer.target, to_batch(graphs))
    for training in (True, True, False):  # training moves the running statistics
        stacked.train(training)
        found = stacked(query, label, torch.arange(3), stacked.stacked)
        for number, single in enumerate(singles):
            single.train(training)
            part = Batch.from_data_list(
                [g for g, c in zip(graphs, label, strict=True) if c == number]
            )
            expected = single(part.x, part.edge_index, part.edge_attr)
            members = (label == number)[query.case.edge_batch]
            torch.testing.assert_close(found[members], expected, rtol=1e-4, atol=1e-5)


def test_contrast_by_hand():
    rep = torch.tensor([[1.0, 0.0], [1.0, 1.0], [0.0, 2.0]])
    half = 1 / math.sqrt(2)
    share = torch.tensor([half / half, half / (2 * half), 0.0])  # third is alone in its class
    expected = math.log(3) - (share / 0.1).logsumexp(0)
    found = contrast_loss(rep, torch.tensor([0, 0, 1]), 0.1)
    torch.testing.assert_close(found, expected)


def test_best_bonds_are_a_share_of_each_graph():
    batch = to_batch([make_graph([(0, 1), (1, 2), (2, 3)], 4, 0), make_graph([(0, 1)], 2, 1)])
    mask = torch.tensor([0.1, 0.3, 0.9, 0.9, 0.5, 0.5, 0.0, 0.1])
    found = best_bonds(make_case(batch), mask, 0.4)  # two of three, one of one
    assert found.tolist() == [False, False, True, True, True, True, True, True]


def test_every_graph_tunes_a_copy_of_its_own():
    explainer = fitted("refine", fine_tune_steps=3, fine_tune_rate=0.05)
    before = {name: value.clone() for name, value in explainer.net.state_dict().items()}
    tuned = explainer.explain(some_graphs())
    for name, value in explainer.net.state_dict().items():
        assert torch.equal(value, before[name])
    explainer.config = explainer.config.with_(fine_tune_steps=0)
    plain = explainer.explain(some_graphs())
    assert not torch.allclose(tuned.bond_score, plain.bond_score)
    explainer.config = explainer.config.with_(fine_tune_steps=3)
    for part, graph in zip(tuned.split(), some_graphs(), strict=True):
        same_scores(part, explainer.explain(graph))


def test_class_that_was_never_seen_is_noted_and_served():
    model, graphs = gin(), some_graphs()
    explainer = get_explainer("refine", model, steps=2, fit_batch_size=2, fine_tune_steps=0)
    explainer.fit(graphs, progress=False)
    seen = explainer._shape["seen"]
    assert 0 in seen  # an untrained model predicts few classes
    new, commonest = seen.index(0), seen.index(max(seen))
    found = explainer.explain(graphs, target=new)
    assert found.status.notes == (
        f"No training graph was predicted as class {new}: the network of class {commonest} was "
        "used in its place.",
    )
    same_scores(found, explainer.explain(graphs, target=commonest))


def test_representation_is_what_the_head_reads():
    explainer, graphs = ReFine(gin(), mechanism="nc"), to_batch(some_graphs()[:3])
    query = explainer._query(explainer.target, graphs)
    rep = explainer._representation(query, torch.ones(query.case.num_edges), 0)
    torch.testing.assert_close(
        rep, explainer.target.model.embed(graphs.x, graphs.edge_index, graphs.batch)
    )


@pytest.mark.parametrize("check", CHECKS)
def test_does_what_every_learner_must(check):
    check("refine")
