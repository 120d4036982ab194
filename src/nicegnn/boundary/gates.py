"""Stochastic Restoration Boundary (SRB): the gate network, and the risk that a fit minimises."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from nicegnn.config import BoundaryConfig
from nicegnn.errors import GraphError, TargetError
from nicegnn.intervention.query import Query

_TINY = 1e-12  # under the root, so that the slope is finite if all draws are equal
RISK_FLOOR = 0.02  # nats; below this risk, full corruption hardly matters


def bond_representation(query: Query) -> Tensor:
    r"""Returns the input of the gate network for each directed edge, ``[E, D]``.

    .. math:: z_{uv} = [\, h_u,\; h_v \,]

    Symbols: :math:`h` -> node states of the last layer of the frozen target.
    """
    h = query.states[-1].to(query.clean.dtype)
    return h[query.case.batch.edge_index].transpose(0, 1).flatten(1)


class GateNetwork(nn.Module):
    r"""Maps the bonds of a query to the logits of their restoration gates.

    .. math:: \rho_e = \sigma\Big(\tfrac12 \big(g_\theta(z_{uv}) + g_\theta(z_{vu})\big)\Big)
        \qquad \text{(Appendix E)}

    Symbols: :math:`z` -> `bond_representation`. Gates start near ``settings.start``.
    """

    def __init__(self, in_size: int, settings: BoundaryConfig) -> None:
        super().__init__()
        self.in_size = in_size
        self.last = nn.Linear(settings.hidden_size, 1)
        self.first = nn.Linear(in_size, settings.hidden_size)
        with torch.no_grad():
            self.last.weight.mul_(0.1)
            self.last.bias.fill_(math.log(settings.start / (1 - settings.start)))

    def forward(self, query: Query) -> Tensor:
        """Returns the gate logit of each bond, ``[M]``, a mean over its directed edges."""
        z = bond_representation(query)
        if z.size(1) != self.in_size:
            raise GraphError(
                f"Bonds must be described by {self.in_size} numbers (got {z.size(1)}). Explain "
                "graphs with the features of those in fit()."
            )
        return query.case.bonds.mean(self.last(self.first(z).relu()).squeeze(1))


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
    draws = query.draws(config.num_draws)
    return restoration_risk(query.sample(gate, draws, stream), config.beta)


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
