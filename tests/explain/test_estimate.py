"""Estimates of cost, the parts of graphs that are timed, and what a bar tells."""

from __future__ import annotations

import time

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data

from nicegnn import NICE, NICEConfig
from nicegnn.errors import ConfigError
from nicegnn.explain.estimate import Estimate, part_of, sample_of
from nicegnn.explain.explainer import Explainer
from nicegnn.progress import Turns
from nicegnn.target.zoo import GAT, GIN
from tests.conftest import random_graph

INSTANT = NICEConfig()


def rings(number: int) -> Data:
    """Returns a chain of six-membered rings, seven bonds each."""
    place = 6 * torch.arange(number).repeat_interleave(6)
    step = torch.arange(6).repeat(number)
    link = 6 * torch.arange(number - 1)
    inside = torch.stack([place + step, place + (step + 1) % 6])
    ends = torch.cat([inside, torch.stack([link + 3, link + 6])], dim=1)
    x = torch.randn(6 * number, 4, generator=torch.Generator().manual_seed(0))
    return Data(x=x, edge_index=torch.cat([ends, ends.flip(0)], dim=1), note=torch.tensor([3]))


def gin() -> GIN:
    torch.manual_seed(0)
    return GIN(4, 2, hidden_size=8).eval()


def is_connected(graph: Data) -> bool:
    seen: Tensor = torch.zeros(int(graph.num_nodes), dtype=torch.bool)
    seen[0] = True
    for _ in range(int(graph.num_nodes)):
        seen[graph.edge_index[1][seen[graph.edge_index[0]]]] = True
    return bool(seen.all())


def test_a_part_is_connected_and_about_as_large_as_asked() -> None:
    part = part_of(rings(200), 300)
    assert 200 < part.num_edges <= 300
    assert is_connected(part)
    assert part.x.size(0) == part.num_nodes
    small = rings(3)
    assert part_of(small, 300) is small


def test_samples_are_spread_over_the_graphs() -> None:
    graphs = [rings(1 + place // 50) for place in range(200)]
    sizes = [graph.num_edges // 2 for graph in sample_of(graphs, 800)]
    assert sizes[0] == 6
    assert sizes[-1] == 27
    assert 400 < sum(sizes) < 1600
    assert [graph.num_edges // 2 for graph in sample_of([rings(1000)], 800)] == pytest.approx(
        [800], 0.2
    )


def test_estimates_are_within_a_factor_of_the_cost() -> None:
    graph, nice = rings(600), NICE(gin(), INSTANT)
    found = nice.estimate(graph)
    assert found.bonds == 600 * 7 - 1
    assert found.is_local
    start = time.perf_counter()
    nice.explain(graph)
    assert 0.2 < found.seconds / (time.perf_counter() - start) < 5
    # 4,199 bonds, width 8: states of all layers, messages, noise
    assert 1e6 < found.memory < 2e8


def test_estimates_count_whole_graphs_where_differences_cannot_be_followed() -> None:
    """Four times the bonds of a graph are sixteen times the work."""
    torch.manual_seed(0)
    nice = NICE(GAT(4, 2, hidden_size=8).eval(), INSTANT.with_(mechanism="em"))
    small, large = nice.estimate(rings(100)), nice.estimate(rings(400))
    assert not large.is_local
    assert 16 / 4 < large.seconds / small.seconds < 16 * 4


def test_nodes_are_estimated_by_a_few_of_them() -> None:
    class Nodes(GIN):
        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:  # type: ignore[override]
            for conv, act in zip(self.convs, self.acts, strict=True):
                x = act(conv(x, edge_index))
            return self.head(x)

    graph, nice = rings(40), NICE(Nodes(4, 2, hidden_size=8).eval(), INSTANT)
    found = nice.estimate(graph, index=torch.arange(6, 234))
    every = nice.explain(graph, index=[100, 101]).bond_score.numel() / 2
    assert 228 * every * 0.5 < found.bonds < 228 * every * 2


def test_a_long_work_is_announced_in_the_title(monkeypatch: pytest.MonkeyPatch) -> None:
    nice, graph = NICE(gin(), INSTANT), random_graph(6, 1)
    ahead = Estimate(200, 300.0, 2_000_000_000, True)
    monkeypatch.setattr(Explainer, "estimate", lambda self, graphs: ahead)
    assert nice._title(graph, None) == "Explaining"  # small graphs are not estimated
    monkeypatch.setattr("nicegnn.explain.explainer._MANY_EDGES", 1)
    assert nice._title(graph, None) == "Explaining (about 5 min and 2.0 GB for 200 bonds)"


def test_a_bar_moves_inside_a_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    """Noise, masking and removal take a third each; the share rises to the whole."""
    shares: list[float] = []
    nice = NICE(gin(), INSTANT.with_(chunk_edges=200))
    inner = Turns.__call__

    def seen(self: Turns, done: int, total: int) -> None:
        self._advance = lambda share, note: shares.append(share)
        inner(self, done, total)

    monkeypatch.setattr(Turns, "__call__", seen)
    nice.explain(rings(10))
    assert len(shares) > 20
    assert shares == sorted(shares)
    assert shares[-1] == 1
    assert any(1 / 3 < share < 0.5 for share in shares)


FITTED = NICEConfig().with_(boundary__steps=2, boundary__batch_size=4)


def test_only_the_first_bonds_are_damaged_one_by_one() -> None:
    nice = NICE(gin(), FITTED).fit([rings(n) for n in (1, 2, 3)], progress=False)
    graphs = [rings(1), rings(4)]
    whole, out = nice.explain(graphs), nice.explain(graphs, max_bonds=10, boundary=True)
    small, large = out.split()
    torch.testing.assert_close(small.bond_score, whole.split()[0].bond_score)
    is_first = ~large.bond_loss.isnan()
    assert is_first.sum() == 10
    order = large.bond_gate  # rises with the order of the gates
    assert order[is_first].min() >= order[~is_first].max()
    assert large.bond_score[is_first].min() > large.bond_score[~is_first].max()
    assert float(large.bond_score.min()) > 0
    ranked = large.bond_score[~is_first].argsort()
    assert (order[~is_first][ranked].diff() >= 0).all()
    torch.testing.assert_close(
        large.bond_loss[is_first], whole.split()[1].bond_loss[is_first], rtol=1e-3, atol=1e-4
    )
    assert any("only the 10" in note for note in out.status.notes)
    assert out.trust is not None
    assert out.trust.overlap.isnan().tolist() == [False, True]


def test_all_bonds_may_be_left_to_the_order() -> None:
    nice = NICE(gin(), FITTED).fit([rings(n) for n in (1, 2, 3)], progress=False)
    out = nice.explain(rings(4), max_bonds=0, boundary=True)
    assert out.bond_loss.isnan().all()
    assert (out.bond_gate[out.bond_score.argsort()].diff() >= 0).all()
    assert any("No bond was damaged alone" in note for note in out.status.notes)
    assert not nice.explain(rings(1), max_bonds=6).status.notes  # there are no more


@pytest.mark.parametrize(
    ("config", "most", "words"),
    [
        (INSTANT, 5, "needs scores that join gates"),
        (NICEConfig.paper(), 5, "path='joint'"),
        (FITTED, -1, r"at least 0 \(got -1\)"),
        (FITTED, 2.0, r"got 2\.0"),
    ],
)
def test_a_wrong_number_of_bonds_is_refused(config: NICEConfig, most: int, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        NICE(gin(), config).explain(rings(2), max_bonds=most)
