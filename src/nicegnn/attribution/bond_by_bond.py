"""Bond-wise attribution: the loss of the prediction when one bond alone is damaged."""

from __future__ import annotations

import torch
from torch import Tensor

from nicegnn.attribution.joint_path import Attribution, standard_error
from nicegnn.boundary.objective import check_answers, restoration_risk
from nicegnn.config import AttributionConfig
from nicegnn.intervention.one_bond import damage_each_bond, remove_each_bond
from nicegnn.intervention.query import Query
from nicegnn.seeding import mix

_SAME = 1e-4  # log-odds; smaller differences are rounding errors
_ENOUGH = 64  # bonds on which a model must lose the same, to be trusted to do so on others


@torch.no_grad()
def bond_wise_gradient(query: Query, config: AttributionConfig, seed: int) -> Attribution:
    r"""Integrates the fall of risk along one path per bond, on which all other bonds stay clean.

    .. math:: s_e = -\int_0^1 \frac{\partial R}{\partial \rho_e}
        (1, \dots, \rho_e = t, \dots, 1)\, dt
        = R(1, \dots, \rho_e = 0, \dots, 1) - R(1, \dots, 1)

    Symbols: :math:`\rho_e` -> gate of bond e; :math:`R` -> risk over ``config.num_draws`` draws of
    the loss ``config.degradation``. The integral of a slope along one coordinate is the difference
    of two values, so neither quadrature nor a gradient is needed.

    Note:
        The paper moves all bonds together from full corruption to the boundary. Most of that path
        is unlike the training data, and each bond is judged among corrupted bonds. Here all other
        bonds are clean. Completeness is lost: an effect that needs several bonds counts for each of
        them, or for none. Scores have no known total, so the completeness gap is nan.
    """
    query = query.losing(config.degradation)
    bonds, beta, stream = query.case.bonds, config.beta, mix(seed, "bonds")
    num_draws = query.draws(config.num_draws)
    share = query.clean.new_zeros(num_draws, bonds.batch.numel())  # loss of each draw, [N, M]
    for some in damage_each_bond(query, num_draws, stream):
        share[some.draw, some.bond] = query.loss_of(some.output, bonds.batch[some.bond])
    clean = restoration_risk(query.clean_loss, beta)
    score = restoration_risk(share, beta) - clean[bonds.batch]
    check_answers(query, score)
    stderr = torch.zeros_like(score)
    if query.is_random:
        stderr = standard_error(share, paired=config.antithetic)
    unknown = torch.full_like(clean, torch.nan)
    return Attribution(score, stderr, unknown, risk_boundary=clean, completeness_gap=unknown)


@torch.no_grad()
def loss_without_each(query: Query, degradation: str) -> Tensor:
    """Returns the loss when a bond is taken out of the graph, 0 for unreached bonds, ``[M]``."""
    query, batch = query.losing(degradation), query.case.bonds.batch
    loss = query.clean.new_zeros(batch.numel())
    for some in remove_each_bond(query):
        loss[some.bond] = query.loss_of(some.output, batch[some.bond])
    return loss


@torch.no_grad()
def removal_loss(query: Query, degradation: str, masked: Tensor) -> Tensor:
    r"""Returns the loss when a bond is taken out, 0 where it would repeat ``masked``, ``[M]``.

    .. math:: s_e = R(G \setminus e) - R(G)

    Symbols: :math:`R` -> loss `degradation`, which is 0 for the clean graph; loss when the bond's
    messages are masked -> ``masked``, ``[M]``. Layers that divide by degrees or attention (GCN,
    GAT) then divide by the bonds that are left; masking keeps the divisor. Layers that only add
    messages (GIN) give both losses the same value. If all bonds of a graph do, it gets 0. A model
    that was seen to do so on enough bonds is not asked again until its weights change.
    """
    target, weights = query.target, query.weights
    if target.only_adds_for == weights:
        return torch.zeros_like(masked)
    loss, case = loss_without_each(query, degradation), query.case
    largest = loss.new_zeros(2, case.num_graphs)
    for row, value in zip(largest, (loss - masked, masked), strict=True):
        seen = torch.where(case.reached, value.abs(), 0.0)
        row.scatter_reduce_(0, case.bonds.batch, seen, "amax")
    is_new = largest[0] > _SAME * (1 + largest[1])
    num_felt = int((case.reached & (masked.abs() > _SAME)).sum())
    if num_felt >= _ENOUGH and not bool(is_new.any()):
        target.only_adds_for = weights
    return torch.where(is_new[case.bonds.batch], loss, 0.0)
