"""Stochastic Restoration Boundary (SRB): risk, budgets, objectives, single graphs."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from nicegnn.config import BoundaryConfig
from nicegnn.errors import TargetError
from nicegnn.graph.case import Case
from nicegnn.intervention.query import Query
from nicegnn.seeding import mix

_TINY = 1e-12  # under the root, so that the slope is finite if all draws are equal
RISK_FLOOR = 0.02  # nats; below this risk, full corruption hardly matters
_LOGIT_LIMIT = 12.0
_LEAST_PLACED, _PLACED_HALVINGS = 0.02, 7  # restored share of a boundary, and steps to find it
_LEAST, _MOST = 0.05, 0.95  # restored shares under which an order is learned
_GRAPH_RATE = 0.2  # of Adam, where a boundary is sought for one graph alone
_HALVINGS = 28  # then, after a Newton step, the error of a shift is beyond single precision


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


@dataclass(frozen=True)
class Boundary:
    """A restoration boundary of each graph of a batch."""

    gate: Tensor  # restoration gate of each bond, [M]
    logit: Tensor  # gate logit of each bond, whose order ranks the bonds, [M]
    restored: Tensor  # restored share of each graph's edges, [B]
    risk: Tensor  # risk at the boundary, [B]
    risk_corrupted: Tensor  # risk at full corruption, [B]


def corrupted_risk(query: Query, config: BoundaryConfig, seed: int) -> Tensor:
    """Returns the risk of each graph when all its messages are corrupted, ``[B]``."""
    nothing = query.clean.new_zeros(query.case.bonds.batch.numel())
    risk = sampled_risk(query, nothing, config, mix(seed, "corrupted"))
    check_answers(query, risk)
    return risk


def check_answers(query: Query, risk: Tensor) -> None:
    """Raises `TargetError` if damage has made the model's answers infinite or nan."""
    if not bool(torch.isfinite(risk).all()):
        largest = max(float(state.abs().max()) for state in query.states)
        raise TargetError(
            "The model must return finite values when its messages are corrupted (got NaN or "
            f"infinite ones; node states reach {largest:.2g}, whose squares may overflow "
            f"{query.clean.dtype}). Scale the features, or use float64."
        )


def sampled_risk(query: Query, gate: Tensor, config: BoundaryConfig, stream: int) -> Tensor:
    """Returns the risk of each graph under gates ``[M]``, without gradients, ``[B]``."""
    degradation = query.sample(gate, query.draws(config.num_draws), stream)
    return restoration_risk(degradation, config.beta)


def budget_gates(logit: Tensor, share: Tensor, case: Case) -> Tensor:
    r"""Shifts a graph's logits so that its gates restore a given share of its edges.

    .. math:: \rho_e = \sigma(a_e - b_G), \qquad b_G : \tfrac1{|E_G|}\sum_e \rho_e = q_G

    Symbols: :math:`a_e` -> ``logit``, ``[M]``; :math:`q_G` -> ``share``, ``[B]``. Returns ``[M]``.

    The shift lies between those of the smallest and the largest logit and is found by bisection; a
    Newton step carries the gradient of the implicit equation for :math:`b_G`.
    """
    where = case.bonds.batch
    with torch.no_grad():
        odds = share.clamp(1e-12, 1 - 1e-7).logit()  # minus the shift if all logits were 0
        empty = logit.new_zeros(case.num_graphs)
        low, high = (
            empty.scatter_reduce(0, where, logit, end, include_self=False) - odds
            for end in ("amin", "amax")
        )
        for _ in range(_HALVINGS):
            shift = (low + high) / 2
            too_much = case.per_graph_mean((logit - shift[where]).sigmoid()) > share
            low, high = torch.where(too_much, shift, low), torch.where(too_much, high, shift)
        shift = (low + high) / 2
    gate = (logit - shift[where]).sigmoid()
    slope = case.per_graph_mean((gate * (1 - gate)).detach()).clamp(min=1e-6)
    excess = case.per_graph_mean(gate) - share
    return (logit - (shift + excess / slope)[where]).sigmoid()


@torch.no_grad()
def place_boundary(
    risk: Callable[[Tensor], Tensor], logit: Tensor, limit: Tensor, case: Case
) -> Tensor:
    r"""Returns the smallest restored share of each graph whose risk stays within a limit, ``[B]``.

    .. math:: q^*_G = \min \{ q : R(\rho(q)) \le \tau_G \}

    Symbols: :math:`R` -> ``risk``, gates ``[M]`` to ``[B]``; :math:`\tau_G` -> ``limit``, ``[B]``.
    Bisection assumes that the risk falls as the share grows; `risk` should use the same noise in
    every call. Graphs that need all edges get 1, those that need none 0.02: a path to a boundary at
    0 has no length, and all attributions would be 0.
    """
    low = torch.full_like(limit, _LEAST_PLACED)
    is_enough = risk(budget_gates(logit, low, case)) <= limit
    high = torch.where(is_enough, low, 1.0)
    for _ in range(_PLACED_HALVINGS):
        middle = (low + high) / 2
        met = risk(budget_gates(logit, middle, case)) <= limit
        high, low = torch.where(met, middle, high), torch.where(met, low, middle)
    return high


