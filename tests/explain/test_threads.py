"""Threads that share a model, or an explainer, get the answers that each would get alone."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Event
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from nicegnn import NICE, Explanation
from nicegnn.target.message_layers import eager
from nicegnn.target.zoo import GIN
from tests.conftest import NUM_FEATURES, random_graph, take_snapshot
from tests.explain.small_models import FAST

THREADS = 4


def make_model() -> nn.Module:
    torch.manual_seed(0)
    return GIN(NUM_FEATURES, 2, hidden_size=8)


@pytest.fixture
def some() -> list[Data]:
    return [random_graph(4 + n % 4, n) for n in range(THREADS)]


def in_threads(work: Callable[[int], Any]) -> list[Any]:
    """Runs the same work in several threads that start together."""
    barrier = Barrier(THREADS)

    def start(number: int) -> Any:
        barrier.wait()
        return work(number)

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(start, range(THREADS)))


def same(a: Explanation, b: Explanation) -> bool:
    names = ("bond_score", "bond_loss", "bond_gate", "prediction")
    pairs = [(getattr(a, name), getattr(b, name)) for name in names]
    return all(torch.equal(x.nan_to_num(9), y.nan_to_num(9)) for x, y in pairs)


@pytest.mark.parametrize("shared", ["explainer", "model"])
def test_explanations_do_not_disturb_each_other(shared: str, some: list[Data]) -> None:
    model = make_model().train()
    before = take_snapshot(model)
    expected = [NICE(model, FAST).explain(graph) for graph in some]
    one = NICE(model, FAST)
    explainers = [one if shared == "explainer" else NICE(model, FAST) for _ in some]
    found = in_threads(lambda n: [explainers[n].explain(some[n]) for _ in range(3)])
    for number, own in enumerate(found):
        assert all(same(out, expected[number]) for out in own)
    assert take_snapshot(model) == before  # statistics of BatchNorm and training mode among it


def test_predictions_meanwhile_are_those_of_the_model(some: list[Data]) -> None:
    model = make_model().eval()
    batch = torch.zeros(some[0].num_nodes, dtype=torch.long)
    ended = Event()

    @torch.no_grad()
    def predict() -> Tensor:
        return model(some[0].x, some[0].edge_index, batch)

    expected, found = predict(), []

    def work(number: int) -> None:
        if number == 0:
            while not ended.is_set():
                found.append(predict())
        else:
            NICE(model, FAST).explain(some[number])
            ended.set()

    in_threads(work)
    assert len(found) > 1
    assert all(torch.equal(out, expected) for out in found)


def test_eager_mode_ends_when_the_last_thread_leaves() -> None:
    from torch._dynamo import eval_frame

    first_left = Event()
    barrier = Barrier(2)

    def work(number: int) -> str:
        with eager():
            barrier.wait()
            if number == 1:
                first_left.wait()
                return str(eval_frame._stance.stance)
        first_left.set()
        return ""

    with ThreadPoolExecutor(2) as pool:
        seen = list(pool.map(work, range(2)))
    assert seen[1] == "force_eager"
    assert eval_frame._stance.stance == "default"
