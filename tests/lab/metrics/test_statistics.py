"""Intervals and tests: hand numbers, scipy, and coverage by simulation."""

from __future__ import annotations

import math

import pytest
import torch
from scipy import stats

from nicegnn_lab.metrics.statistics import bootstrap_mean, holm, paired_test


def normal(num: int, seed: int) -> torch.Tensor:
    return torch.randn(num, generator=torch.Generator().manual_seed(seed), dtype=torch.double)


def test_interval_equals_scipys_percentile_bootstrap() -> None:
    value = normal(200, 0).exp()
    found = bootstrap_mean(value, num_resamples=20_000)
    expected = stats.bootstrap(
        (value.numpy(),), lambda v, axis: v.mean(axis=axis), method="percentile", rng=0
    ).confidence_interval
    width = expected.high - expected.low
    assert found.mean == pytest.approx(float(value.mean()))
    assert found.low == pytest.approx(expected.low, abs=0.05 * width)
    assert found.high == pytest.approx(expected.high, abs=0.05 * width)


def test_undefined_graphs_are_left_out_of_the_mean() -> None:
    found = bootstrap_mean(torch.tensor([1.0, torch.nan, 3.0]))
    assert (found.mean, found.num) == (2.0, 2)
    assert (found.low, found.high) == (1.0, 3.0)
    nothing = bootstrap_mean(torch.tensor([torch.nan]))
    assert nothing.num == 0
    assert math.isnan(nothing.mean)


def test_paired_test_equals_scipy() -> None:
    first, second = normal(80, 2) + 0.3, normal(80, 3)
    first[5], second[7], second[9] = torch.nan, torch.nan, first[9]
    found = paired_test(first, second)
    known = ~torch.isnan(first - second)
    expected = stats.wilcoxon(first[known].numpy(), second[known].numpy())
    assert found.p_value == pytest.approx(float(expected.pvalue))
    assert found.mean == pytest.approx(float((first - second)[known].mean()))
    assert found.num == 78


def test_equal_methods_do_not_differ() -> None:
    value = normal(20, 4)
    found = paired_test(value, value)
    assert found.p_value == 1.0
    assert (found.low, found.high) == (0.0, 0.0)
    assert math.isnan(paired_test(torch.tensor([torch.nan]), torch.ones(1)).p_value)


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.7]) == [1.0, 1.0]
    assert holm([]) == []
    adjusted = holm([0.01, math.nan, 0.04])
    assert adjusted[0] == 0.02
    assert math.isnan(adjusted[1])
    assert adjusted[2] == 0.04
