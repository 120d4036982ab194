"""Second opinions beside NICE: slopes, their integral, and what the logit loses with a bond."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from nicegnn.attribution.joint_path import path_nodes
from nicegnn.explain.explainer import Count, ScoreConfig, ScoreExplainer
from nicegnn.graph.case import merge_equal
from nicegnn.intervention.one_part import damage_each_bond
from nicegnn.intervention.query import Query
from nicegnn.seeding import mix


@dataclass(frozen=True)
class SaliencyConfig(ScoreConfig):
    absolute: bool = True  # size of the slope; else the slope with its sign


class Saliency(ScoreExplainer):
    r"""Scores an edge by the slope of the explained class's logit in its messages' weight.

    .. math:: s_e = \left| \frac{\partial f_c}{\partial m_e} \right|_{m = 1}

    Symbols: :math:`m_e` -> ``gate``, ``[1, E]``, one weight per directed edge in all layers;
    :math:`f_c` -> `Query.evidence`, ``[1, B]``; :math:`s_e` -> the returned score, ``[E]``.
    Absolute values are taken before a bond's directions are averaged.
    """

    name = "saliency"
    config_type = SaliencyConfig
    config: SaliencyConfig

    def _edge_score(self, query: Query, seed: int) -> Tensor:
        gate = query.clean.new_ones(1, query.case.num_edges)
        slope = evidence_slope(query, gate)[0]  # [E]
        return slope.abs() if self.config.absolute else slope


@dataclass(frozen=True)
class IntegratedGradientsConfig(ScoreConfig):
    num_nodes: Count = 16  # points on the path


class IntegratedGradients(ScoreExplainer):
    r"""Integrates the slope of the explained logit while all gates rise together from 0 to 1.

    .. math:: s_b = \int_0^1 \sum_{e \in b}
        \mathbb{E}\Big[\frac{\partial f_c}{\partial \rho_e}(t \mathbf 1)\Big] dt
        \approx \sum_k w_k \frac1N \sum_n \sum_{e \in b}
        \frac{\partial f_c^{(kn)}}{\partial \rho_e}(t_k \mathbf 1)

    Symbols: :math:`\rho_e` -> ``gate``, ``[R, E]``; :math:`t_k, w_k` -> `path_nodes`;
    :math:`f_c^{(kn)}` -> `Query.evidence` under draw n at node k, ``[R, B]``, R copies at a time;
    :math:`s_b` -> the bond's score, returned on its edges, ``[E]``. A bond gets the sum over its
    directions, so scores of a graph sum to :math:`f_c(\mathbf 1) - \mathbb{E} f_c(\mathbf 0)`. The
    paper's path goes through pixels, ours through messages; noise is new at every node.
    """

    name = "integrated-gradients"
    config_type = IntegratedGradientsConfig
    mechanisms = ("em", "nc", "exchange")
    config: IntegratedGradientsConfig

    def _edge_score(self, query: Query, seed: int) -> Tensor:
        case, bonds, num_draws = query.case, query.case.bonds, self.num_draws
        rule = "gauss" if query.is_random else "gauss-linear"  # see `path_nodes`
        nodes, weights = path_nodes(rule, self.config.num_nodes)
        t = nodes.repeat_interleave(num_draws).to(query.clean)  # [K N], node by node
        w = (weights / num_draws).repeat_interleave(num_draws).to(query.clean)
        score = query.clean.new_zeros(case.num_edges)
        for first in range(0, t.numel(), query.chunk_draws):
            part = slice(first, first + query.chunk_draws)
            gate = case.edge_gate(t[part, None].expand(-1, bonds.batch.numel()))  # [R, E]
            score += w[part] @ evidence_slope(query, gate, mix(seed, "path"), first)
        return bonds.sum(score)[bonds.edge_bond]


class Occlusion(ScoreExplainer):
    r"""Scores a bond by the fall of the explained logit when only its messages are damaged.

    .. math:: s_b = f_c(\mathbf 1) - \frac1N \sum_n f_c^{(n)}(\mathbf 1 - \mathbf 1_b)

    Symbols: :math:`\mathbf 1 - \mathbf 1_b` -> ``gate``, 0 on both directions of bond b and 1
    elsewhere; :math:`f_c^{(n)}` -> `Target.evidence` under draw n;
    :math:`s_b` -> the bond's score, returned on its edges, ``[E]``. Scores of a graph that differ
    by rounding alone are made equal, as those of NICE.
    """

    name = "occlusion"
    mechanisms = ("em", "nc", "exchange")

    @torch.no_grad()
    def _edge_score(self, query: Query, seed: int) -> Tensor:
        case, bonds = query.case, query.case.bonds
        whole = query.evidence(query.clean.new_ones(1, case.num_edges))[0]  # [B]
        score = query.clean.new_zeros(bonds.batch.numel())
        for part in damage_each_bond(query, self.num_draws, mix(seed, "occlusion")):
            graph = bonds.batch[part.item]
            left = query.target.evidence(part.output.unsqueeze(0), query.explained[graph])[0]
            score.index_add_(0, part.item, (whole[graph] - left) / self.num_draws)
        score = merge_equal(score, bonds.batch, query.clean.abs().amax(1))
        return score[bonds.edge_bond]


def evidence_slope(query: Query, edge_gate: Tensor, stream: int = 0, first: int = 0) -> Tensor:
    """Returns the slope of each copy's evidence (see `Query`) in its own gates, ``[N, E]``."""
    gate = edge_gate.detach().clone().requires_grad_()
    with torch.enable_grad():
        return slope_in(query.evidence(gate, stream, first), gate)


def slope_in(value: Tensor, gate: Tensor) -> Tensor:
    """Returns the slope of a summed value in the gates, 0 if it does not depend on them."""
    slope = None
    if value.requires_grad:
        (slope,) = torch.autograd.grad(value.sum(), gate, allow_unused=True)
    return torch.zeros_like(gate) if slope is None else slope
