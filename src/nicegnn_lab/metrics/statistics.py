"""Confidence intervals of means over graphs, and tests of two methods."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from nicegnn.seeding import mix

_CHUNK = 4_000_000  # numbers drawn at a time


@dataclass(frozen=True)
class Interval:
    """A mean with the ends of its confidence interval; nan if no graph has a value."""

    mean: float
    low: float
    high: float
    num: int  # graphs with a value
    p_value: float = torch.nan  # of `paired_test`: 1 if no graph differs, nan without graphs


def bootstrap_mean(value: Tensor, num_resamples: int = 10_000) -> Interval:
    r"""Returns the mean over graphs and its percentile bootstrap interval of 95 percent.

    .. math:: \big[ Q_{0.025}(\bar v^*), \; Q_{0.975}(\bar v^*) \big], \qquad
        \bar v^* = \tfrac1B \textstyle\sum_{i=1}^B v_{J_i}, \; J_i \sim \mathrm{Unif}\{1..B\}

    Symbols: :math:`v` -> ``value`` without nan, ``[B]``; :math:`Q` -> quantile over resamples.
    """
    values = value.detach().double().cpu().view(-1)
    values = values[~torch.isnan(values)]
    num = values.numel()
    if num == 0:
        return Interval(torch.nan, torch.nan, torch.nan, 0)
    generator = torch.Generator().manual_seed(mix(0, "bootstrap"))
    parts = torch.split(torch.arange(num_resamples), max(1, _CHUNK // num))  # to bound memory
    drawn = (torch.randint(num, (len(part), num), generator=generator) for part in parts)
    means = torch.cat([values[places].mean(1) for places in drawn])
    ends = torch.tensor([(1 - 0.95) / 2, (1 + 0.95) / 2], dtype=torch.double)
    low, high = means.quantile(ends).tolist()
    return Interval(float(values.mean()), low, high, num)


def paired_test(first: Tensor, second: Tensor, *, num_resamples: int = 10_000) -> Interval:
    """Compares two methods graph by graph, ``[B]`` each; leaves out graphs with nan in either.

    The mean is of first minus second; the p-value is of the two-sided signed-rank test.
    """
    from scipy.stats import wilcoxon  # slow to import

    difference = first.detach().double().cpu() - second.detach().double().cpu()
    interval = bootstrap_mean(difference, num_resamples)
    different = difference[~torch.isnan(difference) & (difference != 0)]
    if different.numel():
        return replace(interval, p_value=float(wilcoxon(different.numpy()).pvalue))
    return replace(interval, p_value=1.0 if interval.num else torch.nan)


def holm(p_values: Sequence[float]) -> list[float]:
    r"""Returns p-values adjusted for several tests by Holm's step-down method.

    .. math:: \tilde p_{(i)} = \min\big(1, \max_{j \le i} (m - j + 1)\, p_{(j)} \big)

    Symbols: :math:`p_{(i)}` -> i-th smallest of ``p_values``; :math:`m` -> their number. A nan
    stays nan and is not counted.
    """
    adjusted, largest = [torch.nan] * len(p_values), 0.0
    tested = sorted((p, place) for place, p in enumerate(p_values) if p == p)  # without nan
    for position, (p, place) in enumerate(tested):
        largest = max(largest, min(1.0, (len(tested) - position) * p))
        adjusted[place] = largest
    return adjusted
