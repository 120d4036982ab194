"""Occlusion: what the explained logit loses when one bond is taken out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from nicegnn.baselines.base import Baseline, BaselineConfig
from nicegnn.noise import mix
from nicegnn.query import Query, bond_numbers


@dataclass(frozen=True)
class OcclusionConfig(BaselineConfig):
    """Settings of occlusion: none of its own."""


class Occlusion(Baseline):
    r"""Scores a bond by the fall of the explained logit when its messages alone are damaged.

    .. math:: s_b = f_c(\mathbf 1) - \frac1N \sum_n f_c^{(n)}(\mathbf 1 - \mathbf 1_b)

    Symbols: :math:`\mathbf 1 - \mathbf 1_b` -> ``gate``, 0 on both directions of bond b and 1
    elsewhere; :math:`f_c^{(n)}` -> `Query.evidence` under draw n, ``[R, B]``, R copies at a time;
    :math:`s_b` -> the bond's score, returned on its edges, ``[E]``.

    Copy k of a batch has the k-th bond of every graph damaged, so a batch costs as many copies as
    its largest graph has bonds (times draws).

    ========  ======================  =============  =======================================
    ..        paper                   released code  here
    ========  ======================  =============  =======================================
    takes     a grey square in an     \-             the messages of a bond, to 0 (em) or to
    out       image                                  noise of their norm (nc)
    of        class probability       \-             logit
    ========  ======================  =============  =======================================
    """

    name = "occlusion"
    config_type = OcclusionConfig
    mechanisms: ClassVar[tuple[str, ...]] = ("em", "nc")

    @torch.no_grad()
    def _edge_score(self, query: Query, seed: int) -> Tensor:
        case, bonds, num_draws = query.case, query.case.bonds, self.num_draws
        number, most = bond_numbers(case)
        row_bond = torch.arange(most, device=number.device).repeat_interleave(num_draws)  # [K N]
        whole = query.evidence(query.clean.new_ones(1, case.num_edges))  # [1, B]
        score = query.clean.new_zeros(number.numel())
        for first in range(0, row_bond.numel(), query.chunk_draws):
            is_out = number == row_bond[first : first + query.chunk_draws, None]  # [R, M]
            gate = case.edge_gate((~is_out).to(score.dtype))  # [R, E]
            fall = whole - query.evidence(gate, mix(seed, "occlusion"), first)  # [R, B]
            score += torch.where(is_out, fall[:, bonds.batch], 0).sum(0) / num_draws
        return score[bonds.edge_bond]
