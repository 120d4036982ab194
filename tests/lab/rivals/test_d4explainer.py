"""D4Explainer: its denoiser, its noise and losses by hand, and what every rival must do."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch_geometric.data import Batch

from nicegnn.errors import ConfigError, GraphError, NotFittedError
from nicegnn_lab.rivals.d4explainer import PPGN, D4Config, D4Explainer, graph_distance
from nicegnn_lab.rivals.dense import to_dense
from tests.conftest import random_graph
from tests.explain.score_properties import gin, some_graphs

TINY = D4Config(steps=3, fit_batch_size=4, hidden_size=6, num_blocks=2, num_levels=3, num_draws=5)


def fitted(model=None, config=TINY, **settings):
    explainer = D4Explainer(gin() if model is None else model, config, **settings)
    return explainer.fit(some_graphs(), progress=False)


def a_denoiser() -> PPGN:
    torch.manual_seed(0)
    return PPGN(3, 8, 3)


def test_denoiser_moves_with_its_nodes():
    net, order = a_denoiser(), torch.tensor([3, 0, 4, 1, 2])
    x, present = torch.randn(2, 5, 3), torch.ones(2, 5, dtype=torch.bool)
    adjacency = torch.rand(2, 5, 5).round().triu(1)
    adjacency, level = adjacency + adjacency.mT, torch.tensor([0.1, 0.3])
    logit = net(adjacency, x, level, present)
    assert torch.equal(logit, logit.mT)
    moved = net(adjacency[:, order][:, :, order], x[:, order], level, present)
    torch.testing.assert_close(moved, logit[:, order][:, :, order], rtol=1e-4, atol=1e-5)


def test_distance_by_hand():
    path = random_graph(3, 0)
    path.edge_index = torch.tensor([[0, 1], [1, 0]])
    path.edge_attr = path.edge_attr[:2]
    graphs = to_dense(Batch.from_data_list([path]))
    logit = torch.zeros(2, 1, 3, 3)
    logit[1] = 1.0
    level = torch.tensor([[0.1], [0.3]])
    # 3 pairs, one of them a bond of weight 2.5; level weights 1 - 2 * 0.1 + 1/2 and 0.9
    first = 1.3 * (2.5 + 1 + 1) * math.log(2) / 3
    second = 0.9 * (2.5 * math.log(1 + math.exp(-1)) + 2 * math.log(1 + math.e)) / 3
    found = graph_distance(logit, graphs, level, 2.5)
    torch.testing.assert_close(found, torch.tensor([(first + second) / 2]))


def test_large_graphs_are_left_out_of_the_fit_and_still_explained():
    explainer = fitted(config=TINY.with_(max_nodes=4))
    found = explainer.explain(some_graphs())
    assert bool(torch.isfinite(found.bond_score).all())
    assert "The fit left out 1 graphs of more than 4 nodes" in str(found.status)
    with pytest.raises(GraphError, match="Raise `max_nodes`"):
        fitted(config=TINY.with_(max_nodes=2))


def test_errors_say_what_to_do():
    with pytest.raises(NotFittedError, match="fit"):
        D4Explainer(gin(), TINY).explain(some_graphs())
    for wrong in ({"pairs": "some"}, {"sign": "plus"}, {"max_level": 0.9}, {"num_blocks": 0}):
        with pytest.raises(ConfigError, match=next(iter(wrong))):
            replace(TINY, **wrong)