def srb_loss(
    query: Query,
    logit: Tensor,
    reference: Tensor,
    config: BoundaryConfig,
    *,
    share: Tensor,
    stream: int,
) -> tuple[Tensor, Tensor, Tensor]:
    r"""Returns loss, risk and restored share of each graph, ``[B]`` each.

    Objective ``penalty`` (Eq. 21): :math:`\hat R(\rho_G) + \lambda \|\rho_G\|_1 / |E_G|` with
    :math:`\rho = \sigma(a)`.

    Objective ``budget``: :math:`\log(1 + 4 \hat R(\rho_G(q)) / R_G(0)) / \log 5` with gates that
    restore the share :math:`q`. It depends on the order of the bonds, not on the level of logits.

    Symbols: :math:`a` -> ``logit``, ``[M]``; :math:`q` -> ``share``, ``[B]``; :math:`R(0)` ->
    ``reference``, the risk at full corruption, ``[B]``.
    """
    is_penalty, case = config.objective == "penalty", query.case
    gate = logit.sigmoid() if is_penalty else budget_gates(logit, share, case)
    degradation = query.degradation(gate, query.draws(config.num_draws), stream)
    risk = restoration_risk(degradation, config.beta)
    if is_penalty:
        restored = case.per_graph_mean(gate)
        return risk + config.penalty * restored, risk.detach(), restored.detach()
    risk = risk / reference.clamp(min=RISK_FLOOR)
    return torch.log1p(4 * risk) / math.log(5), risk.detach(), share


def find_boundary(
    query: Query, logit: Tensor, config: BoundaryConfig, seed: int, reference: Tensor
) -> Boundary:
    """Returns the boundary of each graph for gate logits ``[M]``.

    With objective ``penalty`` the gates are the boundary, with ``budget`` the smallest restored
    share whose risk is ``config.risk_target`` of the corrupted one.
    """

    def risk(gate: Tensor) -> Tensor:
        return sampled_risk(query, gate, config, mix(seed, "boundary"))

    gate = logit.sigmoid()
    if config.objective == "budget":
        limit = config.risk_target * reference.clamp(min=RISK_FLOOR)
        share = place_boundary(risk, logit, limit, query.case)
        gate = budget_gates(logit, share, query.case)
        gate = torch.where((share >= 1)[query.case.bonds.batch], 1.0, gate)
    return Boundary(gate, logit, query.case.per_graph_mean(gate), risk(gate), reference)


def optimise_logits(query: Query, reference: Tensor, config: BoundaryConfig, seed: int) -> Tensor:
    """Optimises the gate logits of each graph directly, batched over graphs, ``[M]``.

    Graphs do not influence each other. Slopes that are rounding alone count as 0.
    """
    num_bonds = query.case.bonds.batch.numel()
    start = math.log(config.start / (1 - config.start)) if config.objective == "penalty" else 0.0
    logit = query.clean.new_full((num_bonds,), start).requires_grad_()
    if num_bonds == 0:
        return logit.detach()
    optimiser = torch.optim.Adam([logit], lr=_GRAPH_RATE)
    for step in range(config.graph_steps):
        place = torch.full_like(reference, (0.5 + step * 0.6180339887498949) % 1.0)
        share = random_share(place)  # all steps fill the range of shares evenly
        stream = mix(seed, "optimise", step)
        loss, _, _ = srb_loss(query, logit, reference, config, share=share, stream=stream)
        if not loss.requires_grad:  # no message reaches the output
            break
        (slope,) = torch.autograd.grad(loss.sum() + 0 * logit.sum(), logit)
        is_rounding = slope.abs() <= 16 * torch.finfo(slope.dtype).eps
        logit.grad = slope.masked_fill(is_rounding, 0.0)  # Adam would make it a whole step
        optimiser.step()
        with torch.no_grad():
            logit.clamp_(-_LOGIT_LIMIT, _LOGIT_LIMIT)
    return logit.detach()


def random_share(place: Tensor) -> Tensor:
    """Returns restored shares for places in [0, 1] of their range, ``[B]``."""
    return _LEAST + (_MOST - _LEAST) * place
