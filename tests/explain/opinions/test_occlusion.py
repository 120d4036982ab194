"""Occlusion: a loop over graphs with one bond really deleted, and hand numbers."""

from __future__ import annotations

import pytest
import torch

from nicegnn.explain.registry import get_explainer
from nicegnn.graph.batch import to_batch
from nicegnn.seeding import mix
from tests.conftest import random_graph
from tests.explain.opinions.score_properties import (
    CHECKS,
    Linear,
    check_cuda_equals_cpu,
    deletion_evidence,
    gin,
    some_graphs,
)


@pytest.mark.parametrize("mechanism", ["em", "nc"])
@pytest.mark.parametrize("check", CHECKS)
def test_has_the_properties_of_every_rival(check, mechanism):
    check("occlusion", mechanism=mechanism, num_draws=2)


def test_equals_a_loop_that_deletes_one_bond_at_a_time():
    """A GIN without a message is a GIN without the edge."""
    model, graphs = gin(), some_graphs()[:3]
    found = get_explainer("occlusion", model).explain(graphs, target=1)
    for part, graph in zip(found.split(), graphs, strict=True):
        bonds = list(range(graph.num_edges // 2))
        whole = deletion_evidence(model, graph, bonds, 1)
        expected = [
            whole - deletion_evidence(model, graph, [b for b in bonds if b != out], 1)
            for out in bonds
        ]
        torch.testing.assert_close(part.bond_score, torch.stack(expected), rtol=1e-4, atol=1e-5)


def test_linear_model_by_hand():
    model, graph = Linear(), random_graph(6, 1, torch.float64)
    expected = model.shares(graph, 2).view(-1, 2).sum(1)
    torch.testing.assert_close(
        get_explainer("occlusion", model).explain(graph, target=2).bond_score, expected
    )
    directed = get_explainer("occlusion", model, undirected=False).explain(graph, target=2)
    torch.testing.assert_close(directed.bond_score, model.shares(graph, 2))


def test_noise_damages_one_bond_only():
    """The mean over draws is that of queries with the same noise, asked one by one."""
    model, graph, num = gin(), random_graph(5, 2), 3
    explainer = get_explainer("occlusion+nc", model, num_draws=num)
    found = explainer.explain(graph, target=0, seed=4)
    query = explainer._query(explainer.target, to_batch(graph), 0, None)
    whole = query.evidence(torch.ones(1, graph.num_edges))[0, 0]
    for bond in range(graph.num_edges // 2):
        gate = torch.ones(1, graph.num_edges)
        gate[0, 2 * bond : 2 * bond + 2] = 0
        values = [query.evidence(gate, mix(4, "occlusion"), draw)[0, 0] for draw in range(num)]
        torch.testing.assert_close(
            found.bond_score[bond], whole - torch.stack(values).mean(), rtol=1e-4, atol=1e-5
        )


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("mechanism", ["em", "nc"])
def test_cuda_equals_cpu(mechanism):
    check_cuda_equals_cpu("occlusion", mechanism=mechanism)
