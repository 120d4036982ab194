"""ProxyExplainer: its generator, the order of its updates, and what every rival must do."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch_geometric.data import Batch

from nicegnn.errors import ConfigError, NotFittedError
from nicegnn_lab.rivals.dense import to_dense
from nicegnn_lab.rivals.proxyexplainer import (
    LATENT_SIZE,
    ProxyConfig,
    ProxyExplainer,
    ProxyGenerator,
)
from tests.conftest import random_graph
from tests.explain.score_properties import gin, some_graphs

TINY = ProxyConfig(
    steps=3,
    fit_batch_size=4,
    hidden_size=6,
    generator_steps=2,
)


def fitted(model=None, config=TINY, **settings):
    explainer = ProxyExplainer(gin() if model is None else model, config, **settings)
    return explainer.fit(some_graphs(), progress=False)


def a_generator() -> ProxyGenerator:
    torch.manual_seed(0)
    return ProxyGenerator(5, 0.3)


def dense_batch(*sizes: int):
    return to_dense(Batch.from_data_list([random_graph(n, seed) for seed, n in enumerate(sizes)]))


def test_proxies_are_symmetric_and_do_not_see_padding():
    generator, small, wide = a_generator(), dense_batch(4), dense_batch(4, 7)
    noise = torch.randn(2, 7, LATENT_SIZE)
    alone, divergence = generator(small, 0.3 * small.adjacency, noise[:1, :4])
    beside, both = generator(wide, 0.3 * wide.adjacency, noise)
    torch.testing.assert_close(alone, alone.mT)
    torch.testing.assert_close(beside[:1, :4, :4], alone, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(both[:1], divergence, rtol=1e-4, atol=1e-4)


def test_proxy_is_the_higher_of_explanation_and_rest():
    generator, graphs = a_generator(), dense_batch(5)
    mask = graphs.adjacency * torch.rand(1, 5, 5)
    mask = (mask + mask.mT) / 2
    kept = generator.decode(graphs, generator.encode(graphs, mask)[0])
    rest = generator.decode(graphs, generator.encode(graphs, graphs.adjacency - mask)[0])
    proxy, _ = generator(graphs, mask, torch.zeros(1, 5, LATENT_SIZE))
    torch.testing.assert_close(proxy, torch.maximum(kept, rest))
    swapped, _ = generator(graphs, graphs.adjacency - mask, torch.zeros(1, 5, LATENT_SIZE))
    torch.testing.assert_close(proxy, swapped)  # without noise the two sides are alike


def test_each_update_moves_its_own_part():
    explainer = fitted()
    net = explainer.net
    optimiser = explainer._optimiser(net)
    query = explainer._query(explainer.target, Batch.from_data_list(some_graphs()[:3]))
    moved = []
    original = optimiser.step

    def watched():
        before = {key: value.clone() for key, value in net.state_dict().items()}
        original()
        after = net.state_dict()
        moved.append(
            {key.split(".")[0] for key in after if not torch.equal(after[key], before[key])}
        )

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(optimiser, "step", watched)
        explainer._take_step(net, optimiser, query, 0, 1)
    assert moved == [{"generator"}, {"generator"}, {"explainer"}]


@pytest.mark.parametrize("name", ["gin", "gine", "gcn", "gat"])
def test_all_pairs_are_joined_where_that_leaves_the_model_alone(name):
    explainer = fitted(gin(name=name))
    assert bool(torch.isfinite(explainer.explain(some_graphs()).bond_score).all())
    assert explainer._pairs == ("all" if name in ("gin", "gine") else "bonds")


def test_errors_say_what_to_do():
    with pytest.raises(NotFittedError, match="fit"):
        ProxyExplainer(gin(), TINY).explain(some_graphs())
    for wrong in ({"pairs": "some"}, {"generator_steps": 0}):
        with pytest.raises(ConfigError, match=next(iter(wrong))):
            replace(TINY, **wrong)
