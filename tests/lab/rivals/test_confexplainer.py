"""ConfExplainer: its loss by hand, alternating steps, truth only where it is named."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from nicegnn.errors import GraphError
from nicegnn.graph.batch import to_batch
from nicegnn.seeding import mix
from nicegnn_lab.rivals import get_explainer
from nicegnn_lab.rivals.confexplainer import (
    ConfExplainer,
    ConfExplainerConfig,
    ConfExplainerSupervised,
    ConfidentMasks,
)
from nicegnn_lab.rivals.masks import edge_states, mean_log_prob, normal_noise, relax
from tests.explain.score_properties import gin, some_graphs
from tests.lab.rivals.learned_properties import CHECKS, fitted

KINDS = ["confexplainer", "confexplainer-supervised"]
SIZES = {"size": 0.02, "entropy": 0.4, "agreement": 0.3, "undirected": False}


def loop_loss(explainer, net, query, truth, step, seed):
    """The formula, graph by graph and edge by edge."""
    z = edge_states(query, "last")
    sample = relax(
        net.mask(z), 5.0 * (1 / 5) ** (step / explainer.config.steps), mix(seed, "relax")
    )
    xi = normal_noise(sample, mix(seed, "confidence"))
    losses = []
    gates = torch.zeros_like(sample)
    confidences = torch.zeros_like(sample)
    for e in range(sample.numel()):
        inner = nn.functional.relu(net.inner[1](z[e].relu()))
        c = torch.sigmoid(net.outer(torch.cat([inner, sample[e].sigmoid().view(1)])))[0]
        confidences[e] = c
        gates[e] = torch.sigmoid(c * sample[e] + (1 - c) * xi[e])
    log_prob = mean_log_prob(query, gates, explainer.num_draws, mix(seed, "noise"))
    for g in range(query.case.num_graphs):
        mine = query.case.edge_batch == g
        m = gates[mine]
        entropy = -(m * m.log() + (1 - m) * (1 - m).log())
        gap = confidences[mine] * (truth[mine] - sample[mine].sigmoid()).abs()
        losses.append(-log_prob[g] + 0.02 * m.sum() + 0.4 * entropy.mean() + 0.3 * gap.sum())
    return torch.stack(losses).mean()


@pytest.mark.parametrize("supervised", [False, True])
def test_loss_follows_the_formula(supervised):
    kind = ConfExplainerSupervised if supervised else ConfExplainer
    explainer = kind(gin(), kind.config_type(**SIZES))
    query = explainer._query(explainer.target, to_batch(some_graphs()[:3]))
    torch.manual_seed(2)
    net = ConfidentMasks(16, 8)
    logit = net.mask(edge_states(query, "last")).detach()
    net.mask.layers[2].bias.data -= logit.mean()
    logit = logit - logit.mean()
    truth = query.case.batch.edge_truth.float() if supervised else (logit > 0).float()
    assert 0 < float(truth.mean()) < 1
    (found,) = explainer._losses(net, query, 7, seed=3)
    torch.testing.assert_close(found, loop_loss(explainer, net, query, truth, 7, 3))


def test_steps_move_masks_and_confidence_in_turn():
    explainer = ConfExplainer(gin(), ConfExplainerConfig(agreement=0.5))
    query = explainer._query(explainer.target, to_batch(some_graphs()[:3]))
    net = ConfidentMasks(16, 8)
    optimiser = explainer._optimiser(net)
    for step in range(4):
        before = {name: value.clone() for name, value in net.state_dict().items()}
        explainer._take_step(net, optimiser, query, step, seed=step)
        moved = {
            name.split(".")[0]
            for name, value in net.state_dict().items()
            if not torch.equal(value, before[name])
        }
        assert moved == ({"inner", "outer"} if step % 2 else {"mask"})


def test_truth_is_used_by_the_supervised_one_alone():
    graphs, other = some_graphs(), some_graphs()
    for graph in other:
        graph.edge_truth = ~graph.edge_truth
    scores = {}
    for kind in KINDS:
        for number, train in enumerate((graphs, other)):
            explainer = get_explainer(kind, gin(), steps=4).fit(train, progress=False)
            scores[kind, number] = explainer.explain(graphs).bond_score
    assert torch.equal(scores[KINDS[0], 0], scores[KINDS[0], 1])
    assert not torch.allclose(scores[KINDS[1], 0], scores[KINDS[1], 1])


def test_supervised_one_needs_truth_to_fit_but_not_to_explain():
    graphs = some_graphs()
    explainer = fitted("confexplainer-supervised")
    for graph in graphs:
        del graph.edge_truth
    assert bool(torch.isfinite(explainer.explain(graphs).bond_score).all())
    with pytest.raises(GraphError, match="must have `edge_truth`"):
        get_explainer("confexplainer-supervised", gin()).fit(graphs, progress=False)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("check", CHECKS)
def test_does_what_every_learner_must(check, kind):
    check(kind)
