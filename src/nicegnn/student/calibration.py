"""Judges a student on held-out graphs, and makes its error bars cover what they say."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType

import torch
from torch import Tensor

from nicegnn.graph.case import rank_within

#: Share of the bonds that a number of bars must cover: 0.683 and 0.954, as for a normal error.
COVERED: Mapping[int, float] = MappingProxyType(
    {bars: math.erf(bars / math.sqrt(2)) for bars in (1, 2)}
)
_FEWEST = 100  # bonds of a class, to have its own factor


def error_factor(ratio: Tensor, covered: Mapping[int, float] = COVERED) -> float:
    r"""Returns the factor that makes one error bar, and two, cover at least a share of the bonds.

    .. math:: c = \max_k \frac{1}{k}\, r_{(\lceil (M + 1)\, q_k \rceil)}, \qquad
        r_e = |v_e - w_e| / \sigma_e

    Symbols: :math:`r` -> ``ratio``, ``[M]``, of a bond's error to the one that the student expects;
    :math:`r_{(n)}` -> the n-th smallest; :math:`q_k` -> ``covered``, of :math:`k` bars. This is
    split-conformal calibration: bars of new graphs cover that share on average, whatever the
    network says, if they are like the held-out ones. Errors have longer tails than a normal one: a
    factor for one bar alone let two bars cover 92 to 95 % instead of 95.4 %.
    """
    num = ratio.numel()
    if num == 0:
        return 1.0
    places = {bars: min(math.ceil((num + 1) * share), num) for bars, share in covered.items()}
    return max(float(ratio.kthvalue(place).values) / bars for bars, place in places.items())


def error_factors(ratio: Tensor, label: Tensor, num_labels: int) -> Tensor:
    """Returns the factor for each class, ``[C + 1]``; that of all for classes with few bonds.

    ``label`` is the class of each bond's graph, ``[M]``.
    """
    factors = torch.full((num_labels,), error_factor(ratio)).to(ratio)
    for one, number in enumerate(torch.bincount(label).tolist()):
        if number >= _FEWEST:
            factors[one] = error_factor(ratio[label == one])
    return factors


def coverage(ratio: Tensor, label: Tensor, graph: Tensor, bars: float, num_labels: int) -> float:
    """Returns the share of bonds within some error bars, each half calibrated on the other."""
    shares = []
    for half in (graph % 2 == 0, graph % 2 == 1):
        factors = error_factors(ratio[~half], label[~half], num_labels)
        shares.append((ratio[half] <= bars * factors[label[half]]).float().mean())
    return float(torch.stack(shares).nanmean())


def graph_error(error: Tensor, graph: Tensor, num_graphs: int) -> Tensor:
    """Returns the root mean square of the bonds' errors in each graph, 0 without bonds, ``[B]``."""
    total = error.new_zeros(num_graphs).index_add(0, graph, error.square())
    return (total / torch.bincount(graph, minlength=num_graphs).clamp(min=1)).sqrt()


def rank_correlation(value: Tensor, wanted: Tensor, graph: Tensor, num_graphs: int) -> Tensor:
    r"""Returns Spearman's rank correlation of two values of bonds in each graph, ``[B]``.

    .. math:: 1 - \frac{6 \sum_e d_e^2}{n (n^2 - 1)}

    Symbols: :math:`d` -> difference of ranks; :math:`n` -> bonds of the graph, nan for less than 3.
    """
    ranks = [rank_within(one, graph, num_graphs) for one in (value, wanted)]
    squared = (ranks[0] - ranks[1]).square().to(value.dtype)
    total = squared.new_zeros(num_graphs).index_add(0, graph, squared)
    n = torch.bincount(graph, minlength=num_graphs).to(total)
    return torch.where(n < 3, torch.nan, 1 - 6 * total / (n * (n.square() - 1)).clamp(min=1))
