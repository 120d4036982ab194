"""Ranks, overlaps and error bars by hand, and by SciPy."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from scipy.stats import spearmanr, t

from nicegnn.student.calibration import (
    COVERED,
    Answers,
    coverage,
    error_factor,
    error_factors,
    graph_error,
    judge,
    rank_correlation,
)

LABEL = torch.zeros(1, dtype=torch.long)


def some_answers(num_graphs: int = 60, size: int = 20) -> Answers:
    """Returns answers with normal errors, which the student expects to be half as large."""
    generator = torch.Generator().manual_seed(0)
    graph = torch.arange(num_graphs).repeat_interleave(size)
    wanted, noise = torch.randn(2, graph.numel(), generator=generator)
    error = 0.1 + 0.02 * graph  # graph 0 is the best known
    return Answers(wanted + error * noise, error / 2, wanted, graph, torch.arange(num_graphs) % 2)


def test_ranks_correlate_as_in_scipy() -> None:
    answers = some_answers(3)
    for graph, found in enumerate(rank_correlation(answers).tolist()):
        own = answers.graph == graph
        expected = spearmanr(answers.value[own], answers.wanted[own]).statistic
        assert found == pytest.approx(expected, abs=1e-5)


def test_two_bonds_have_no_rank_correlation() -> None:
    two = torch.tensor([1.0, 2.0])
    assert rank_correlation(Answers(two, two, two, torch.zeros(2).long(), LABEL)).isnan().all()


def test_factor_is_the_right_order_statistic() -> None:
    error = torch.arange(1.0, 10.0)  # of nine bonds, expected to be 1
    answers = Answers(error, torch.ones(9), torch.zeros(9), torch.zeros(9).long(), LABEL)
    assert error_factor(answers, {1: 0.5}) == 5
    assert error_factor(answers, {1: 0.9}) == 9
    assert error_factor(answers, {1: 0.3, 2: 0.9}) == 4.5  # the third, or half of the ninth
    assert error_factor(answers, {1: 0.5, 2: 0.9}) == 5


def test_calibrated_bars_cover_what_they_say() -> None:
    answers = some_answers()
    assert error_factor(answers) == pytest.approx(2, rel=0.1)
    assert coverage(answers, 1, 2) == pytest.approx(COVERED[1], abs=0.03)
    assert coverage(answers, 2, 2) == pytest.approx(COVERED[2], abs=0.02)


def test_two_bars_cover_what_they_say_of_errors_with_long_tails() -> None:
    answers = some_answers(num_graphs=400)
    noise = torch.from_numpy(t(3).rvs(answers.graph.numel(), random_state=0)).float()
    answers = replace(answers, value=answers.wanted + answers.error * noise)
    alone = error_factor(answers, {1: COVERED[1]})
    assert float((noise.abs() <= 2 * alone).float().mean()) < 0.93  # one bar sets the factor
    assert coverage(answers, 2, 2) == pytest.approx(COVERED[2], abs=0.01)
    assert COVERED[1] < coverage(answers, 1, 2) < 0.82


def test_each_class_has_its_own_factor() -> None:
    answers = some_answers()
    worse = torch.where(answers.label[answers.graph] == 1, 3.0, 1.0)
    value = answers.wanted + worse * (answers.value - answers.wanted)
    factors = error_factors(replace(answers, value=value), 3)
    assert factors.tolist()[:2] == pytest.approx([2, 6], rel=0.1)
    assert factors[2] == error_factor(replace(answers, value=value))  # of all


def test_the_asked_share_of_graphs_is_above_the_limit() -> None:
    answers = some_answers()
    factors, limit, numbers = judge(answers, sent=0.25, num_labels=2)
    error = factors[answers.label[answers.graph]] * answers.error
    error = graph_error(error, answers.graph, answers.label.numel())
    assert int((error > limit).sum()) == 15
    ranks = rank_correlation(answers)
    assert numbers["rank_correlation"] == pytest.approx(float(ranks.mean()))
