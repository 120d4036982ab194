"""Agreement of atom scores with known contributions, and with the sign of activity cliffs."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from nicegnn_lab.metrics.ranking import below_and_equal, graph_sum, roc_auc


def positive_auc(score: Tensor, truth: Tensor, batch: Tensor, num_graphs: int) -> Tensor:
    """Returns the ROC-AUC of atoms with a positive contribution in each graph, ``[B]``."""
    return roc_auc(score, truth > 0, batch, num_graphs)


def negative_auc(score: Tensor, truth: Tensor, batch: Tensor, num_graphs: int) -> Tensor:
    """Returns the ROC-AUC of atoms with a negative contribution, the scores turned, ``[B]``."""
    return roc_auc(-score, truth < 0, batch, num_graphs)


def top_n(score: Tensor, true: Tensor, batch: Tensor, num_graphs: int) -> tuple[Tensor, Tensor]:
    r"""Returns the true atoms among as many best ones, and their number, ``[B]`` each.

    .. math:: \text{Top-}n = \frac{\sum_g |S_g \cap T_g|}{\sum_g |T_g|}

    Symbols: :math:`T_g` -> ``true``, bool ``[V]``; :math:`S_g` -> the :math:`|T_g|` atoms with the
    best scores; of equally good ones at the border the expected share counts. Bottom-n is the same
    of minus the scores and the negative atoms.
    """
    number = graph_sum(true.double(), batch, num_graphs)
    below, equal = below_and_equal(-score, batch, num_graphs)  # below: how many are better
    share = ((number[batch] - below) / equal).clamp(0, 1)
    return graph_sum(share * true, batch, num_graphs), number


def scaled_rmse(score: Tensor, truth: Tensor) -> tuple[float, float]:
    r"""Returns the error of scores after the best scaling, and its factor a.

    .. math:: \min_a \sqrt{\tfrac1V \sum_v (a s_v - c_v)^2}, \qquad
        a = \frac{\sum_v s_v c_v}{\sum_v s_v^2}

    Symbols: :math:`s_v` -> ``score``, :math:`c_v` -> ``truth``, ``[V]``, of all molecules: scores
    have one unit for all. The factor is 1 for scores in the units of the truth.
    """
    s, c = score.double(), truth.double()
    size = float((s * s).sum())
    factor = float((s * c).sum()) / size if size > 0 else 0.0
    return float((factor * s - c).square().mean().sqrt()), factor


def kendall_tau(score: Tensor, truth: Tensor, batch: Tensor, num_graphs: int) -> Tensor:
    r"""Returns Kendall's tau-b of each graph, ``[B]``; nan if one side is constant.

    .. math:: \tau = \frac{P - Q}{\sqrt{(P + Q + T_s)(P + Q + T_c)}}

    Symbols: over pairs of atoms, :math:`P, Q` -> in the same and in the opposite order;
    :math:`T_s, T_c` -> ties of the score alone and of the truth alone.
    """
    from scipy.stats import kendalltau  # slow to import

    both = [(score[batch == graph], truth[batch == graph]) for graph in range(num_graphs)]
    found = [kendalltau(s.numpy(), c.numpy()).statistic for s, c in both]
    return torch.tensor(found, dtype=torch.double)


def sign_overlap(score: Tensor, truth: Tensor, batch: Tensor, num_graphs: int) -> Tensor:
    """Returns the share of a graph's contributing atoms whose score has the right sign, ``[B]``."""
    is_asked = truth != 0
    right = is_asked & (score.sign() == truth.sign())
    number = graph_sum(is_asked.double(), batch, num_graphs)
    return graph_sum(right.double(), batch, num_graphs) / number


def adds_up(score: Tensor, rise: Tensor, batch: Tensor) -> tuple[float, float]:
    r"""Returns how far the scores of molecules add up to their predictions.

    .. math:: 1 - \frac{\sum_g \big(\sum_{v \in g} s_v - \Delta_g\big)^2}{\sum_g \Delta_g^2},
        \qquad \Delta_g = f(G_g) - \bar f

    Symbols: :math:`s_v` -> ``score``, ``[V]``; :math:`\Delta_g` -> ``rise``, ``[B]``, above the
    mean of the background. It is 1 if they add up and 0 for scores of 0. The second value is the
    correlation of both sides over molecules.
    """
    total = graph_sum(score.double(), batch, rise.numel())
    rise = rise.double()
    share = 1 - (total - rise).square().sum() / rise.square().sum()
    one, other = total - total.mean(), rise - rise.mean()
    return float(share), float((one * other).sum() / (one.norm() * other.norm()))


