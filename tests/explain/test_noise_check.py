"""Falling back from noise to masking: only where noise cannot judge, seen without truth, kept."""

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
from nicegnn.explain import noise_check as fallback_module
from nicegnn.explain.noise_check import (
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

FAST = NICEConfig().with_(boundary__steps=3, boundary__batch_size=4, boundary__num_draws=2)
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
    monkeypatch.setattr(fallback_module, "_MOST_PAIRS", most_pairs)
    monkeypatch.setattr(fallback_module, "_FEWEST_GRAPHS", 2)
    target = Target(Dormant(0.0))
    with target.frozen():
        found = compare_mechanisms(target, CHAINS, NICEConfig(), 0)
    assert found[1].num_graphs == number


def test_fit_masks_says_so_and_keeps_it(tmp_path: Path, caplog) -> None:
    nice = NICE(Dormant(3.0), FAST).fit(CHAINS, progress=False)
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
        (FAST.with_(fallback=False), None),
        (FAST.with_(mechanism="em"), None),
        (FAST, ElementMask()),
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
        NICE(model, FAST.with_(fallback=fallback)).fit(graphs, progress=False)
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
    nice = NICE(model, FAST).fit(graphs, progress=False)
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
