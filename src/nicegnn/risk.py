"""Restoration risk: how badly, and how unsteadily, the prediction survives noise corruption."""

from __future__ import annotations

import torch
from torch import Tensor

_TINY = 1e-12  # inside the root, so that equal draws have a finite slope


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
    evidence. The paper uses log-probabilities; this is ours.

    Args:
        hinge: count a gain as no loss, as the paper does; else gains are negative losses.
    """
    loss = _margin(clean.unsqueeze(0), target) - _margin(perturbed, target)  # [N, B]
    return loss.clamp(min=0) if hinge else loss


def _margin(log_prob: Tensor, target: Tensor) -> Tensor:
    index = target.view(1, -1, 1).expand(log_prob.size(0), -1, 1)
    own = log_prob.gather(2, index).squeeze(2)
    others = log_prob.scatter(2, index, -torch.inf).logsumexp(2)
    return own - others


def squared_degradation(clean: Tensor, perturbed: Tensor, target: Tensor) -> Tensor:
    r"""Squared change of the explained output of a regression model.

    .. math:: d = (f_k(\rho, \epsilon) - f_k(G))^2

    Symbols as in :func:`log_prob_degradation`; :math:`k` -> ``target``; a negative target means all
    outputs, whose squares are added. The paper covers classification only; this is our extension.
    """
    change = (perturbed - clean).square()  # [N, B, K]
    one = change.gather(2, target.clamp(min=0).view(1, -1, 1).expand(change.size(0), -1, 1))
    return torch.where(target >= 0, one.squeeze(2), change.sum(2))


def restoration_risk(degradation: Tensor, beta: float) -> Tensor:
    r"""Mean degradation plus its spread over draws.

    .. math:: \hat R^{(N)} = \bar d_N + \beta \sqrt{\tfrac1N \sum_n (d_n - \bar d_N)^2}
        \qquad \text{(Eq. 15)}

    Symbols: :math:`d_n` -> ``degradation``, ``[N, B]``; :math:`\beta` -> ``beta``. Returns ``[B]``.
    """
    return degradation.mean(0) + beta * _std(degradation)


def risk_slope(degradation: Tensor, beta: float) -> Tensor:
    r"""Slope of the risk in each draw's degradation, times the number of draws, ``[N, B]``.

    .. math:: c_n = N \frac{\partial \hat R}{\partial d_n}
        = 1 + \beta \frac{d_n - \bar d_N}{\sqrt{\tfrac1N \sum_n (d_n - \bar d_N)^2}}

    The gradient of the risk in the gates is then the mean over draws of
    :math:`c_n \, \partial d_n / \partial \rho`, which keeps every draw's share visible.
    """
    return 1 + beta * (degradation - degradation.mean(0)) / _std(degradation)


def _std(value: Tensor) -> Tensor:
    return ((value - value.mean(0)).square().mean(0) + _TINY).sqrt()
