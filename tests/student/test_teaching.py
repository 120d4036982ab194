"""Teaching on lessons whose answer is known."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from nicegnn.errors import ConfigError, GraphError
from nicegnn.student import teaching
from nicegnn.student.teaching import (
    BondView,
    Lesson,
    StudentNetwork,
    TeachConfig,
    TeachReport,
    graph_error,
    teach_student,
)

QUICK = TeachConfig(max_graphs=256, epochs=30)
SIZE = 8  # bonds of each graph, a ring


def lesson(chosen: Tensor, noise: float = 0.0) -> Lesson:
    """Returns rings whose bonds lose what their ends hold; graph ``g`` is the same always."""
    states, losses = [], []
    for graph in chosen.tolist():
        generator = torch.Generator().manual_seed(graph)
        state = torch.randn(SIZE, 3, generator=generator)
        loss = state[:, 0] + state[:, 0].roll(-1)
        states.append(state)
        losses.append(loss + noise * torch.randn(SIZE, generator=generator))
    node = torch.arange(SIZE * chosen.numel())
    home = node // SIZE
    view = BondView(
        state=torch.cat(states),
        home=home,
        ends=torch.stack([node, SIZE * home + (node + 1) % SIZE]),
        edge=torch.zeros(node.numel(), 0),
        label=torch.ones_like(chosen),
    )
    return Lesson(view, torch.cat(losses), torch.ones_like(node, dtype=torch.bool), 3)


@pytest.fixture(autouse=True)
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """A narrow network is taught faster."""
    monkeypatch.setattr(teaching, "_HIDDEN", 16)


def noisy(noise: float) -> Callable[[Tensor], Lesson]:
    return lambda chosen: lesson(chosen, noise)


def taught(
    num_graphs: int,
    explain: Callable[[Tensor], Lesson] = lesson,
    config: TeachConfig = QUICK,
    seed: int = 0,
) -> tuple[StudentNetwork, TeachReport]:
    return teach_student(explain, num_graphs, config, seed=seed, progress=False, chunk=100)


def test_a_simple_rule_is_learned() -> None:
    net, report = taught(1000)
    assert report.num_graphs == 256
    assert report.num_held_out == 52  # a fifth
    assert report.rank_correlation > 0.9
    assert net.taught.tolist() == [False, True, False]
    _, useless = taught(1000, noisy(50.0))
    assert useless.rank_correlation < 0.3


def test_each_drawn_graph_is_explained_once_and_no_other() -> None:
    asked: list[int] = []

    def noted(chosen: Tensor) -> Lesson:
        assert chosen.numel() <= 100
        asked.extend(chosen.tolist())
        return lesson(chosen)

    _, report = taught(1000, noted, QUICK.with_(epochs=1))
    assert len(asked) == len(set(asked)) == report.num_graphs == 256
    assert max(asked) > 256  # drawn from all of them
    _, few = taught(80, config=QUICK.with_(epochs=1))
    assert few.num_graphs == 80


def test_error_bars_cover_new_graphs() -> None:
    net, report = taught(1000, noisy(1.0), QUICK.with_(max_graphs=512))
    new = lesson(torch.arange(2000, 2200), 1.0)
    with torch.no_grad():
        value, log_error = net(new.view)
    loss, error = net.losses(value, net.factor[1] * log_error.exp())
    within = (value - net.compressed(new.wanted)).abs() <= net.factor[1] * log_error.exp()
    assert 0.64 < float(within.float().mean()) < 0.8
    assert 0.64 < report.coverage < 0.8
    near = ((loss - new.wanted).abs() <= error).float().mean()  # bars of losses are first-order
    assert float(near) == pytest.approx(float(within.float().mean()), abs=0.1)


def test_one_in_ten_graphs_is_above_the_limit() -> None:
    net, report = taught(1000, noisy(1.0), QUICK.with_(epochs=3))
    new = lesson(torch.arange(2000, 2400), 1.0)
    with torch.no_grad():
        error = net.factor[1] * net(new.view)[1].exp()
    above = graph_error(error, new.view.graph, 400) > net.limit
    assert report.num_held_out == 52
    assert float(above.float().mean()) == pytest.approx(0.1, abs=0.09)


def test_compressed_losses_come_back() -> None:
    net = StudentNetwork(3, 0, 2)
    loss = torch.tensor([-3.0, 0.0, 0.1, 2.0, 40.0])
    nothing = torch.zeros(2, dtype=torch.long)
    net.standardise(
        BondView(torch.ones(2, 3), nothing, nothing[:0], torch.ones(2, 0), nothing), loss
    )
    value = net.compressed(loss)
    assert float(value.mean()) == pytest.approx(0, abs=1e-6)
    assert float(value.std(unbiased=False)) == pytest.approx(1)
    back, error = net.losses(value, torch.full_like(value, 1e-3))
    torch.testing.assert_close(back, loss, rtol=1e-5, atol=1e-5)
    slope = (net.losses(value + 1e-3, value)[0] - net.losses(value - 1e-3, value)[0]) / 2
    torch.testing.assert_close(error, slope, rtol=1e-3, atol=1e-5)


def test_equal_seeds_teach_equal_students() -> None:
    nets = [taught(100, config=QUICK.with_(epochs=2), seed=seed)[0] for seed in (0, 0, 1)]
    first, again, other = (net.last.weight for net in nets)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_too_few_graphs_and_wrong_settings_are_named() -> None:
    with pytest.raises(GraphError, match=r"at least 2 graphs with edges \(got 1\)"):
        taught(1)
    with pytest.raises(ConfigError, match="`max_graphs` must be a whole number"):
        TeachConfig(max_graphs=0)
