"""PGExplainer: loss and step equal PyG's on single graphs, and what every learner must do."""

from __future__ import annotations

import copy

import pytest
import torch
from torch_geometric.explain import Explainer as PyGExplainer
from torch_geometric.explain import PGExplainer as PyGPGExplainer

from nicegnn.graph.batch import to_batch
from nicegnn.optimisation import descend
from nicegnn.seeding import mix
from nicegnn_lab.rivals.masks import EdgeMLP, MaskConfig, uniform_noise
from nicegnn_lab.rivals.pgexplainer import PGExplainer
from tests.conftest import random_graph
from tests.explain.score_properties import gin, some_graphs
from tests.lab.rivals.learned_properties import CHECKS

SETTINGS = {"size": 0.03, "entropy": 0.7, "steps": 10, "undirected": False}


def pyg_explainer(model, net, level, monkeypatch):
    """PyG's explainer with the weights of `net` and the same settings."""
    coefficients = {"edge_size": 0.03, "edge_ent": 0.7, "temp": [5.0, 1.0], "bias": 0.01}
    monkeypatch.setattr(PyGPGExplainer, "coeffs", coefficients)  # it is shared by all instances
    algorithm = PyGPGExplainer(epochs=10, lr=0.003)
    algorithm.mlp(torch.zeros(1, net.in_size))  # its layers get their sizes now
    algorithm.mlp.load_state_dict(net.layers.state_dict())
    return PyGExplainer(
        copy.deepcopy(model),
        algorithm,
        explanation_type="phenomenon",
        edge_mask_type="object",
        model_config={
            "mode": "multiclass_classification",
            "task_level": level,
            "return_type": "raw",
        },
    )


@pytest.mark.filterwarnings("ignore:Converting a tensor with requires_grad")  # by PyG
@pytest.mark.parametrize("step", [0, 6])
def test_loss_and_step_equal_pyg_on_a_graph(step, monkeypatch):
    model, graph = gin(), random_graph(7, 3)
    explainer = PGExplainer(model, MaskConfig(**SETTINGS))
    query = explainer._query(explainer.target, to_batch(graph))
    torch.manual_seed(1)
    net = EdgeMLP(16, 64)
    rival = pyg_explainer(model, net, "graph", monkeypatch)
    monkeypatch.setattr(torch, "rand_like", lambda x: uniform_noise(x, mix(5, "relax")))
    expected = rival.algorithm.train(
        step,
        rival.model,
        graph.x,
        graph.edge_index,
        target=query.explained,
        batch=torch.zeros(7, dtype=torch.long),
    )
    (loss,) = explainer._losses(net, query, step, seed=5)
    assert float(loss.detach()) == pytest.approx(expected, rel=1e-5)
    descend(loss, list(net.parameters()), explainer._optimiser(net))
    for ours, theirs in zip(net.parameters(), rival.algorithm.mlp.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def test_batch_loss_is_the_mean_of_the_graphs():
    graphs = some_graphs()[:3]
    explainer = PGExplainer(gin(), MaskConfig(size=0.1, entropy=0.5))
    net = EdgeMLP(16, 4)

    def loss(chosen):
        query = explainer._query(explainer.target, to_batch(chosen))
        (found,) = explainer._losses(net, query, 0, seed=1)
        return float(found.detach())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "nicegnn_lab.rivals.masks.uniform_noise", lambda like, seed: torch.full_like(like, 0.3)
        )
        single = [loss([graph]) for graph in graphs]
        assert loss(graphs) == pytest.approx(sum(single) / 3, rel=1e-5)


@pytest.mark.parametrize("check", CHECKS)
def test_does_what_every_learner_must(check):
    check("pgexplainer")
