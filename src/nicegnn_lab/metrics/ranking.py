"""Ranks within graphs, the best share of each graph's bonds, and metrics of a ranking.

Items with equal scores get a random order, which depends on a seed and on the graph, but not on its
batch. Ties are not broken by position, because true bonds are often neighbours in an edge list.
"""

import torch
from torch import Tensor

from nicegnn.errors import MetricError
from nicegnn.graph.case import Bonds, edge_slots, rank_within
from nicegnn.seeding import mix


def is_selected(rank: Tensor, batch: Tensor, num_graphs: int, top: float) -> Tensor:
    r"""Returns whether each item is among the best of its graph by its rank, bool ``[M]``.

    .. math:: k_G = \max(1, \mathrm{round}(q M_G))

    Symbols: :math:`q` -> ``top``; :math:`M_G` -> number of items of a graph.
    """
    if not 0 < top <= 1:
        raise MetricError(f"`top` must be a share in (0, 1] (got {top!r}).")
    number = torch.bincount(batch, minlength=num_graphs)
    return rank < (number.double() * top).round().long().clamp(min=1)[batch]


def random_rank(score: Tensor, batch: Tensor, num_graphs: int, tie: Tensor) -> Tensor:
    """Returns the rank of each item in its graph, 0 for the best; ``tie`` orders equal scores."""
    order = tie.argsort(stable=True)
    rank = torch.empty_like(batch)
    rank[order] = rank_within(score[order], batch[order], num_graphs)
    return rank


def random_ties(bonds: Bonds | None, batch: Tensor, num_graphs: int, seed: int) -> Tensor:
    """Returns one random number per item, int64 ``[M]``, the same in every batch.

    Without the bonds of the graphs, items at the same position of two graphs get the same number.
    """
    key = torch.zeros(num_graphs, dtype=torch.long, device=batch.device)
    if bonds is not None:
        first = torch.full_like(key, torch.iinfo(torch.long).max)
        first = first.scatter_reduce(0, bonds.batch, bonds.index[0], "amin")  # lower nodes first
        u, v = bonds.index - first[bonds.batch]
        number = torch.bincount(bonds.batch, minlength=num_graphs)
        key = _scramble(number.index_add(0, bonds.batch, _scramble(_scramble(u) + v)))  # [B]
    key = _scramble(key + mix(seed, "ties"))
    return _scramble(key[batch] + edge_slots(batch, num_graphs))


def below_and_equal(score: Tensor, batch: Tensor, num_graphs: int) -> tuple[Tensor, Tensor]:
    """Counts the items of the same graph with a lower score, and with the same (with itself)."""
    rank = torch.unique(score, return_inverse=True)[1]
    key = batch * (score.numel() + 1) + rank  # by graph, then by score
    ordered, number = key.sort().values, torch.bincount(batch, minlength=num_graphs)
    first, after = (torch.searchsorted(ordered, key, right=side) for side in (False, True))
    return first - (number.cumsum(0) - number)[batch], after - first


def mean_ranks(score: Tensor, batch: Tensor, num_graphs: int) -> Tensor:
    """Returns ranks from 1 within each graph; equal scores get their mean rank, float64 ``[M]``."""
    below, equal = below_and_equal(score, batch, num_graphs)
    return below + (equal + 1).double() / 2


def spearman(first: Tensor, second: Tensor, batch: Tensor, num_graphs: int) -> Tensor:
    r"""Returns the rank correlation of two scores in each graph, ``[B]``; nan if one is constant.

    .. math:: \frac{\sum_i (r_i - \bar r)(s_i - \bar r)}
        {\sqrt{\sum_i (r_i - \bar r)^2 \sum_i (s_i - \bar r)^2}}

    Symbols: :math:`r_i, s_i` -> mean ranks of ``first`` and ``second``, ``[M]``; :math:`\bar r` ->
    ``middle``, the mean of all ranks of a graph.
    """
    middle = ((torch.bincount(batch, minlength=num_graphs) + 1).double() / 2)[batch]
    r, s = (mean_ranks(score, batch, num_graphs) - middle for score in (first, second))
    shared = graph_sum(r * s, batch, num_graphs)
    spread = graph_sum(r * r, batch, num_graphs) * graph_sum(s * s, batch, num_graphs)
    return shared / spread.sqrt()  # 0 / 0 is nan


