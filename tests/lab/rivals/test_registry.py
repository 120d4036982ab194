"""The registry, and one contract for every explainer in it, NICE among them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from nicegnn.errors import ConfigError
from nicegnn.explain.explainer import Explainer
from nicegnn.explain.explanation import Explanation
from nicegnn.explain.trust import Flag
from nicegnn.graph.batch import to_batch
from nicegnn.intervention.mechanisms import ElementMask, NoiseCorruption
from nicegnn_lab.metrics.ranking import roc_auc
from nicegnn_lab.rivals import EXPLAINERS, find_entry, get_explainer
from tests.conftest import take_snapshot
from tests.explain.score_properties import gin, same_scores, some_graphs
from tests.lab.rivals.planted_group import nitro_task

_NICE = {
    "boundary__steps": 4,
    "boundary__num_draws": 2,
    "boundary__batch_size": 4,
}
QUICK: dict[str, dict[str, Any]] = {
    **{
        name: _NICE | {"attribution__num_draws": 2, "attribution__num_nodes": 3}
        for name in EXPLAINERS
        if name.startswith("nice-p")
    },
    "integrated-gradients": {"num_nodes": 4},
    "gnnexplainer": {"steps": 5},
    "pgexplainer": {"steps": 4, "fit_batch_size": 4},
    "refine": {"steps": 4, "fit_batch_size": 4, "fine_tune_steps": 2},
    "d4explainer": {
        "steps": 2,
        "fit_batch_size": 4,
        "hidden_size": 8,
        "num_blocks": 2,
        "num_levels": 3,
        "num_draws": 4,
    },
    "proxyexplainer": {"steps": 3, "fit_batch_size": 4},
    "confexplainer": {"steps": 4, "fit_batch_size": 4},
    "confexplainer-supervised": {"steps": 4, "fit_batch_size": 4},
    "graphmask": {"steps": 3},
    "subgraphx": {"num_orders": 2},
}
VARIANTS = [
    variant
    for name, entry in EXPLAINERS.items()
    for variant in (name, *(f"{name}+{mechanism}" for mechanism in entry.mechanisms[1:]))
]


def make(name: str, model: nn.Module) -> Explainer:
    """Returns a quick explainer that has learned what it must."""
    entry, _ = find_entry(name)
    explainer = get_explainer(name, model, **QUICK.get(entry.name, {}))
    return explainer.fit(some_graphs(), progress=False)


@pytest.mark.parametrize("name", VARIANTS)
def test_contract(name: str) -> None:
    model, graphs = gin(num_classes=3), some_graphs()
    before, numbers = take_snapshot(model), torch.get_rng_state()
    explainer = make(name, model)
    found = explainer.explain(graphs)
    assert take_snapshot(model) == before
    assert torch.equal(torch.get_rng_state(), numbers)
    assert isinstance(found, Explanation)
    assert found.num_graphs == len(graphs)
    assert found.bond_score.shape == (sum(graph.num_edges // 2 for graph in graphs),)
    assert found.edge_score.shape == (sum(graph.num_edges for graph in graphs),)
    assert bool(torch.isfinite(found.bond_score).all())
    with torch.no_grad():
        batch = to_batch(graphs)
        predicted = model(batch.x, batch.edge_index, batch.batch).argmax(1)
    assert torch.equal(found.target, predicted)
    empty = [Flag.NO_EDGES in flag for flag in found.status.flags]
    assert empty == [graph.num_edges == 0 for graph in graphs]  # one of a single node among them
    again = explainer.explain(graphs)
    assert torch.equal(again.bond_score, found.bond_score)
    for part, graph in zip(found.split(), graphs, strict=True):
        same_scores(part, explainer.explain(graph))
    other = explainer.explain(graphs[0], target=2)
    assert other.target.tolist() == [2]


LONGER: dict[str, dict[str, Any]] = {
    "nice-paper": {
        "boundary__steps": 100,
        "boundary__num_draws": 4,
        "boundary__batch_size": 32,
    },
    "gnnexplainer": {"steps": 200, "learning_rate": 0.05, "size": 0.05, "entropy": 0.1},
    "pgexplainer": {"steps": 100, "fit_batch_size": 64, "learning_rate": 0.01},
    "refine": {"steps": 100, "fit_batch_size": 64},
    "d4explainer": {
        "steps": 60,
        "fit_batch_size": 32,
        "hidden_size": 16,
        "num_blocks": 2,
        "num_levels": 5,
        "alpha": 2.0,
    },
    "proxyexplainer": {"steps": 100, "fit_batch_size": 32},
    "confexplainer": {"steps": 200, "fit_batch_size": 64},
    "confexplainer-supervised": {"steps": 200, "fit_batch_size": 64},
}
# variants of NICE are the same class with other settings
PLANTED = [name for name, entry in EXPLAINERS.items() if entry.group != "variant"]


@pytest.mark.slow
@pytest.mark.parametrize("name", PLANTED)
def test_planted_group_is_ranked_above_chance(name: str) -> None:
    model, train, test = nitro_task()
    explainer = get_explainer(name, model, **LONGER.get(name, {}))
    found = explainer.fit(list(train), progress=False).explain(list(test))
    truth = found.bonds.mean(to_batch(list(test)).edge_truth.float()) > 0.5
    auc = roc_auc(found.bond_score, truth, found.bonds.batch, found.num_graphs)
    mean, error = float(auc.mean()), float(auc.std()) / auc.numel() ** 0.5
    if name == "random":
        assert abs(mean - 0.5) < 3 * error
    elif name == "ground-truth":
        assert mean == 1
    else:
        assert mean > 0.5 + 3 * error, f"{mean:.3f}, error {error:.3f}"


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("name", [name for name in VARIANTS if "nice" not in name])
def test_cuda_equals_cpu(name: str) -> None:
    here = make(name, gin()).explain(some_graphs()).bond_score
    there = make(name, gin().cuda()).explain(some_graphs()).bond_score
    assert there.is_cuda
    torch.testing.assert_close(there.cpu(), here, rtol=1e-3, atol=1e-3)


def test_unknown_names_and_mechanisms_are_named():
    with pytest.raises(ConfigError, match="gnnexplainer"):
        get_explainer("gnnexplainr", gin())
    with pytest.raises(ConfigError, match="`mechanism` of saliency must be one of"):
        get_explainer("saliency+nc", gin())
    with pytest.raises(ConfigError, match="`mechanism` must be 'nc' for"):
        get_explainer("gnnexplainer+nc", gin(), mechanism="em")
    with pytest.raises(ConfigError, match="Unknown setting"):
        get_explainer("gnnexplainer", gin(), step=3)


def test_a_mechanism_goes_into_the_settings_of_nice_and_beside_those_of_rivals() -> None:
    assert get_explainer("nice+em", gin()).config.mechanism == "em"
    own = ElementMask()
    assert get_explainer("nice", gin(), mechanism=own).mechanism() is own
    assert get_explainer("pgexplainer", gin(), mechanism=own).mechanism is own
    assert isinstance(get_explainer("pgexplainer+nc", gin()).mechanism, NoiseCorruption)
