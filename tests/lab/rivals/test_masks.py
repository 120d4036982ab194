"""Masks: hand numbers for samples, penalties per graph and edge representations."""

from __future__ import annotations

import math

import torch
from torch_geometric.data import Batch

from nicegnn.graph.case import make_case
from nicegnn.intervention.mechanisms import ElementMask
from nicegnn.intervention.query import Query
from nicegnn.target.frozen_model import Target
from nicegnn_lab.rivals import get_explainer
from nicegnn_lab.rivals.masks import (
    add_penalties,
    binary_entropy,
    edge_states,
    graph_mean,
    graph_sum,
    relax,
    share_bonds,
    uniform_noise,
)
from tests.conftest import make_graph
from tests.explain.score_properties import gin


def two_graphs() -> Batch:
    """0-1 and 3-4-5 with a node 2 that belongs to the first graph and has no bond."""
    return Batch.from_data_list([make_graph([(0, 1)], 3, 0), make_graph([(0, 1), (1, 2)], 3, 1)])


def test_sums_and_means_are_per_graph_and_count_chosen_edges_only():
    case = make_case(two_graphs())
    value = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    counted = torch.tensor([True, True, True, False, True, False])
    assert graph_sum(case, value, counted).tolist() == [3.0, 8.0]
    assert graph_mean(case, value, counted).tolist() == [1.5, 4.0]
    assert graph_mean(case, value, ~counted).tolist() == [0.0, 5.0]
    assert share_bonds(case, value).tolist() == [1.5, 1.5, 3.5, 3.5, 5.5, 5.5]


def test_entropy_by_hand_with_finite_slopes_at_the_ends():
    mask = torch.tensor([0.0, 0.5, 0.25, 1.0], requires_grad=True)
    entropy = binary_entropy(mask)
    expected = [0.0, math.log(2), -0.25 * math.log(0.25) - 0.75 * math.log(0.75), 0.0]
    torch.testing.assert_close(entropy.detach(), torch.tensor(expected))
    (slope,) = torch.autograd.grad(entropy.sum(), mask)
    assert bool(torch.isfinite(slope).all())
    torch.testing.assert_close(slope[1:3], torch.tensor([0.0, math.log(3)]))


def test_penalties_by_hand():
    """Graph 0 has mask values 1/2, 1/2; graph 1 counts 1/4 and 3/4 of its four edges."""
    case = make_case(two_graphs())
    mask = torch.tensor([0.5, 0.5, 0.25, 0.9, 0.75, 0.9])
    counted = torch.tensor([True, True, True, False, True, False])
    loss = torch.tensor([10.0, 20.0])
    found = add_penalties(loss, case, mask, counted, size=2.0, entropy=3.0)
    quarter = -0.25 * math.log(0.25) - 0.75 * math.log(0.75)
    expected = torch.tensor([10 + 2 * 1 + 3 * math.log(2), 20 + 2 * 1 + 3 * quarter])
    torch.testing.assert_close(found, expected)
    inner = add_penalties(loss, case, mask, counted, size=0.0, entropy=1.0, margin=0.1)
    moved = 0.8 * 0.25 + 0.1  # and 1 minus it
    entropy = -moved * math.log(moved) - (1 - moved) * math.log(1 - moved)
    torch.testing.assert_close(inner, torch.tensor([10 + math.log(2), 20 + entropy]))


def test_relaxed_samples_follow_the_formula_and_their_seed():
    logit = torch.tensor([0.3, -2.0, 0.0])
    eps = 0.01 + 0.98 * uniform_noise(logit, 7)
    expected = (torch.logit(eps) + logit) / 2.5
    torch.testing.assert_close(relax(logit, 2.5, 7), expected)
    assert not torch.equal(relax(logit, 2.5, 8), expected)


def test_edges_are_described_by_their_ends_in_order():
    batch = two_graphs()
    query = Query(Target(gin()), make_case(batch), ElementMask())
    last, whole = edge_states(query, "last"), edge_states(query, "all")
    z = query.states[-1]
    u, v = batch.edge_index
    torch.testing.assert_close(last, torch.cat([z[u], z[v]], dim=1))
    for layers, found in (("last", last), ("all", whole)):
        explainer = get_explainer("pgexplainer", gin(), layers=layers, steps=1)
        explainer.fit(batch.to_data_list(), progress=False)
        assert explainer.net.in_size == found.size(1)
