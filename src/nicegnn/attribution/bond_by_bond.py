"""Bond-wise attribution: what the prediction loses when one bond alone is corrupted."""

from __future__ import annotations

import torch
from torch import Tensor

from nicegnn.attribution.joint_path import Attribution, standard_error
from nicegnn.boundary.objective import restoration_risk
from nicegnn.config import AttributionConfig
from nicegnn.intervention.one_bond import damage_each_bond, remove_each_bond
from nicegnn.intervention.query import Query
from nicegnn.seeding import mix

_SAME = 1e-4  # log-odds; rounding errors are smaller


@torch.no_grad()
def bond_wise_gradient(query: Query, config: AttributionConfig, seed: int) -> Attribution:
    r"""Integrates the fall of risk along one path per bond, on which all other bonds stay clean.

    .. math:: s_e = -\int_0^1 \frac{\partial R}{\partial \rho_e}
        (1, \dots, \rho_e = t, \dots, 1)\, dt
        = R(1, \dots, \rho_e = 0, \dots, 1) - R(1, \dots, 1)

    Symbols: :math:`\rho_e` -> gate of bond e; :math:`R` -> risk over ``config.num_draws`` draws of
    the loss ``config.degradation``. The integral of a slope along one coordinate is a difference of
    two values, so neither quadrature nor a gradient is needed.

    Note:
        The paper moves all bonds together from full corruption to the boundary. Most of that path
        leads through graphs unlike those that the model was trained on, and each bond is judged
        among corrupted ones. Here every bond is judged among clean ones. The price is completeness:
        an effect that needs several bonds counts for each of them, or for none. Scores have no
        known total, so the completeness gap is nan.
    """
    query = query.losing(config.degradation)
    bonds, beta, stream = query.case.bonds, config.beta, mix(seed, "bonds")
    num_draws = query.draws(config.num_draws)
    share = query.clean.new_zeros(num_draws, bonds.batch.numel())  # loss of each draw, [N, M]
    for some in damage_each_bond(query, num_draws, stream):
        share[some.draw, some.bond] = query.loss_of(some.output, bonds.batch[some.bond])
    everything = query.clean.new_ones(bonds.batch.numel())
    clean = restoration_risk(query.sample(everything, num_draws, stream), beta)
    score = restoration_risk(share, beta) - clean[bonds.batch]
    stderr = torch.zeros_like(score)
    if query.is_random:
        stderr = standard_error(share, paired=config.antithetic)
    unknown = torch.full_like(clean, torch.nan)
    return Attribution(
        score=score,
        stderr=stderr,
        risk_corrupted=unknown,
        risk_boundary=clean,
        completeness_gap=unknown,
    )


@torch.no_grad()
def loss_without_each(query: Query, degradation: str) -> Tensor:
    """Returns what is lost when a bond is taken out of the graph, 0 beyond reach, ``[M]``."""
    query, batch = query.losing(degradation), query.case.bonds.batch
    loss = query.clean.new_zeros(batch.numel())
    for some in remove_each_bond(query):
        loss[some.bond] = query.loss_of(some.output, batch[some.bond])
    return loss


@torch.no_grad()
def removal_loss(query: Query, degradation: str, masked: Tensor) -> Tensor:
    r"""Returns what the prediction loses when a bond is taken out of the graph, ``[M]``.

    .. math:: s_e = R(G \setminus e) - R(G)

    Symbols: :math:`R` -> loss `degradation`, which is 0 for the clean graph. Layers that divide by
    degrees or weigh neighbours against each other (GCN, GAT) then divide by those that are left;
    masking leaves the divisor as it was. For layers that only add messages (GIN) both are the same.
    In a graph where all bonds lose as much as under masking, the result is 0, because it would only
    repeat ``masked``, what is lost when the bond's messages are masked, ``[M]``.
    """
    loss, case = loss_without_each(query, degradation), query.case
    largest = loss.new_zeros(2, case.num_graphs)
    for row, value in zip(largest, (loss - masked, masked), strict=True):
        seen = torch.where(case.reached, value.abs(), 0.0)
        row.scatter_reduce_(0, case.bonds.batch, seen, "amax")
    is_new = largest[0] > _SAME * (1 + largest[1])
    return torch.where(is_new[case.bonds.batch], loss, 0.0)
