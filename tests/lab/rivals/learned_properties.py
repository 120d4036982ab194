"""What every rival that learns must do, whatever its method."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from nicegnn.errors import NotFittedError, TargetError
from nicegnn_lab.rivals import get_explainer
from nicegnn_lab.rivals.learned import LearnedRival
from tests.conftest import random_graph
from tests.explain.score_properties import NodeGIN, SingleGIN, gin, some_graphs

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


def check_other_models_are_refused(name: str) -> None:
    graph = random_graph(9, 4)
    graph.edge_truth = torch.arange(graph.num_edges) // 2 % 2 == 0
    for model, settings in ((SingleGIN(), {}), (gin(1), {"mode": "regression"})):
        with pytest.raises(TargetError, match="must classify graphs, many in a call"):
            fitted(name, model.eval(), **settings)
    with pytest.raises(TargetError, match="must classify graphs"):
        get_explainer(name, NodeGIN(), **SHORT).fit(graph, index=[0, 3], progress=False)


def check_explaining_needs_a_fit(name: str) -> None:
    with pytest.raises(NotFittedError, match=r"call fit\(graphs\) first"):
        get_explainer(name, gin()).explain(some_graphs())


CHECKS = [
    check_fit_is_repeatable,
    check_other_models_are_refused,
    check_explaining_needs_a_fit,
]
