"""How sure a mean over graphs is, whether two methods differ, and which rank a method has."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module

import torch
from torch import Tensor

from nicegnn.metrics.errors import MetricError
from nicegnn.metrics.metric import Metric, get_metric
from nicegnn.metrics.ranking import mean_ranks
from nicegnn.seeding import mix

_CHUNK = 4_000_000  # numbers drawn at a time


@dataclass(frozen=True)
class Interval:
    """A mean with a confidence interval.

    Attributes:
        mean: over the graphs with a value; nan if there is none.
        low: lower end.
        high: upper end.
        num: graphs with a value.
    """

    mean: float
    low: float
    high: float
    num: int


@dataclass(frozen=True)
class PairedTest:
    """Comparison of two methods on the same graphs.

    Attributes:
        difference: mean of first minus second, with its bootstrap interval over graphs.
        p_value: of the Wilcoxon signed-rank test, two-sided; 1 if no graph differs, nan without
            graphs.
        num_different: graphs on which the two differ.
    """

    difference: Interval
    p_value: float
    num_different: int


def bootstrap_mean(
    value: Tensor, *, level: float = 0.95, num_resamples: int = 10_000, seed: int = 0
) -> Interval:
    r"""Returns the mean over graphs and its percentile bootstrap interval.

    .. math:: \Big[ Q_{(1 - c) / 2}(\bar v^*), \; Q_{(1 + c) / 2}(\bar v^*) \Big], \qquad
        \bar v^* = \tfrac1B \textstyle\sum_{i=1}^B v_{J_i}, \; J_i \sim \mathrm{Unif}\{1..B\}

    Symbols: :math:`v` -> ``value``, ``[B]``, nan being left out; :math:`c` -> ``level``; :math:`Q`
    -> quantile over resamples.
    """
    if not 0 < level < 1:
        raise MetricError(f"`level` must lie between 0 and 1 (got {level!r}).")
    known = value.detach().double().cpu().view(-1)
    known = known[~torch.isnan(known)]
    if known.numel() == 0:
        return Interval(torch.nan, torch.nan, torch.nan, 0)
    means = torch.cat(list(_resampled_means(known, num_resamples, seed)))
    ends = torch.tensor([(1 - level) / 2, (1 + level) / 2], dtype=torch.double)
    low, high = means.quantile(ends).tolist()
    return Interval(float(known.mean()), low, high, known.numel())


def paired_test(
    first: Tensor,
    second: Tensor,
    *,
    level: float = 0.95,
    num_resamples: int = 10_000,
    seed: int = 0,
) -> PairedTest:
    """Compares two methods graph by graph: mean difference, interval, Wilcoxon's p-value.

    Graphs on which either has no value are left out.

    Args:
        first: values of one method, ``[B]``.
        second: values of the other on the same graphs, ``[B]``.
    """
    if first.shape != second.shape:
        raise MetricError(
            "`first` and `second` must hold the same graphs (got shapes "
            f"{tuple(first.shape)} and {tuple(second.shape)})."
        )
    difference = first.detach().double().cpu() - second.detach().double().cpu()
    difference = difference[~torch.isnan(difference)]
    interval = bootstrap_mean(difference, level=level, num_resamples=num_resamples, seed=seed)
    different = difference[difference != 0]
    return PairedTest(interval, _wilcoxon(difference, different), different.numel())


def holm(p_values: Sequence[float]) -> list[float]:
    r"""Returns p-values adjusted for several tests by Holm's step-down method.

    .. math:: \tilde p_{(i)} = \min\big(1, \max_{j \le i} (m - j + 1)\, p_{(j)} \big)

    Symbols: :math:`p_{(i)}` -> i-th smallest of ``p_values``; :math:`m` -> their number. A nan
    stays nan and does not count as a test.

    Example:
        >>> holm([0.01, 0.04, 0.03])
        [0.03, 0.06, 0.06]
    """
    adjusted, largest = [torch.nan] * len(p_values), 0.0
    tested = sorted((p, place) for place, p in enumerate(p_values) if p == p)  # without nan
    for position, (p, place) in enumerate(tested):
        largest = max(largest, min(1.0, (len(tested) - position) * p))
        adjusted[place] = largest
    return adjusted


def average_ranks(table: Tensor, columns: Sequence[str | Metric]) -> Tensor:
    r"""Returns the mean rank of each method over columns, 1 being best, ``[K]``.

    .. math:: \bar R_k = \tfrac1{|C_k|} \textstyle\sum_{c \in C_k} \mathrm{rank}_c(k)

    Symbols: :math:`\mathrm{rank}_c(k)` -> rank of method k among the methods with a value in column
    c, equals sharing the mean rank; :math:`C_k` -> columns in which method k has a value.

    Args:
        table: methods by columns, ``[K, C]``, nan where there is no value.
        columns: metric of each column, which says whether high or low is better.
    """
    if table.dim() != 2 or table.size(1) != len(columns):
        raise MetricError(
            f"`table` must have one column per metric, {len(columns)} (got {tuple(table.shape)})."
        )
    signs = []
    for column in columns:
        metric = get_metric(column) if isinstance(column, str) else column
        if metric.higher_is_better is None:
            raise MetricError(f"Metric {metric.name!r} has no better end; leave its column out.")
        signs.append(-1.0 if metric.higher_is_better else 1.0)
    known = ~torch.isnan(table)
    worth = table.double() * torch.tensor(signs, dtype=torch.double, device=table.device)
    column_of = torch.arange(len(columns), device=table.device).expand_as(table)[known]
    rank = torch.full_like(worth, torch.nan)
    rank[known] = mean_ranks(worth[known], column_of, len(columns))
    return rank.nanmean(1)


def _resampled_means(value: Tensor, num_resamples: int, seed: int) -> Iterator[Tensor]:
    """Yields means of resamples, so many at a time that memory stays bounded."""
    generator = torch.Generator().manual_seed(mix(seed, "bootstrap"))
    num, step = value.numel(), max(1, _CHUNK // value.numel())
    for first in range(0, num_resamples, step):
        shape = (min(step, num_resamples - first), num)
        yield value[torch.randint(num, shape, generator=generator)].mean(1)


def _wilcoxon(difference: Tensor, different: Tensor) -> float:
    if difference.numel() == 0:
        return torch.nan
    if different.numel() == 0:
        return 1.0
    wilcoxon = import_module("scipy.stats").wilcoxon  # scipy comes with scikit-learn
    return float(wilcoxon(different.numpy()).pvalue)
