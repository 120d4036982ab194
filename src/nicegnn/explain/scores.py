"""Scores of bonds: their losses, a learned order, or both joined."""

from __future__ import annotations

import torch
from torch import Tensor

from nicegnn.attribution.joint_path import Attribution
from nicegnn.boundary.gate_network import GateNetwork
from nicegnn.boundary.objective import Boundary, optimise_logits
from nicegnn.config import NICEConfig
from nicegnn.explain.explanation import Unit, share_of_odds
from nicegnn.graph.case import Case
from nicegnn.intervention.query import Query


def unit_of(query: Query, config: NICEConfig) -> Unit:
    """Returns the unit of scores."""
    settings = config.attribution
    if settings.path == "joint" or settings.degradation == "log-prob" or config.score != "loss":
        return "own"
    return "value" if query.target.mode == "regression" else "odds"


def score_of(query: Query, lost: Attribution, order: Boundary | None, config: NICEConfig) -> Tensor:
    """Returns the score of each bond in its `unit_of`, ``[M]``."""
    if config.score == "loss":
        return share_of_odds(lost.score) if unit_of(query, config) == "odds" else lost.score
    assert order is not None  # see `NICEConfig.needs_boundary`
    if config.score == "order":
        return order.logit
    return join_scores(query.case, order.logit, lost.score)


def order_bonds(
    gates: GateNetwork | None, query: Query, config: NICEConfig, seed: int, reference: Tensor
) -> Tensor:
    """Returns the logit of each bond, ``[M]``: of the gates, or optimised graph by graph.

    Gates that were not fitted for a graph's class say nothing about it. ``reference`` is the risk
    at full corruption, ``[B]``.
    """
    if gates is None:
        return optimise_logits(query, reference, config.boundary, seed)
    is_fitted = gates.is_trained_for(query.explained.clamp(min=0))  # [B]
    with torch.no_grad():
        learned: Tensor = gates(query)
    if bool(is_fitted.all()):
        return learned
    alone = optimise_logits(query, reference, config.boundary, seed)
    return torch.where(is_fitted[query.case.bonds.batch], learned, alone)


def join_scores(case: Case, *values: Tensor) -> Tensor:
    r"""Joins several scores of the same bonds into one in (0, 1), ``[M]``.

    .. math:: s_e = \sigma\Big(\sum_k \frac{v_{ke} - \bar v_k}{\mathrm{std}(v_k)}\Big)

    Symbols: :math:`v_k` -> ``values``, ``[M]`` each, with mean and spread over the reached bonds of
    a graph; values that differ by rounding alone count as equal. All parts have equal weight; an
    average bond has 1/2. The order ranks bonds that suffice for the prediction high, the loss bonds
    that the prediction needs.
    """
    value, home = torch.stack(values), case.bonds.batch  # [K, M]
    mean = case.per_graph_mean(value)[..., home]
    spread = case.per_graph_mean((value - mean).square()).sqrt()[..., home]
    floor = 256 * torch.finfo(value.dtype).eps * (1 + mean.abs())
    centred = (value - mean) / spread.clamp(min=1e-12)
    return torch.where(spread > floor, centred, 0.0).sum(0).sigmoid()
