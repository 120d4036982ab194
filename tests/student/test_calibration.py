"""Ranks, overlaps and error bars by hand, and by SciPy."""

from __future__ import annotations

import pytest
import torch
from scipy.stats import spearmanr, t

from nicegnn.student.teaching import (
    COVERED,
    coverage,
    error_factor,
    error_factors,
    rank_correlation,
)

GRAPH = torch.arange(60).repeat_interleave(20)
LABEL = GRAPH % 2
#: Of normal errors, which the student expects to be half as large.
RATIO = 2 * torch.randn(1200, generator=torch.Generator().manual_seed(0)).abs()


def test_ranks_correlate_as_in_scipy() -> None:
    value, wanted = torch.randn(2, 60, generator=torch.Generator().manual_seed(0))
    for graph, found in enumerate(rank_correlation(value, wanted, GRAPH[:60], 3).tolist()):
        own = GRAPH[:60] == graph
        assert found == pytest.approx(spearmanr(value[own], wanted[own]).statistic, abs=1e-5)
    assert rank_correlation(value[:2], wanted[:2], GRAPH[:2], 1).isnan().all()  # two bonds


def test_factor_is_the_right_order_statistic() -> None:
    ratio = torch.arange(1.0, 10.0)  # of nine bonds
    assert error_factor(ratio, {1: 0.5}) == 5
    assert error_factor(ratio, {1: 0.9}) == 9
    assert error_factor(ratio, {1: 0.3, 2: 0.9}) == 4.5  # the third, or half of the ninth
    assert error_factor(ratio, {1: 0.5, 2: 0.9}) == 5


def test_calibrated_bars_cover_what_they_say() -> None:
    assert error_factor(RATIO) == pytest.approx(2, rel=0.1)
    for bars in (1, 2):
        assert coverage(RATIO, LABEL, GRAPH, bars, 2) == pytest.approx(COVERED[bars], abs=0.03)


def test_two_bars_cover_what_they_say_of_errors_with_long_tails() -> None:
    graph = torch.arange(400).repeat_interleave(20)
    ratio = torch.from_numpy(t(3).rvs(graph.numel(), random_state=0)).float().abs()
    alone = error_factor(ratio, {1: COVERED[1]})
    assert float((ratio <= 2 * alone).float().mean()) < 0.93  # one bar sets the factor
    assert coverage(ratio, graph % 2, graph, 2, 2) == pytest.approx(COVERED[2], abs=0.01)
    assert COVERED[1] < coverage(ratio, graph % 2, graph, 1, 2) < 0.82


def test_each_class_has_its_own_factor() -> None:
    ratio = torch.where(LABEL == 1, 3.0, 1.0) * RATIO
    factors = error_factors(ratio, LABEL, 3)
    assert factors.tolist()[:2] == pytest.approx([2, 6], rel=0.1)
    assert factors[2] == error_factor(ratio)  # of all
