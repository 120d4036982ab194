"""Agreement with known true explanations, per graph and batched."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from nicegnn.graphs import rank_within


@dataclass(frozen=True)
class GroundTruthScores:
    """Agreement of each graph's scores with its true items; nan where undefined, ``[B]`` each.

    Attributes:
        roc_auc: chance that a true item is ranked above a false one; nan if one kind is missing.
        precision: share of true items among the selected; nan without items.
        recall: share of the true items that are selected; nan without true items.
        f1: harmonic mean of both; 0 if nothing true is selected, nan without true items.
    """

    roc_auc: Tensor
    precision: Tensor
    recall: Tensor
    f1: Tensor


def ground_truth_scores(
    score: Tensor, truth: Tensor, batch: Tensor, num_graphs: int, *, top: float = 0.3
) -> GroundTruthScores:
    """Compares scores of edges or bonds with what is true, graph by graph.

    Args:
        score: higher is more important, ``[M]``.
        truth: bool, ``[M]``.
        batch: graph of each item, ``[M]``.
        top: share of a graph's items that is selected, rounded, at least one.
    """
    selected = select_top(score, batch, num_graphs, top).double()
    hit = _sum(selected * truth, batch, num_graphs)
    chosen = _sum(selected, batch, num_graphs)
    true = _sum(truth.double(), batch, num_graphs)
    precision, recall = hit / chosen, hit / true  # 0 / 0 is nan
    f1 = torch.where(true > 0, 2 * hit / (chosen + true), torch.nan)
    return GroundTruthScores(roc_auc(score, truth, batch, num_graphs), precision, recall, f1)


def roc_auc(score: Tensor, truth: Tensor, batch: Tensor, num_graphs: int) -> Tensor:
    r"""Returns the area under the ROC curve of each graph, ``[B]``; ties count half.

    .. math:: AUC = \frac{\sum_{i \in true} r_i - n_1 (n_1 + 1) / 2}{n_1 n_0}

    Symbols: :math:`r_i` -> mean rank of item i among the items of its graph; :math:`n_1, n_0` ->
    numbers of true and false items.

    Example:
        >>> score, truth = torch.tensor([0.9, 0.1, 0.5, 0.5]), torch.tensor([1, 0, 1, 0]).bool()
        >>> roc_auc(score, truth, torch.zeros(4, dtype=torch.long), 1).tolist()
        [0.875]
    """
    rank = _mean_ranks(score, batch, num_graphs)
    number = _sum(torch.ones_like(rank), batch, num_graphs)
    true = _sum(truth.double(), batch, num_graphs)
    total = _sum(rank * truth, batch, num_graphs)
    return (total - true * (true + 1) / 2) / (true * (number - true))  # 0 / 0 is nan


def select_top(score: Tensor, batch: Tensor, num_graphs: int, top: float) -> Tensor:
    """Returns which items are among the best `top` of their graph, ``[M]``; first of equals."""
    number = torch.bincount(batch, minlength=num_graphs)
    wanted = (number * top).round().long().clamp(min=1)
    return rank_within(score, batch, num_graphs) < wanted[batch]


def _mean_ranks(score: Tensor, batch: Tensor, num_graphs: int) -> Tensor:
    """Returns ranks from 1 within each graph, equal scores sharing their mean rank, float64."""
    by_score = score.argsort(stable=True)
    order = by_score[batch[by_score].argsort(stable=True)]  # by graph, lowest first
    number = torch.bincount(batch, minlength=num_graphs)
    start = (number.cumsum(0) - number)[batch[order]]
    position = torch.arange(batch.numel(), device=batch.device) - start + 1
    new = torch.ones_like(position, dtype=torch.bool)
    new[1:] = (score[order][1:] != score[order][:-1]) | (batch[order][1:] != batch[order][:-1])
    group = new.long().cumsum(0) - 1
    size = torch.bincount(group).clamp(min=1)
    mean = torch.zeros(size.numel(), dtype=torch.double, device=score.device)
    mean = mean.index_add(0, group, position.double()) / size
    rank = torch.empty(batch.numel(), dtype=torch.double, device=score.device)
    rank[order] = mean[group]
    return rank


def _sum(value: Tensor, batch: Tensor, num_graphs: int) -> Tensor:
    return torch.zeros(num_graphs, dtype=value.dtype, device=value.device).index_add(
        0, batch, value
    )
