"""Occlusion: the fall of the explained logit when one bond is damaged."""

from __future__ import annotations

import torch
from torch import Tensor

from nicegnn.explain.score_explainer import ScoreExplainer
from nicegnn.intervention.one_part import damage_each_bond
from nicegnn.intervention.query import Query
from nicegnn.seeding import mix


class Occlusion(ScoreExplainer):
    r"""Scores a bond by the fall of the explained logit when only its messages are damaged.

    .. math:: s_b = f_c(\mathbf 1) - \frac1N \sum_n f_c^{(n)}(\mathbf 1 - \mathbf 1_b)

    Symbols: :math:`\mathbf 1 - \mathbf 1_b` -> ``gate``, 0 on both directions of bond b and 1
    elsewhere; :math:`f_c^{(n)}` -> `Target.evidence` under draw n;
    :math:`s_b` -> the bond's score, returned on its edges, ``[E]``.

    ========  ======================  =============  =======================================
    ..        paper                   released code  here
    ========  ======================  =============  =======================================
    damages   a grey square in an     \-             the messages of a bond, to 0 (em) or to
              image                                  noise of their norm (nc)
    of        class probability       \-             logit
    ========  ======================  =============  =======================================
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
        return score[bonds.edge_bond]
