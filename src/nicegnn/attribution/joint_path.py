"""Boundary-Integrated Gradient (BIG): attributes the fall of restoration risk to bonds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

import numpy as np
import torch
from torch import Tensor

from nicegnn.boundary.srb import check_answers, restoration_risk, risk_slope
from nicegnn.config import Count, NICEConfig, Quadrature, check_choice, check_number
from nicegnn.intervention.query import Query
from nicegnn.seeding import mix


@dataclass(frozen=True)
class PathAttribution:
    """Attribution along a path with its quality report; names are those of an `Explanation`."""

    bond_loss: Tensor  # attribution of each bond, [M]
    bond_stderr: Tensor  # standard error of each score over noise draws, [M]
    risk_corrupted: Tensor  # R(0) of each graph, [B]
    risk_boundary: Tensor  # R(rho*) of each graph, [B]
    completeness_gap: Tensor  # distance of total score from R(0) - R(rho*), [B]


def boundary_integrated_gradient(
    query: Query, boundary: Tensor, config: NICEConfig, seed: int
) -> PathAttribution:
    r"""Integrates the fall of restoration risk along the path from corruption to the boundary.

    .. math:: s_e = -\rho^*_e \int_0^1 \frac{\partial R}{\partial \rho_e}(t\rho^*)\,dt
        \approx -\rho^*_e \sum_k w_k \frac1N \sum_n c_{kn} \frac{\partial d_{kn}}{\partial \rho_e}
        \qquad \text{(Eq. 17, 26)}

    Symbols: :math:`\rho^*` -> ``boundary``, ``[M]``; :math:`t_k, w_k` -> quadrature nodes and
    weights; :math:`d_{kn}` -> degradation of draw n at node k; :math:`c_{kn}` -> ``risk_slope``.

    Draws are new at every node. Each has its own copy of the gates, so its share is known.
    """
    case, path, beta = query.case, config.attribution, config.boundary.beta
    num_draws = path.num_draws
    r0, r1 = (
        restoration_risk(query.sample(gate, num_draws, mix(seed, "ends")), beta)
        for gate in (torch.zeros_like(boundary), boundary)
    )
    check_answers(query, r0)
    nodes, weights = path_nodes(path.quadrature, path.num_nodes)
    share = boundary.new_zeros(num_draws, boundary.numel())  # score of each draw, [N, M]
    for k, (t, w) in enumerate(zip(nodes.tolist(), weights.tolist(), strict=True)):
        with torch.enable_grad():
            d, slope = query.slopes(t * boundary, num_draws, mix(seed, "path", k))  # [N, B], [N, M]
        c = risk_slope(d, beta)[:, case.bonds.batch]  # [N, M]
        share -= w * boundary * c * slope
    score = share.mean(0)
    total = score.new_zeros(case.num_graphs).index_add(0, case.bonds.batch, score)
    return PathAttribution(score, standard_error(share), r0, r1, (total - (r0 - r1)).abs())


def standard_error(share: Tensor) -> Tensor:
    """Returns the standard error of the mean over draws, nan for a single draw."""
    is_bare = share.size(0) < 2 or share.size(1) == 0  # of which PyTorch would warn
    return torch.full_like(share[0], torch.nan) if is_bare else share.std(0) / share.size(0) ** 0.5


def path_nodes(rule: str, num: int) -> tuple[Tensor, Tensor]:
    r"""Returns nodes :math:`t_k` and weights :math:`w_k` with
    :math:`\int_0^1 g(t)\,dt \approx \sum_k w_k g(t_k)`, float64, ``[T]`` each.

    ``riemann`` has right end points (the paper's rule), the others Gauss-Legendre nodes:
    ``gauss-linear`` in :math:`t`; ``gauss`` in :math:`u` with :math:`t = u^2`, because noise makes
    the integrand grow like :math:`t^{-1/2}`.

    Example:
        >>> t, w = path_nodes("gauss", 4)
        >>> round(float((w * t.rsqrt()).sum()), 12)  # the integral of t**-0.5 is 2
        2.0
    """
    check_choice("quadrature", rule, get_args(Quadrature))
    check_number("num_nodes", num, Count)
    if rule == "riemann":
        right = torch.arange(1, num + 1, dtype=torch.float64) / num
        return right, torch.full_like(right, 1 / num)
    roots, weights = np.polynomial.legendre.leggauss(num)
    u, du = (roots + 1) / 2, weights / 2  # on [0, 1]
    t, w = (u**2, 2 * u * du) if rule == "gauss" else (u, du)
    return torch.from_numpy(t), torch.from_numpy(w)
