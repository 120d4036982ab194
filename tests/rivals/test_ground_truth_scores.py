"""The truth as scores: copied from the graphs, refused where they have none."""

from __future__ import annotations

import pytest
import torch

from nicegnn.errors import GraphError
from nicegnn.rivals.registry import get_explainer
from tests.rivals.rival_properties import CHECKS, check_cuda_equals_cpu, gin, some_graphs


@pytest.mark.parametrize("check", CHECKS)
def test_has_the_properties_of_every_rival(check):
    check("ground-truth")


def test_scores_are_the_truth():
    graphs = some_graphs()
    found = get_explainer("ground-truth", gin()).explain(graphs)
    truth = torch.cat([graph.edge_truth[::2] for graph in graphs])  # edges stand bond after bond
    assert torch.equal(found.bond_score, truth.float())


def test_graphs_without_truth_are_refused():
    graphs = some_graphs()
    del graphs[1].edge_truth
    with pytest.raises(GraphError, match=r"`edge_truth`.*\(got none\).*Set it"):
        get_explainer("ground-truth", gin()).explain(graphs)
    graph = some_graphs()[0]
    graph.edge_truth = torch.tensor([True, False])
    expected = rf"{graph.num_edges} directed edges \(got shape \(2,\)\)"
    with pytest.raises(GraphError, match=expected):
        get_explainer("ground-truth", gin()).explain(graph)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_cuda_equals_cpu():
    check_cuda_equals_cpu("ground-truth")
