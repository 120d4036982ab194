"""Restoration budgets: gates that restore a stated share, and the share a stated risk needs."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from nicegnn.graph.case import Case

_ROUNDS, _PARTS = 6, 24  # each round keeps one of 24 parts of the interval: 2^27 times less in all


def budget_gates(logit: Tensor, share: Tensor, case: Case) -> Tensor:
    r"""Shifts a graph's logits so that its gates restore a given share of its edges.

    .. math:: \rho_e = \sigma(a_e - b_G), \qquad b_G : \tfrac1{|E_G|}\sum_e \rho_e = q_G

    Symbols: :math:`a_e` -> ``logit``, ``[M]``; :math:`q_G` -> ``share``, ``[B]``. Returns ``[M]``.

    The shift lies between the one that is right if all logits equal the smallest and the one that
    is right if all equal the largest. It is searched there in rounds that try several shifts at
    once. A Newton step follows, which carries the gradient of the implicit equation for
    :math:`b_G`.
    """
    where = case.bonds.batch
    with torch.no_grad():
        count = (case.bonds.count * case.reached).double()
        total = count.new_zeros(case.num_graphs).index_add(0, where, count)
        weight = (count / total.clamp(min=1)[where]).to(logit.dtype)  # a bond's share of edges, [M]
        odds = share.clamp(1e-12, 1 - 1e-7).logit()  # the shift if all logits were 0
        low = _extreme(logit, case, "amin") - odds
        high = _extreme(logit, case, "amax") - odds
        inner = torch.arange(1, _PARTS, device=logit.device) / _PARTS  # [P - 1]
        width = (high - low).unsqueeze(1)
        for _ in range(_ROUNDS):
            tried = low.unsqueeze(1) + width * inner  # [B, P - 1]
            gate = weight.unsqueeze(1) * (logit.unsqueeze(1) - tried[where]).sigmoid()
            restored = torch.zeros_like(tried).index_add(0, where, gate)
            too_much = (restored > share.unsqueeze(1)).sum(1, keepdim=True)  # falls with the shift
            width = width / _PARTS
            low = low + (width * too_much).squeeze(1)
        shift = low + width.squeeze(1) / 2
        gate = (logit - shift[where]).sigmoid()
        slope = case.per_graph_mean(gate * (1 - gate)).clamp(min=1e-6)
    excess = case.per_graph_mean((logit - shift[where]).sigmoid()) - share
    return (logit - (shift + excess / slope)[where]).sigmoid()


@torch.no_grad()
def place_boundary(
    risk: Callable[[Tensor], Tensor],
    logit: Tensor,
    limit: Tensor,
    case: Case,
    *,
    halvings: int = 7,
    least: float = 0.02,
) -> Tensor:
    r"""Returns the smallest restored share of each graph whose risk stays within a limit, ``[B]``.

    .. math:: q^*_G = \min \{ q : R(\rho(q)) \le \tau_G \}

    Symbols: :math:`R` -> ``risk``, gates ``[M]`` to ``[B]``; :math:`\tau_G` -> ``limit``, ``[B]``.
    Found by bisection, which assumes that the risk falls as the share grows; `risk` should use the
    same noise at every call. Graphs that need everything get 1. The ``least`` share that is tried
    is above 0: a boundary at 0 leaves no path to integrate along, and all attributions would be 0.
    """
    low = torch.full_like(limit, least)
    is_enough = risk(budget_gates(logit, low, case)) <= limit
    high = torch.where(is_enough, low, 1.0)
    for _ in range(halvings):
        middle = (low + high) / 2
        met = risk(budget_gates(logit, middle, case)) <= limit
        high = torch.where(met, middle, high)
        low = torch.where(met, low, middle)
    return high


def _extreme(logit: Tensor, case: Case, reduce: str) -> Tensor:
    out = logit.new_zeros(case.num_graphs)
    return out.scatter_reduce(0, case.bonds.batch, logit, reduce, include_self=False)
