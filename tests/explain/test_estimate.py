"""Estimates of cost, the parts of graphs that are timed, and what a bar tells."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data

from nicegnn import NICE, NICEConfig
from nicegnn.explain import nice as nice_module
from nicegnn.explain.call import long_work
from nicegnn.explain.estimate import Estimate, part_of
from nicegnn.explain.explainer import Explainer
from nicegnn.intervention import one_part
from nicegnn.intervention.parts import in_copies
from nicegnn.progress import Advance
from nicegnn.target.zoo import GIN

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


def test_a_long_work_is_announced(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    nice, graph = NICE(gin(), INSTANT), rings(2)
    ahead = Estimate(200, 300.0, 2_000_000_000, True)
    monkeypatch.setattr(Explainer, "estimate", lambda self, graphs: ahead)
    assert long_work(nice, graph, is_shown=True) == ""  # small graphs are not estimated
    monkeypatch.setattr("nicegnn.explain.call._MANY_EDGES", 1)
    words = "about 5 min and 2.0 GB for 200 bonds"
    assert long_work(nice, graph, is_shown=True) == words
    assert long_work(nice, [graph, graph], is_shown=False) == ""  # many small ones: no estimate
    with caplog.at_level("WARNING", logger="nicegnn"):
        nice.explain(graph)
    assert caplog.messages[0].startswith(f"Explaining takes {words}. progress=True shows how far")


def test_a_bar_moves_inside_a_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    """The share of the bonds that are done rises to the whole."""
    shares: list[float] = []
    nice = NICE(gin(), INSTANT.with_(chunk_edges=200))

    def seen(advance: Advance) -> Callable[[int, int], None]:
        return lambda done, total: shares.append(done / total)

    monkeypatch.setattr(nice_module, "of_answers", seen)
    monkeypatch.setattr(one_part, "PATHS", (in_copies,))
    nice.explain(rings(10))
    assert len(shares) > 20
    assert shares == sorted(shares)
    assert shares[-1] == 1
