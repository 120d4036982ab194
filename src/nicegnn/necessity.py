"""Bond-wise attribution: what the prediction loses when one bond alone is corrupted."""

from __future__ import annotations

import torch
from torch import Tensor

from nicegnn.attribution import Attribution, standard_error
from nicegnn.config import AttributionConfig
from nicegnn.noise import mix
from nicegnn.query import Query, bond_numbers
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
    place, longest = bond_numbers(case)  # bonds that cannot matter come last and are left out
    stream = mix(seed, "bonds")
    share = query.clean.new_zeros(num_draws, place.numel())  # loss of each draw, [N, M]
    step = max(1, query.chunk_draws // num_draws)  # bonds of a graph at once, one per copy
    for first in range(0, longest, step):
        number = torch.arange(first, min(first + step, longest), device=place.device)  # [K]
        gate = (place != number.unsqueeze(1)).to(share.dtype)  # [K, M]
        loss = _losses(query, gate, num_draws, stream)  # [K, N, B]
        hit = ((place >= first) & (place < min(first + step, longest))).nonzero().view(-1)
        share[:, hit] = loss[place[hit] - first, :, bonds.batch[hit]].t()
    score = restoration_risk(share, beta)
    everything = query.clean.new_ones(place.numel())
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


def _losses(query: Query, gate: Tensor, num_draws: int, stream: int) -> Tensor:
    """Returns the loss under each row of gates ``[K, M]`` with the same draws, ``[K, N, B]``."""
    parts = []
    for first in range(0, num_draws, query.chunk_draws):
        num = min(query.chunk_draws, num_draws - first)
        rows = gate.repeat_interleave(num, dim=0)  # [K * N, M]
        draw = torch.arange(first, first + num, device=gate.device).repeat(gate.size(0))
        loss = query.degradation(rows, rows.size(0), stream, draw=draw)
        parts.append(loss.view(gate.size(0), num, -1))
    return torch.cat(parts, dim=1)
