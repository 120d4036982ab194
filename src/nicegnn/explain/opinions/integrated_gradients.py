"""Integrated gradients: slopes of the explained logit along the path from no messages to all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from nicegnn.attribution.joint_path import path_nodes
from nicegnn.config import Quadrature
from nicegnn.explain.opinions.saliency import evidence_slope
from nicegnn.explain.score_explainer import Count, ScoreConfig, ScoreExplainer
from nicegnn.intervention.query import Query
from nicegnn.seeding import mix

Rule = Literal["auto", Quadrature]


@dataclass(frozen=True)
class IntegratedGradientsConfig(ScoreConfig):
    num_nodes: Count = 16  # points on the path
    quadrature: Rule = "auto"  # see `path_nodes`; auto: "gauss-linear" for em, "gauss-sine" for nc


class IntegratedGradients(ScoreExplainer):
    r"""Integrates the slope of the explained logit while all gates rise together from 0 to 1.

    .. math:: s_b = \int_0^1 \sum_{e \in b}
        \mathbb{E}\Big[\frac{\partial f_c}{\partial \rho_e}(t \mathbf 1)\Big] dt
        \approx \sum_k w_k \frac1N \sum_n \sum_{e \in b}
        \frac{\partial f_c^{(kn)}}{\partial \rho_e}(t_k \mathbf 1)

    Symbols: :math:`\rho_e` -> ``gate``, ``[R, E]``; :math:`t_k, w_k` -> `path_nodes`;
    :math:`f_c^{(kn)}` -> `Query.evidence` under draw n at node k, ``[R, B]``, R copies at a time;
    :math:`s_b` -> the bond's score, returned on its edges, ``[E]``. A bond gets the sum over its
    directions, so scores of a graph sum to :math:`f_c(\mathbf 1) - \mathbb{E} f_c(\mathbf 0)`.

    =========  ===============  ========================  ======================================
    ..         paper            released code             here
    =========  ===============  ========================  ======================================
    path of    pixels           edge mask (PyG, Captum)   edge mask, equal to it for em
    rule       right endpoints  Gauss-Legendre, 50 nodes  same, 16; in :math:`t = \sin^2` for nc
    mechanism  scaling to 0     scaling to 0              scaling to 0 (em), or noise corruption
                                                          (nc), new noise at every node
    graphs     one              one                       a batch
    =========  ===============  ========================  ======================================
    """

    name = "integrated-gradients"
    config_type = IntegratedGradientsConfig
    mechanisms = ("em", "nc", "exchange")
    config: IntegratedGradientsConfig

    @property
    def quadrature(self) -> Quadrature:
        """The rule; slopes under a random mechanism grow at both ends and need "gauss-sine"."""
        if self.config.quadrature != "auto":
            return self.config.quadrature
        return "gauss-sine" if getattr(self.mechanism, "is_random", True) else "gauss-linear"

    def _edge_score(self, query: Query, seed: int) -> Tensor:
        case, bonds, num_draws = query.case, query.case.bonds, self.num_draws
        nodes, weights = path_nodes(self.quadrature, self.config.num_nodes)
        t = nodes.repeat_interleave(num_draws).to(query.clean)  # [K N], node by node
        w = (weights / num_draws).repeat_interleave(num_draws).to(query.clean)
        score = query.clean.new_zeros(case.num_edges)
        for first in range(0, t.numel(), query.chunk_draws):
            part = slice(first, first + query.chunk_draws)
            gate = case.edge_gate(t[part, None].expand(-1, bonds.batch.numel()))  # [R, E]
            score += w[part] @ evidence_slope(query, gate, mix(seed, "path"), first)
        return bonds.sum(score)[bonds.edge_bond]
