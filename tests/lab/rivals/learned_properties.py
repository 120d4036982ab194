"""What every rival that learns must do, whatever its method."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from nicegnn.errors import NotFittedError
from nicegnn.explain.trust import Flag
from nicegnn.target.zoo import GIN
from nicegnn_lab.rivals import get_explainer
from nicegnn_lab.rivals.learned import LearnedRival
from tests.conftest import NUM_FEATURES, random_graph, take_snapshot
from tests.explain.score_properties import NodeGIN, SingleGIN, gin, same_scores, some_graphs

SHORT = {"steps": 4, "fit_batch_size": 2}


def fitted(
    name: str, model: nn.Module | None = None, *, fit: Any = None, **settings: Any
) -> LearnedRival:
    """Returns an explainer of a tiny model after a few steps."""
    explainer = get_explainer(name, gin() if model is None else model, **SHORT | settings)
    assert isinstance(explainer, LearnedRival)
    return explainer.fit(some_graphs(), progress=False, **fit or {})


def check_batch_equals_loop(name: str) -> None:
    for kind in (name, f"{name}+nc"):
        explainer, graphs = fitted(kind), some_graphs()
        together = explainer.explain(graphs)
        assert bool(torch.isfinite(together.bond_score).all())
        for part, graph in zip(together.split(), graphs, strict=True):
            same_scores(part, explainer.explain(graph))


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


def check_model_stays_as_it_was(name: str) -> None:
    model = gin().train()
    model.head.weight.requires_grad_(False)
    before = take_snapshot(model)
    fitted(name, model).explain(some_graphs())
    assert take_snapshot(model) == before


def check_graphs_without_edges(name: str) -> None:
    found = fitted(name).explain(some_graphs()[3:])
    assert found.bond_score.shape == (0,)
    assert found.status.flags == (Flag.NO_EDGES, Flag.NO_EDGES)


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


def check_saved_file_gives_equal_scores(name: str, folder: Path) -> None:
    explainer = fitted(f"{name}+nc")
    explainer.save(folder / "rival.safetensors")
    again = type(explainer).load(
        folder / "rival.safetensors", explainer.target.model, mechanism="nc"
    )
    assert again.config == explainer.config
    one, other = explainer.explain(some_graphs()), again.explain(some_graphs())
    assert torch.equal(one.bond_score, other.bond_score)


def check_explaining_needs_a_fit(name: str) -> None:
    with pytest.raises(NotFittedError, match=r"call fit\(graphs\) first"):
        get_explainer(name, gin()).explain(some_graphs())


CHECKS = [
    check_batch_equals_loop,
    check_fit_is_repeatable,
    check_model_stays_as_it_was,
    check_graphs_without_edges,
    check_nodes_are_explained,
    check_other_outputs,
    check_models_of_one_graph_per_call,
    check_explaining_needs_a_fit,
]


def check_cuda_equals_cpu(name: str, tolerance: float = 1e-3) -> None:
    model, graphs = GIN(NUM_FEATURES, 3, hidden_size=8).eval(), some_graphs()
    scores = []
    for one in (model, copy.deepcopy(model).cuda()):
        explainer = get_explainer(name, one, **SHORT).fit(graphs, progress=False)
        scores.append(explainer.explain(graphs).bond_score)
    assert scores[1].is_cuda
    torch.testing.assert_close(scores[1].cpu(), scores[0], rtol=tolerance, atol=tolerance)
