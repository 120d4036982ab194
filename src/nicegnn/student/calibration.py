"""Judges a student on held-out graphs, and makes its error bars cover what they say."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

import torch
from torch import Tensor

from nicegnn.graph.case import rank_within

#: Share of the bonds that a number of bars must cover: 0.683 and 0.954, as for a normal error.
COVERED: Mapping[int, float] = MappingProxyType(
    {bars: math.erf(bars / math.sqrt(2)) for bars in (1, 2)}
)
_FEWEST = 100  # bonds of a class, to have its own factor


@dataclass(frozen=True)
class Answers:
    """What a student says about the reached bonds of held-out graphs, and what its teacher says."""

    value: Tensor  # by the student, [M]
    error: Tensor  # that the student expects, before calibration, [M]
    wanted: Tensor  # by the teacher, [M]
    graph: Tensor  # graph of each bond, [M]
    label: Tensor  # class that is explained, see `BondView`, [B]

    def of(self, graphs: Tensor) -> Answers:
        """Returns the answers about some graphs, bool ``[B]``; the numbers of graphs stay."""
        chosen = graphs[self.graph]
        columns = {name: getattr(self, name)[chosen] for name in ("value", "error", "wanted")}
        return replace(self, graph=self.graph[chosen], **columns)


def error_factor(answers: Answers, covered: Mapping[int, float] = COVERED) -> float:
    r"""Returns the factor that makes one error bar, and two, cover at least a share of the bonds.

    .. math:: c = \max_k \frac{1}{k}\, r_{(\lceil (M + 1)\, q_k \rceil)}, \qquad
        r_e = |v_e - w_e| / \sigma_e

    Symbols: :math:`v, w, \sigma` -> ``value``, ``wanted``, ``error``; :math:`r_{(n)}` -> the n-th
    smallest ratio; :math:`q_k` -> ``covered``, of :math:`k` bars. This is split-conformal
    calibration: bars of new graphs cover that share on average, whatever the network says, if they
    are like the held-out ones. Errors have longer tails than a normal one: a factor for one bar
    alone let two bars cover 92 to 95 % instead of 95.4 %, so the larger factor is taken.
    """
    ratio, num = (answers.value - answers.wanted).abs() / answers.error, answers.value.numel()
    if num == 0:
        return 1.0
    places = {bars: min(math.ceil((num + 1) * share), num) for bars, share in covered.items()}
    return max(float(ratio.kthvalue(place).values) / bars for bars, place in places.items())


def error_factors(answers: Answers, num_labels: int) -> Tensor:
    """Returns the factor for each class, ``[C + 1]``; that of all for classes with few bonds."""
    factors = torch.full((num_labels,), error_factor(answers)).to(answers.value)
    for label in torch.unique(answers.label).tolist():
        of_label = answers.of(answers.label == label)
        if of_label.value.numel() >= _FEWEST:
            factors[label] = error_factor(of_label)
    return factors


def coverage(answers: Answers, bars: float, num_labels: int) -> float:
    """Returns the share of bonds within some error bars, each half calibrated on the other."""
    is_even = torch.arange(answers.label.numel(), device=answers.label.device) % 2 == 0
    shares = []
    for half in (is_even, ~is_even):
        judged, factors = answers.of(half), error_factors(answers.of(~half), num_labels)
        limit = bars * factors[judged.label[judged.graph]] * judged.error
        shares.append(((judged.value - judged.wanted).abs() <= limit).float().mean())
    return float(torch.stack(shares).nanmean())


def graph_error(error: Tensor, graph: Tensor, num_graphs: int) -> Tensor:
    """Returns the root mean square of the bonds' errors in each graph, 0 without bonds, ``[B]``."""
    both = torch.stack([error.square(), torch.ones_like(error)], dim=1)
    total, count = both.new_zeros(num_graphs, 2).index_add(0, graph, both).unbind(1)
    return (total / count.clamp(min=1)).sqrt()


def rank_correlation(answers: Answers) -> Tensor:
    r"""Returns Spearman's rank correlation of student and teacher in each graph, ``[B]``.

    .. math:: 1 - \frac{6 \sum_e d_e^2}{n (n^2 - 1)}

    Symbols: :math:`d` -> difference of ranks; :math:`n` -> bonds of the graph, nan for less than 3.
    """
    graph, num = answers.graph, answers.label.numel()
    ranks = [rank_within(value, graph, num) for value in (answers.value, answers.wanted)]
    squared = (ranks[0] - ranks[1]).square().to(answers.value.dtype)
    total = squared.new_zeros(num).index_add(0, graph, squared)
    n = torch.bincount(graph, minlength=num).to(total)
    return torch.where(n < 3, torch.nan, 1 - 6 * total / (n * (n.square() - 1)).clamp(min=1))


def judge(answers: Answers, sent: float, num_labels: int) -> tuple[Tensor, float, dict[str, float]]:
    """Returns factors of error bars, the limit of a graph's error, and numbers for the report.

    ``sent`` is the share of the held-out graphs whose error is above the limit.
    """
    factors = error_factors(answers, num_labels)  # [C + 1]
    error = factors[answers.label[answers.graph]] * answers.error
    whole = graph_error(error, answers.graph, answers.label.numel())  # [B]
    return (
        factors,
        float(torch.quantile(whole.double(), 1 - sent)),
        {
            "rank_correlation": float(rank_correlation(answers).nanmean()),
            "coverage": coverage(answers, 1, num_labels),
            "coverage_twice": coverage(answers, 2, num_labels),
        },
    )