def ground_truth_scores(
    score: Tensor, truth: Tensor, batch: Tensor, num_graphs: int, top: float, tie: Tensor
) -> dict[str, Tensor]:
    r"""Compares scores of edges or bonds with the truth by five metrics, ``[B]`` each.

    .. math:: P = \frac{|S \cap T|}{|S|}, \qquad R = \frac{|S \cap T|}{|T|}, \qquad
        F_1 = \frac{2 |S \cap T|}{|S| + |T|}

    Symbols: :math:`S` -> ``selected``, the best share ``top`` of a graph's items, ``[M]``;
    :math:`T` -> ``truth``, bool ``[M]``. ``tie`` orders equal scores. All but precision are nan
    without true items; the AUC also without false ones.
    """
    rank = random_rank(score, batch, num_graphs, tie)
    selected = is_selected(rank, batch, num_graphs, top).double()
    hit = graph_sum(selected * truth, batch, num_graphs)
    chosen = graph_sum(selected, batch, num_graphs)
    true = graph_sum(truth.double(), batch, num_graphs)
    return {
        "f1": torch.where(true > 0, 2 * hit / (chosen + true), torch.nan),
        "recall": hit / true,  # 0 / 0 is nan
        "precision": hit / chosen,
        "roc_auc": roc_auc(score, truth, batch, num_graphs),
        "average_precision": average_precision(score, truth, batch, num_graphs),
    }


def roc_auc(score: Tensor, truth: Tensor, batch: Tensor, num_graphs: int) -> Tensor:
    r"""Returns the area under the ROC curve of each graph, ``[B]``; ties count half.

    .. math:: AUC = \frac{\sum_{i \in T} r_i - n_1 (n_1 + 1) / 2}{n_1 n_0}

    Symbols: :math:`r_i` -> mean rank of item i among the items of its graph; :math:`T` ->
    ``truth``, bool ``[M]``; :math:`n_1, n_0` -> numbers of true and false items.
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

    Symbols: :math:`s_i` -> ``score``, ``[M]``; :math:`T` -> ``truth``, bool ``[M]``. It is
    scikit-learn's :math:`\sum_n (R_n - R_{n-1}) P_n`, one term per true item.
    """

    def at_least(score: Tensor, batch: Tensor) -> Tensor:
        """Counts items of the same graph that score at least as much, ``[M]``."""
        below, _ = below_and_equal(score, batch, num_graphs)
        return torch.bincount(batch, minlength=num_graphs)[batch] - below

    all_above, true_above = at_least(score, batch)[truth], at_least(score[truth], batch[truth])
    total = graph_sum(true_above.double() / all_above, batch[truth], num_graphs)
    precision = total / torch.bincount(batch[truth], minlength=num_graphs)  # 0 / 0 is nan
    return _where_scored(precision, score, batch)


def _where_scored(value: Tensor, score: Tensor, batch: Tensor) -> Tensor:
    unknown = graph_sum(score.isnan().double(), batch, value.numel()) > 0
    return torch.where(unknown, torch.nan, value)


def graph_sum(value: Tensor, batch: Tensor, num_graphs: int) -> Tensor:
    """Adds up the values of each graph's items, ``[M]`` to ``[B]``."""
    zeros = torch.zeros(num_graphs, dtype=value.dtype, device=value.device)
    return zeros.index_add(0, batch, value)


def check_scores(score: Tensor, name: str, *sizes: int) -> None:
    """Raises `MetricError` unless there is one score per item and none is nan."""
    if score.dim() != 1 or score.numel() not in sizes:
        wanted = " or ".join(f"[{size}]" for size in dict.fromkeys(sizes))
        raise MetricError(f"`{name}` must have shape {wanted} (got {tuple(score.shape)}).")
    bad = int(torch.isnan(score).sum())
    if bad:
        raise MetricError(
            f"`{name}` must not hold nan (got {bad} of {score.numel()}). Use -inf for an item "
            "without a score."
        )


def _scramble(value: Tensor) -> Tensor:
    """Mixes the bits of int64 numbers, one to one; products wrap around alike on all devices."""
    for shift, factor in ((27, 0x3C79AC492BA7B653), (33, 0x1C69B3F74AC4AE35), (27, 1)):
        filled = (1 << (64 - shift)) - 1  # removes the sign bits that a right shift adds
        value = (value ^ ((value >> shift) & filled)) * factor
    return value
