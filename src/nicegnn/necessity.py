"""Bond-wise attribution: what the prediction loses when one bond alone is corrupted."""

from __future__ import annotations

import torch

from nicegnn.attribution import Attribution, standard_error
from nicegnn.bondwise import damage_each_bond
from nicegnn.config import AttributionConfig
from nicegnn.noise import mix
from nicegnn.query import Query
from nicegnn.risk import restoration_risk


@torch.no_grad()
def bond_wise_gradient(query: Query, config: AttributionConfig, seed: int) -> Attribution:
    r"""Integrates the fall of risk along a path of each bond's own, all others staying clean.

    .. math:: s_e = -\int_0^1 \frac{\partial R}{\partial \rho_e}
        (1, \dots, \rho_e = t, \dots, 1)\, dt
        = R(1, \dots, \rho_e = 0, \dots, 1) - R(1, \dots, 1)

    Symbols: :math:`\rho_e` -> gate of bond e; :math:`R` -> risk over ``config.num_draws`` draws,
    each losing by ``config.degradation``. The integral of a slope along one coordinate is a
    difference of two values, so there is nothing to quadrature and no gradient is needed.

    Note:
        The paper moves all bonds together from full corruption to the boundary: most of that path
        leads through graphs unlike any the model was trained on, and there a bond is judged among
        corrupted ones. Here every bond is judged among clean ones. The price is completeness: what
        several bonds do only together is seen in each of them, or in none, so scores need not add
        up to anything, and the result has no completeness gap (nan).
    """
    query = query.losing(config.degradation)
    case, beta = query.case, config.beta
    num_draws = query.draws(config.num_draws)
    bonds = case.bonds
    stream = mix(seed, "bonds")
    share = query.clean.new_zeros(num_draws, bonds.batch.numel())  # loss of each draw, [N, M]
    for some in damage_each_bond(query, num_draws, stream):
        share[some.draw, some.bond] = query.loss_of(some.output, bonds.batch[some.bond])
    score = restoration_risk(share, beta)
    everything = query.clean.new_ones(bonds.batch.numel())
    clean = restoration_risk(query.sample(everything, num_draws, stream), beta)
    score = score - clean[bonds.batch]
    unknown = torch.full_like(clean, torch.nan)
    return Attribution(
        score=score,
        stderr=standard_error(share, paired=config.antithetic)
        if query.is_random
        else torch.zeros_like(score),
        risk_corrupted=unknown,
        risk_boundary=clean,
        completeness_gap=unknown,
    )
