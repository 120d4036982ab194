"""Degradation: how much worse the explained output of a model got in each draw."""

from __future__ import annotations

import torch
from torch import Tensor


def log_prob_degradation(clean: Tensor, perturbed: Tensor, target: Tensor) -> Tensor:
    r"""One-sided loss of the target's log-probability.

    .. math:: d_{y^*} = [\log f_{y^*}(G) - \log f_{y^*}(\rho, \epsilon)]_+  \qquad \text{(Eq. 11)}

    Symbols: :math:`\log f(G)` -> ``clean``, ``[B, C]``; :math:`\log f(\rho, \epsilon)` ->
    ``perturbed``, ``[N, B, C]``; :math:`y^*` -> ``target``, ``[B]``. Returns ``[N, B]``.
    """
    index = target.view(-1, 1)
    before = clean.gather(1, index).squeeze(1)  # [B]
    after = perturbed.gather(2, index.expand(perturbed.size(0), -1, 1)).squeeze(2)  # [N, B]
    return (before - after).clamp(min=0)


def margin_degradation(
    clean: Tensor, perturbed: Tensor, target: Tensor, *, hinge: bool = True
) -> Tensor:
    r"""One-sided loss of the target's log-odds, which does not saturate on confident graphs.

    .. math:: d_{y^*} = [m(G) - m(\rho, \epsilon)]_+, \qquad
        m = \log f_{y^*} - \log \textstyle\sum_{c \ne y^*} f_c

    Symbols as in :func:`log_prob_degradation`. As long as a confident prediction survives, its
    log-probability stays near 0 and tells nothing; its log-odds fall with every lost piece of
    evidence. The paper uses log-probabilities; this is ours. Without ``hinge``, gains are negative
    losses.
    """
    loss = log_odds(clean.unsqueeze(0), target) - log_odds(perturbed, target)  # [N, B]
    return loss.clamp(min=0) if hinge else loss


def log_odds(log_prob: Tensor, target: Tensor) -> Tensor:
    r"""Returns :math:`\log f_y - \log(1 - f_y)` of the target class y, ``[N, B]``."""
    index = target.view(1, -1, 1).expand(log_prob.size(0), -1, 1)
    return log_prob.gather(2, index).squeeze(2) - other_log_prob(log_prob, target)


def other_log_prob(log_prob: Tensor, target: Tensor) -> Tensor:
    r"""Returns :math:`\log(1 - f_y)`, the log-probability of all other classes, ``[N, B]``.

    It is added up over the other classes, so that it stays exact where :math:`f_y` rounds to 1.
    """
    index = target.view(1, -1, 1).expand(log_prob.size(0), -1, 1)
    return log_prob.scatter(2, index, -torch.inf).logsumexp(2)


def squared_degradation(clean: Tensor, perturbed: Tensor, target: Tensor) -> Tensor:
    r"""Squared change of the explained output of a regression model.

    .. math:: d = (f_k(\rho, \epsilon) - f_k(G))^2

    Symbols as in :func:`log_prob_degradation`; :math:`k` -> ``target``; a negative target means all
    outputs, whose squares are added. The paper covers classification only; this is our extension.
    """
    change = (perturbed - clean).square()  # [N, B, K]
    one = change.gather(2, target.clamp(min=0).view(1, -1, 1).expand(change.size(0), -1, 1))
    return torch.where(target >= 0, one.squeeze(2), change.sum(2))
