"""What damage costs: losses of the explained output, in log-odds, log-probability or its value.

Symbols of all formulas: :math:`f(G)` -> ``clean``, ``[B, C]``; :math:`f(\\rho, \\epsilon)` ->
``perturbed``, ``[N, B, C]``, log-probabilities or values; :math:`y^*` or :math:`k` -> ``target``,
the explained class or output, ``[B]``. All return ``[N, B]``.
"""

from __future__ import annotations

import torch
from torch import Tensor


def log_prob_degradation(clean: Tensor, perturbed: Tensor, target: Tensor) -> Tensor:
    r"""One-sided loss of the target's log-probability.

    .. math:: d_{y^*} = [\log f_{y^*}(G) - \log f_{y^*}(\rho, \epsilon)]_+  \qquad \text{(Eq. 11)}
    """
    return (of_target(clean.unsqueeze(0), target) - of_target(perturbed, target)).clamp(min=0)


def margin_degradation(
    clean: Tensor, perturbed: Tensor, target: Tensor, *, hinge: bool = True
) -> Tensor:
    r"""One-sided loss of the target's log-odds, which does not saturate on confident graphs.

    .. math:: d_{y^*} = [m(G) - m(\rho, \epsilon)]_+, \qquad
        m = \log f_{y^*} - \log \textstyle\sum_{c \ne y^*} f_c

    The paper uses log-probabilities, this is ours. Without ``hinge``, gains are negative.
    """
    loss = log_odds(clean.unsqueeze(0), target) - log_odds(perturbed, target)
    return loss.clamp(min=0) if hinge else loss


def squared_degradation(clean: Tensor, perturbed: Tensor, target: Tensor) -> Tensor:
    r"""Squared change of the explained output of a regression model (our extension).

    .. math:: d = (f_k(\rho, \epsilon) - f_k(G))^2

    A negative target means all outputs, whose squares are added.
    """
    change = (perturbed - clean).square()  # [N, B, K]
    return torch.where(target >= 0, of_target(change, target), change.sum(2))


def value_fall(clean: Tensor, perturbed: Tensor, target: Tensor) -> Tensor:
    r"""Fall of the explained value, negative for a rise: :math:`f_k(G) - f_k(\rho, \epsilon)`.

    It is nan where all outputs are explained together.
    """
    return torch.where(target >= 0, of_target(clean - perturbed, target), torch.nan)


def log_odds(log_prob: Tensor, target: Tensor) -> Tensor:
    r"""Returns :math:`\log f_y - \log(1 - f_y)` of the target class y, ``[N, B]``."""
    return of_target(log_prob, target) - other_log_prob(log_prob, target)


def other_log_prob(log_prob: Tensor, target: Tensor) -> Tensor:
    r"""Returns :math:`\log(1 - f_y)`: a sum over the other classes, exact where f_y rounds to 1."""
    index = target.view(1, -1, 1).expand(log_prob.size(0), -1, 1)
    return log_prob.scatter(2, index, -torch.inf).logsumexp(2)


def of_target(value: Tensor, target: Tensor) -> Tensor:
    """Returns the column of each row's target, ``[N, B, C]`` to ``[N, B]``."""
    index = target.clamp(min=0).view(1, -1, 1).expand(value.size(0), -1, 1)
    return value.gather(2, index).squeeze(2)
