"""Agreement with known true explanations, per graph and batched."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from nicegnn.metrics.ranking import below_and_equal, graph_sum, mean_ranks, select_top


@dataclass(frozen=True)
class GroundTruthScores:
    """Agreement of each graph's scores with its true items; nan where undefined, ``[B]`` each.

    Attributes:
        roc_auc: chance that a true item is ranked above a false one; nan if one kind is missing.
        average_precision: precision at each true item's score, averaged; nan without true items.
        precision: share of true items among the selected; nan without items.
        recall: share of the true items that are selected; nan without true items.
        f1: harmonic mean of both; 0 if nothing true is selected, nan without true items.
    """

    roc_auc: Tensor
    average_precision: Tensor
    precision: Tensor
    recall: Tensor
    f1: Tensor


def ground_truth_scores(
    score: Tensor,
    truth: Tensor,
    batch: Tensor,
    num_graphs: int,
    *,
    top: float = 0.3,
    tie: Tensor | None = None,
) -> GroundTruthScores:
    r"""Compares scores of edges or bonds with what is true, graph by graph.

    .. math:: P = \frac{|S \cap T|}{|S|}, \qquad R = \frac{|S \cap T|}{|T|}, \qquad
        F_1 = \frac{2 |S \cap T|}{|S| + |T|}

    Symbols: :math:`S` -> ``selected``, the best share ``top`` of a graph's items, ``[M]``;
    :math:`T` -> ``truth``, bool ``[M]``.

    Args:
        score: higher is more important, ``[M]``.
        batch: graph of each item, ``[M]``.
        top: share of a graph's items that is selected, rounded, at least one.
        tie: order among equal scores, ``[M]``; by default random, see `select_top`.
    """
    selected = select_top(score, batch, num_graphs, top, tie=tie).double()
    hit = graph_sum(selected * truth, batch, num_graphs)
    chosen = graph_sum(selected, batch, num_graphs)
    true = graph_sum(truth.double(), batch, num_graphs)
    return GroundTruthScores(
        roc_auc=roc_auc(score, truth, batch, num_graphs),
        average_precision=average_precision(score, truth, batch, num_graphs),
        precision=hit / chosen,  # 0 / 0 is nan
        recall=hit / true,
        f1=torch.where(true > 0, 2 * hit / (chosen + true), torch.nan),
    )


def roc_auc(score: Tensor, truth: Tensor, batch: Tensor, num_graphs: int) -> Tensor:
    r"""Returns the area under the ROC curve of each graph, ``[B]``; ties count half.

    .. math:: AUC = \frac{\sum_{i \in T} r_i - n_1 (n_1 + 1) / 2}{n_1 n_0}

    Symbols: :math:`r_i` -> mean rank of item i among the items of its graph; :math:`T` ->
    ``truth``, bool ``[M]``; :math:`n_1, n_0` -> numbers of true and false items.

    Example:
        >>> score, truth = torch.tensor([0.9, 0.1, 0.5, 0.5]), torch.tensor([1, 0, 1, 0]).bool()
        >>> roc_auc(score, truth, torch.zeros(4, dtype=torch.long), 1).tolist()
        [0.875]
    """
    rank = mean_ranks(score, batch, num_graphs)
    number = graph_sum(torch.ones_like(rank), batch, num_graphs)
    true = graph_sum(truth.double(), batch, num_graphs)
    total = graph_sum(rank * truth, batch, num_graphs)
    auc = (total - true * (true + 1) / 2) / (true * (number - true))  # 0 / 0 is nan
    return _where_scored(auc, score, batch)


def average_precision(score: Tensor, truth: Tensor, batch: Tensor, num_graphs: int) -> Tensor:
    r"""Returns the average precision of each graph, ``[B]``; equal scores share one threshold.

    .. math:: AP = \frac1{|T|} \sum_{i \in T}
        \frac{|\{j \in T : s_j \ge s_i\}|}{|\{j : s_j \ge s_i\}|}

    This is scikit-learn's :math:`\sum_n (R_n - R_{n-1}) P_n`, one term per true item.

    Symbols: :math:`s_i` -> ``score``, ``[M]``; :math:`T` -> ``truth``, bool ``[M]``.

    Example:
        >>> score, truth = torch.tensor([0.9, 0.1, 0.5, 0.5]), torch.tensor([1, 0, 1, 0]).bool()
        >>> average_precision(score, truth, torch.zeros(4, dtype=torch.long), 1).tolist()
        [0.8333333333333333]
    """
    all_above = _at_least(score, batch, num_graphs)[truth]
    true_above = _at_least(score[truth], batch[truth], num_graphs)
    total = graph_sum(true_above.double() / all_above, batch[truth], num_graphs)
    precision = total / torch.bincount(batch[truth], minlength=num_graphs)  # 0 / 0 is nan
    return _where_scored(precision, score, batch)


def _where_scored(value: Tensor, score: Tensor, batch: Tensor) -> Tensor:
    """Returns values of graphs, nan where an item's score is nan: it has no place in any order."""
    unknown = graph_sum(score.isnan().double(), batch, value.numel()) > 0
    return torch.where(unknown, torch.nan, value)


def _at_least(score: Tensor, batch: Tensor, num_graphs: int) -> Tensor:
    """Returns how many items of the same graph score at least as much, ``[M]``."""
    below, _ = below_and_equal(score, batch, num_graphs)
    return torch.bincount(batch, minlength=num_graphs)[batch] - below