def evidence(score: Tensor, rise: Tensor, batch: Tensor) -> Tensor:
    r"""Returns how far atoms hold a prediction away from the mean, ``[V]``.

    .. math:: e_v = \operatorname{sign}(\Delta_g) \, s_v, \qquad \Delta_g = f(G_g) - \bar f

    Symbols: :math:`s_v` -> ``score``, ``[V]``; :math:`\Delta_g` -> ``rise`` of its graph, ``[B]``.
    """
    return rise.sign()[batch] * score


def distance_left(answer: Tensor, clean: Tensor, base: float) -> Tensor:
    r"""Returns the share of the predictions' distance from the mean that is left, ``[N]``.

    .. math:: D = \frac{\sum_g \min\big(\max(\sigma_g (f'_g - \bar f), 0), |\Delta_g|\big)}
        {\sum_g |\Delta_g|}, \qquad \Delta_g = f(G_g) - \bar f, \quad
        \sigma_g = \operatorname{sign}(\Delta_g)

    Symbols: :math:`f'_g` -> ``answer`` of the changed graph, ``[N, B]``; :math:`f(G_g)` ->
    ``clean``, ``[B]``; :math:`\bar f` -> ``base``, the mean of the background. It is 1 where all
    predictions stay as far from the mean as they were, or go farther, and 0 where they come back to
    it, or pass it. Without the best atoms, ``1 - D`` is lost; from these alone, D is kept.
    """
    rise = clean - base
    left = (rise.sign() * (answer - base)).clamp(min=0).minimum(rise.abs())
    return left.sum(-1) / rise.abs().sum()


def global_direction(
    score: Tensor,
    ptr: Tensor,
    place: Sequence[tuple[int, int]],
    atoms: Sequence[tuple[Tensor, Tensor]],
    difference: Tensor,
) -> Tensor:
    r"""Returns whether scores of what differs have the sign of the measured difference, ``[P]``.

    .. math:: \big[ \operatorname{sign}\big(\textstyle\sum_{v \in U_i} s_v - \sum_{v \in U_j}
        s_v\big) = \operatorname{sign}(y_i - y_j) \big]

    Symbols: :math:`U_i, U_j` -> ``atoms``, which one molecule of a pair has and the other lacks;
    ``place`` -> the molecules of a pair, whose first atoms are in ``ptr``, ``[B + 1]``;
    :math:`y_i - y_j` -> ``difference``, ``[P]``. No difference between the sums counts half.
    """
    sums = [
        score[ptr[i] + own].sum() - score[ptr[j] + other].sum()
        for (i, j), (own, other) in zip(place, atoms, strict=True)
    ]
    side = torch.stack(sums).sign().double() * difference.sign().double()
    return (side + 1) / 2


def mask_agreement(
    score: Tensor,
    ptr: Tensor,
    place: Sequence[tuple[int, int]],
    atoms: Sequence[tuple[Tensor, Tensor]],
    difference: Tensor,
) -> tuple[Tensor, Tensor]:
    """Returns, of each pair, how scores agree with the atoms that differ, ``[P]`` each.

    The first is the share of these atoms with the sign that the difference gives them: that of
    ``difference`` in the first molecule, the opposite in the second. The other is the ROC-AUC of
    these atoms by the size of the scores, the mean over the molecules that have some, and others.
    Arguments are as for `global_direction`.
    """
    signs, areas = [], []
    for (i, j), both, value in zip(place, atoms, difference.tolist(), strict=True):
        right, area = [], []
        for graph, own, side in ((i, both[0], value), (j, both[1], -value)):
            whole = score[ptr[graph] : ptr[graph + 1]]
            right.append((whole[own] * side > 0).double())
            mask = torch.zeros(whole.numel(), dtype=torch.bool)
            mask[own] = True
            area.append(roc_auc(whole.abs(), mask, torch.zeros_like(mask, dtype=torch.long), 1))
        signs.append(torch.cat(right).mean())
        areas.append(torch.cat(area).nanmean())
    return torch.stack(signs), torch.stack(areas)
