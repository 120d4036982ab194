"""What every rival that learns must do, whatever its method."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from nicegnn.errors import NotFittedError
from nicegnn_lab.rivals import get_explainer
from nicegnn_lab.rivals.learned import LearnedRival
from tests.conftest import random_graph
from tests.explain.score_properties import NodeGIN, SingleGIN, gin, same_scores, some_graphs

SHORT = {"steps": 4, "fit_batch_size": 2}


def fitted(
    name: str, model: nn.Module | None = None, *, fit: Any = None, **settings: Any
) -> LearnedRival:
    """Returns an explainer of a tiny model after a few steps."""
    explainer = get_explainer(name, gin() if model is None else model, **SHORT | settings)
    assert isinstance(explainer, LearnedRival)
    return explainer.fit(some_graphs(), progress=False, **fit or {})


def check_fit_is_repeatable(name: str) -> None:
    model, graphs, scores = gin(), some_graphs(), []
    for seed in (0, 0, 1):
        explainer = get_explainer(name, model, **SHORT)
        before = torch.get_rng_state()
        explainer.fit(graphs, seed=seed, progress=False)
        scores.append(explainer.explain(graphs, seed=3).bond_score)
        assert torch.equal(torch.get_rng_state(), before)
        torch.manual_seed(seed + 10)
    assert torch.equal(scores[0], scores[1])
    assert not torch.allclose(scores[0], scores[2])


def check_nodes_are_explained(name: str) -> None:
    graph = random_graph(9, 4)
    graph.edge_truth = torch.arange(graph.num_edges) // 2 % 2 == 0
    explainer = get_explainer(name, NodeGIN(), **SHORT)
    explainer.fit(graph, index=[0, 3, 4, 7], progress=False)
    both = explainer.explain(graph, index=[2, 5])
    assert both.to_dense().bond_score.shape == (graph.num_edges,)  # two nodes, each with all bonds
    for part, node in zip(both.split(), (2, 5), strict=True):
        same_scores(part, explainer.explain(graph, index=node))


def check_other_outputs(name: str) -> None:
    """One logit, a regression of one or two outputs, probabilities, and float64."""
    for mode, num_columns in (("binary", 1), ("regression", 1), ("regression", 2)):
        found = fitted(name, gin(num_columns), mode=mode).explain(some_graphs())
        assert bool(torch.isfinite(found.bond_score).all())
    probs = nn.Sequential(gin(), nn.Softmax(dim=1))
    found = fitted(
        name,
        probs,
        return_type="probs",
        inputs=lambda model, batch: model[1](model[0](batch.x, batch.edge_index, batch.batch)),
    ).explain(some_graphs())
    assert bool(torch.isfinite(found.bond_score).all())
    doubles = some_graphs()
    for graph in doubles:
        graph.x = graph.x.double()
    explainer = get_explainer(name, gin().double(), **SHORT).fit(doubles, progress=False)
    assert explainer.explain(doubles).bond_score.dtype == torch.float64


def check_models_of_one_graph_per_call(name: str) -> None:
    single = SingleGIN().eval()
    found = fitted(name, single).explain(some_graphs()[:2])
    assert bool(torch.isfinite(found.bond_score).all())


def check_explaining_needs_a_fit(name: str) -> None:
    with pytest.raises(NotFittedError, match=r"call fit\(graphs\) first"):
        get_explainer(name, gin()).explain(some_graphs())


CHECKS = [
    check_fit_is_repeatable,
    check_nodes_are_explained,
    check_other_outputs,
    check_models_of_one_graph_per_call,
    check_explaining_needs_a_fit,
]
