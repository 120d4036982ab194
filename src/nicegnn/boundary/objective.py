"""Stochastic Restoration Boundary (SRB): the risk of gates, and what a fit minimises."""

from __future__ import annotations

import torch
from torch import Tensor

from nicegnn.config import BoundaryConfig
from nicegnn.errors import TargetError
from nicegnn.intervention.query import Query

_TINY = 1e-12  # under the root, so that the slope is finite if all draws are equal
RISK_FLOOR = 0.02  # nats; below this risk, full corruption hardly matters


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
    """
    return 1 + beta * (degradation - degradation.mean(0)) / _std(degradation)


def _std(value: Tensor) -> Tensor:
    return ((value - value.mean(0)).square().mean(0) + _TINY).sqrt()


def sampled_risk(query: Query, gate: Tensor, config: BoundaryConfig, stream: int) -> Tensor:
    """Returns the risk of each graph under gates ``[M]``, without gradients, ``[B]``."""
    degradation = query.sample(gate, query.draws(config.num_draws), stream)
    return restoration_risk(degradation, config.beta)


def check_answers(query: Query, risk: Tensor) -> None:
    """Raises `TargetError` if damage has made the model's answers infinite or nan."""
    if not bool(torch.isfinite(risk).all()):
        largest = max(float(state.abs().max()) for state in query.states)
        raise TargetError(
            "The model must return finite values when its messages are corrupted (got NaN or "
            f"infinite ones; node states reach {largest:.2g}, whose squares may overflow "
            f"{query.clean.dtype}). Scale the features, or use float64."
        )


def srb_loss(
    query: Query, logit: Tensor, config: BoundaryConfig, stream: int
) -> tuple[Tensor, Tensor, Tensor]:
    r"""Returns loss, risk and restored share of each graph, ``[B]`` each.

    .. math:: \hat R(\rho_G) + \lambda \|\rho_G\|_1 / |E_G|, \qquad \rho = \sigma(a)
        \qquad \text{(Eq. 21)}

    Symbols: :math:`a` -> ``logit``, ``[M]``; :math:`\lambda` -> ``config.penalty``.
    """
    gate = logit.sigmoid()
    degradation = query.degradation(gate, query.draws(config.num_draws), stream)
    risk, restored = restoration_risk(degradation, config.beta), query.case.per_graph_mean(gate)
    return risk + config.penalty * restored, risk.detach(), restored.detach()
