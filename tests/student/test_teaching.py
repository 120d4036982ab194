"""Teaching on lessons whose answer is known."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from nicegnn.errors import ConfigError, GraphError
from nicegnn.student.network import BondView
from nicegnn.student.teaching import Lesson, TeachConfig, TeachReport, teach_rounds

QUICK = TeachConfig(
    first_graphs=64, growth=2, max_graphs=512, epochs=30, hidden_size=16, num_rounds=0, enough=0.9
)
SIZE = 8  # bonds of each graph, a ring


def lesson(chosen: Tensor, noise: float = 0.0) -> Lesson:
    """Returns rings whose bonds score what their ends hold; graph ``g`` is the same always."""
    parts = []
    for graph in chosen.tolist():
        generator = torch.Generator().manual_seed(graph)
        state = torch.randn(SIZE, 3, generator=generator)
        wanted = state[:, 0] + state[:, 0].roll(-1)
        wanted = wanted + noise * torch.randn(SIZE, generator=generator)
        parts.append((state, (wanted - wanted.mean()) / wanted.std(correction=0)))
    node = torch.arange(SIZE * chosen.numel())
    home = node // SIZE
    view = BondView(
        state=torch.cat([state for state, _ in parts]),
        home=home,
        ends=torch.stack([node, SIZE * home + (node + 1) % SIZE]),
        graph=home,
        edge=torch.zeros(node.numel(), 0),
        label=torch.ones_like(chosen),
    )
    wanted = torch.cat([wanted for _, wanted in parts])
    reached = torch.ones_like(node, dtype=torch.bool)
    return Lesson(view, wanted, torch.full((chosen.numel(),), 2.0), reached, 3)


def taught(num_graphs: int, noise: float = 0.0, config: TeachConfig = QUICK) -> list[TeachReport]:
    rounds = teach_rounds(
        lambda some: lesson(some, noise),
        num_graphs,
        config,
        is_ordered=False,
        seed=0,
        progress=False,
    )
    return [report for _, report in rounds]


def test_a_simple_rule_is_learned_and_teaching_stops() -> None:
    reports = taught(1000)
    assert reports[-1].stopped == "good"
    assert reports[-1].num_graphs < 512
    assert reports[-1].rank_correlation > 0.9
    assert reports[-1].num_held_out == pytest.approx(0.2 * reports[-1].num_graphs, abs=1)
    assert [one["graphs"] for one in reports[-1].history] == [64, 128, 256][: len(reports)]


def test_teaching_goes_on_while_one_class_is_not_ranked_well() -> None:
    def mixed(chosen: Tensor) -> Lesson:
        """Every fourth graph is of another class, whose scores are noise."""
        plain, is_other = lesson(chosen), chosen % 4 == 0
        wanted = torch.where(is_other[plain.view.graph], lesson(chosen, 50.0).wanted, plain.wanted)
        view = replace(plain.view, label=1 + is_other.long())
        return replace(plain, view=view, wanted=wanted)

    config = QUICK.with_(first_graphs=256, enough=0.6)
    words = {"is_ordered": False, "seed": 0, "progress": False}
    reports = [report for _, report in teach_rounds(mixed, 1000, config, **words)]
    assert max(one["rank_correlation"] for one in reports[-1].history) > config.enough
    assert reports[-1].rank_correlation_worst < 0.4
    assert reports[-1].stopped in ("no-gain", "most-graphs")


def test_error_bars_cover_new_graphs() -> None:
    (*_, last) = teach_rounds(
        lambda some: lesson(some, 1.0), 1000, QUICK, is_ordered=False, seed=0, progress=False
    )
    net, report = last
    new = lesson(torch.arange(2000, 2100), 1.0)
    with torch.no_grad():
        value, log_error = net(new.view)
    within = (value - new.wanted).abs() <= net.factor[1] * log_error.exp()
    assert float(within.float().mean()) == pytest.approx(0.683, abs=0.06)
    assert report.coverage == pytest.approx(0.683, abs=0.06)
    assert net.taught.tolist() == [False, True, False]


def test_the_reason_to_stop_is_told() -> None:
    assert taught(80, 1.0)[-1].stopped == "all-graphs"
    assert taught(1000, 1.0, QUICK.with_(max_graphs=64))[-1].stopped == "most-graphs"
    assert taught(1000, 9.0, QUICK.with_(least_gain=0.5))[-1].stopped == "no-gain"


def test_reports_come_back_from_plain_values() -> None:
    report = taught(80)[-1]
    assert TeachReport.from_dict(report.to_dict()) == report


def test_too_few_graphs_and_wrong_settings_are_named() -> None:
    with pytest.raises(GraphError, match="at least 2 graphs with edges \\(got 1\\)"):
        taught(1)
    with pytest.raises(ConfigError, match="`max_graphs` must be at least `first_graphs`"):
        TeachConfig(max_graphs=10)
