"""Views of the target: which message they damage, and falling back from noise to masking."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Batch, Data
from torch_geometric.nn import SimpleConv, global_add_pool

from nicegnn import NICE, ElementMask, NICEConfig, NoiseCorruption
from nicegnn.explain import nice as nice_module
from nicegnn.explain import score_parts
from nicegnn.explain.score_parts import (
    CLEAR_GAIN,
    Comparison,
    compare_mechanisms,
    kept_probability,
    noise_fails,
)
from nicegnn.graph.case import make_case
from nicegnn.intervention.query import Query
from nicegnn.target.frozen_model import Target
from nicegnn.target.zoo import GIN
from tests.conftest import NUM_FEATURES, random_graph
from tests.explain.small_models import FAST, make


@pytest.mark.parametrize("part", ["boundary", "attribution"])
def test_the_anchor_of_each_part_reaches_its_own_mechanism(part: str, graphs: list[Data]) -> None:
    config = FAST.with_(mechanism="nc", **{f"{part}__anchor": "clean"})
    view = NICE(make("gin"), config).views[0]
    anchors = {"boundary": view.boundary_mechanism.anchor, "attribution": view.mechanism.anchor}
    assert anchors.pop(part) == "clean"
    assert set(anchors.values()) == {"propagated"}


def test_both_parts_share_one_mechanism_where_their_anchors_agree() -> None:
    for view in NICE(make("gin"), NICEConfig.paper()).views:
        assert view.mechanism is view.boundary_mechanism
        assert view.mechanism.anchor == "clean"


@pytest.mark.parametrize("anchor", ["clean", "propagated"])
def test_the_papers_method_is_saved_and_loaded_whole(
    anchor: str, graphs: list[Data], tmp_path: Path
) -> None:
    config = NICEConfig.paper(anchor).with_(boundary__steps=3, boundary__batch_size=4)
    model = make("gin")
    nice = NICE(model, config).fit(graphs, progress=False)
    nice.save(tmp_path / "nice.safetensors")
    again = NICE.load(tmp_path / "nice.safetensors", model)
    assert again.config == config
    found, wanted = (one.explain(graphs) for one in (again, nice))
    assert torch.equal(found.bond_score, wanted.bond_score)
    assert torch.equal(found.bond_gate, wanted.bond_gate)


def test_ordered_ends_give_a_bond_the_mean_of_its_directions(graphs: list[Data]) -> None:
    config = NICEConfig.paper().with_(boundary__steps=2, boundary__batch_size=4)
    nice = NICE(make("gin"), config).fit(graphs, progress=False)
    out = nice.explain(graphs)
    flipped = [graph.clone() for graph in graphs]
    for graph in flipped:
        graph.edge_index = graph.edge_index.flip(0)
    again = nice.explain(flipped)
    torch.testing.assert_close(again.bond_gate, out.bond_gate)


def test_instant_settings_seek_no_boundary(graphs: list[Data], monkeypatch) -> None:
    for name in ("find_boundary", "optimise_logits"):
        monkeypatch.setattr(nice_module, name, None, raising=False)
        monkeypatch.setattr(score_parts, name, None, raising=False)
    out = NICE(make("gcn"), NICEConfig.instant()).explain(graphs)
    assert out.status.boundary == "none"
    assert bool(out.bond_gate.isnan().all())
    assert bool(out.bond_score.isfinite().all())


def test_instant_scores_are_the_losses_of_the_default(graphs: list[Data]) -> None:
    model = make("gcn")
    fitted = NICE(model, FAST.with_(score="big", fallback=False)).fit(graphs, progress=False)
    instant = NICE(model, NICEConfig.instant().with_(attribution=FAST.attribution))
    torch.testing.assert_close(
        instant.explain(graphs).bond_score, fitted.explain(graphs).bond_score
    )


BRIEF = NICEConfig().with_(boundary__steps=3, boundary__batch_size=4, boundary__num_draws=2)
MASKING = Comparison(fall=-1.0, nc=0.4, em=0.4 + 2 * CLEAR_GAIN, error=0.0, num_graphs=3)


class Dormant(nn.Module):
    """Sums one feature over bonds, and takes any trace of another, always 0, for class 1."""

    def __init__(self, noise_weight: float) -> None:
        super().__init__()
        self.conv, self.noise_weight = SimpleConv(aggr="sum"), noise_weight

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        h = self.conv(x, edge_index)
        seen = global_add_pool(h[:, :1], batch) - 4.0
        never = global_add_pool(h[:, 1:].abs(), batch)
        logit = seen + self.noise_weight * never
        return torch.cat([torch.zeros_like(logit), logit], dim=1)


def chain(position: int) -> Data:
    """Ten nodes in a row; the bond at `position` carries nearly all that counts."""
    value = torch.full((10, 1), 0.1)
    value[position : position + 2] = 3.0
    source = torch.arange(9)
    edge_index = torch.stack([torch.cat([source, source + 1]), torch.cat([source + 1, source])])
    return Data(x=torch.cat([value, torch.zeros(10, 1)], dim=1), edge_index=edge_index)


CHAINS = [chain(position) for position in range(1, 8)]


def test_kept_probability_by_hand() -> None:
    target = Target(Dormant(0.0))
    graph = Batch.from_data_list([chain(4)])
    case = make_case(graph)
    query = Query(target, case, ElementMask())
    first = torch.zeros(9)
    first[4] = 1.0
    clean = torch.sigmoid(torch.tensor(2 * 3.0 + 2 * 3.0 + 14 * 0.1 - 4.0))  # all messages
    # values of the bonds in a row: .2 .2 .2 3.1 6 3.1 .2 .2 .2; equal scores keep their order
    for score, order in (
        (first, [4, 0, 1, 2, 3, 5, 6, 7, 8]),
        (-first, [0, 1, 2, 3, 5, 6, 7, 8, 4]),
    ):
        value = [0.2, 0.2, 0.2, 3.1, 6.0, 3.1, 0.2, 0.2, 0.2]
        wanted = 0.0
        for share in (0.1, 0.3, 0.5, 0.7, 0.9):
            kept = sum(value[k] for k in order[: max(1, round(share * 9))])
            wanted += min(1.0, 1 / (1 + math.exp(4.0 - kept)) / float(clean)) / 5
        found = kept_probability(query, score, 1, 0)
        assert found.item() == pytest.approx(wanted, abs=1e-4)


def test_masking_is_preferred_where_noise_wakes_what_is_dormant() -> None:
    found = {}
    for weight in (0.0, 3.0):
        target = Target(Dormant(weight))
        with target.frozen():
            found[weight] = compare_mechanisms(target, CHAINS, NICEConfig(), 0)
    assert list(found[0.0]) == list(found[3.0]) == [1]  # all are of class 1
    assert found[3.0][1].favours_masking
    assert found[3.0][1].num_graphs == len(CHAINS)
    assert found[0.0][1].fall > 0
    assert not found[0.0][1].favours_masking


@pytest.mark.parametrize(("most_pairs", "number"), [(3.5 * 18**2, 3), (0, 2)])
def test_fewer_graphs_are_judged_where_they_are_large(most_pairs, number, monkeypatch) -> None:
    """Each chain has 18 directed edges; however large graphs are, a few are judged."""
    monkeypatch.setattr(score_parts, "_MOST_PAIRS", most_pairs)
    monkeypatch.setattr(score_parts, "_FEWEST_GRAPHS", 2)
    target = Target(Dormant(0.0))
    with target.frozen():
        found = compare_mechanisms(target, CHAINS, NICEConfig(), 0)
    assert found[1].num_graphs == number


def test_fit_masks_says_so_and_keeps_it(tmp_path: Path, caplog) -> None:
    nice = NICE(Dormant(3.0), BRIEF).fit(CHAINS, progress=False)
    assert nice.fell_back
    assert isinstance(nice.mechanism, ElementMask)
    assert "fallback=False" in caplog.text
    out = nice.explain(CHAINS)
    assert any("masked" in note for note in out.status.notes)
    assert bool((out.bond_stderr == 0).all())  # masking is not random
    nice.save(tmp_path / "gates.safetensors")
    loaded = NICE.load(tmp_path / "gates.safetensors", nice.target.model)
    assert loaded.fell_back
    torch.testing.assert_close(loaded.explain(CHAINS).bond_score, out.bond_score)
    own = NICE.load(tmp_path / "gates.safetensors", nice.target.model, mechanism=NoiseCorruption())
    assert not own.fell_back


@pytest.mark.parametrize(
    ("config", "mechanism"),
    [
        (BRIEF.with_(fallback=False), None),
        (BRIEF.with_(mechanism="em"), None),
        (BRIEF, ElementMask()),
    ],
)
def test_no_fallback_where_none_was_asked_for(config: NICEConfig, mechanism) -> None:
    nice = NICE(Dormant(3.0), config, mechanism=mechanism).fit(CHAINS, progress=False)
    assert not nice.fell_back
    assert not nice.comparison


def test_paper_never_masks() -> None:
    assert not NICEConfig.paper().fallback


def test_same_gates_where_noise_can_judge() -> None:
    torch.manual_seed(0)
    model = GIN(NUM_FEATURES, 2)
    graphs = [random_graph(8, seed) for seed in range(6)]
    with_, without = (
        NICE(model, BRIEF.with_(fallback=fallback)).fit(graphs, progress=False)
        for fallback in (True, False)
    )
    assert with_.comparison
    assert not with_.fell_back
    a, b = with_.explain(graphs), without.explain(graphs)
    assert torch.equal(a.bond_score, b.bond_score)


def test_new_fit_begins_with_noise_again(monkeypatch) -> None:
    torch.manual_seed(0)
    model = GIN(NUM_FEATURES, 2)
    graphs = [random_graph(8, seed) for seed in range(3)]
    monkeypatch.setattr(nice_module, "compare_mechanisms", lambda *_: {1: MASKING})
    nice = NICE(model, BRIEF).fit(graphs, progress=False)
    assert nice.fell_back
    monkeypatch.setattr(nice_module, "compare_mechanisms", lambda *_: {})
    assert not nice.fit(graphs, progress=False).fell_back


def test_a_gain_must_be_clear_and_certain_and_noise_at_fault() -> None:
    assert MASKING.favours_masking
    assert not replace(MASKING, em=0.4 + CLEAR_GAIN / 2).favours_masking
    assert not replace(MASKING, error=CLEAR_GAIN).favours_masking
    assert not replace(MASKING, fall=0.1).favours_masking


def test_no_class_may_lose_by_masking() -> None:
    level = Comparison(fall=1.0, nc=0.4, em=0.39, error=0.01, num_graphs=9)
    assert noise_fails({0: level, 1: MASKING})
    assert not noise_fails({0: replace(level, em=0.37), 1: MASKING})
    assert not noise_fails({0: level})
    assert not noise_fails({})


def test_regression_has_nothing_to_compare() -> None:
    class Total(Dormant):
        def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
            return super().forward(x, edge_index, batch)[:, 1:]

    target = Target(Total(1.0), mode="regression")
    with target.frozen():
        assert compare_mechanisms(target, CHAINS, NICEConfig(), 0) == {}
