"""Calibration of a classifier: how often it is right, and whether it is as sure as that."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Calibration:
    """How confident a classifier is and whether it is right as often as it says."""

    accuracy: float  # share of right predictions
    interval: tuple[float, float]  # 95% Wilson interval of the accuracy
    ece: float  # expected calibration error over equal bins of confidence
    mean_confidence: float  # mean probability of the predicted class
    histogram: list[float]  # share of predictions in each bin of confidence, from 1/C up to 1
    edges: list[float]  # borders of the bins


def calibration(probability: Tensor, label: Tensor, *, num_bins: int = 10) -> Calibration:
    r"""Measures accuracy and calibration of probabilities ``[G, C]`` for labels ``[G]``.

    .. math:: ECE = \sum_b \frac{n_b}{n} \, |acc_b - conf_b|

    Symbols: predictions in bin b by their confidence -> :math:`n_b`, their accuracy
    :math:`acc_b` and mean confidence :math:`conf_b`.
    """
    confidence, predicted = probability.double().cpu().max(1)
    right = (predicted == label.cpu()).double()
    number, lowest = right.numel(), 1 / probability.size(1)
    edges = torch.linspace(lowest, 1, num_bins + 1, dtype=torch.double)
    where = torch.bucketize(confidence, edges[1:-1])
    count = torch.bincount(where, minlength=num_bins).double()
    gap = torch.zeros(num_bins, dtype=torch.double).index_add(0, where, right - confidence)
    return Calibration(
        accuracy=float(right.mean()),
        interval=wilson_interval(int(right.sum()), number),
        ece=float(gap.abs().sum() / number),
        mean_confidence=float(confidence.mean()),
        histogram=(count / number).tolist(),
        edges=edges.tolist(),
    )


def wilson_interval(hits: int, number: int, z: float = 1.96) -> tuple[float, float]:
    r"""Returns the Wilson score interval of a proportion, which holds near 0 and 1 too.

    .. math:: \frac{p + \frac{z^2}{2n} \pm z \sqrt{\frac{p(1-p)}{n} + \frac{z^2}{4n^2}}}
        {1 + z^2/n}

    Example:
        >>> [round(value, 4) for value in wilson_interval(177, 177)]
        [0.9788, 1.0]
    """
    p = hits / number
    middle = p + z**2 / (2 * number)
    half = z * math.sqrt(p * (1 - p) / number + z**2 / (4 * number**2))
    scale = 1 + z**2 / number
    return max(0.0, (middle - half) / scale), min(1.0, (middle + half) / scale)
