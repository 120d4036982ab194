"""Saliency: how steeply the explained logit changes with the weight of each message."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from nicegnn.explain.score_explainer import ScoreConfig, ScoreExplainer
from nicegnn.intervention.query import Query


@dataclass(frozen=True)
class SaliencyConfig(ScoreConfig):
    absolute: bool = True  # size of the slope; else the slope with its sign


class Saliency(ScoreExplainer):
    r"""Scores an edge by the slope of the explained class's logit in its messages' weight.

    .. math:: s_e = \left| \frac{\partial f_c}{\partial m_e} \right|_{m = 1}

    Symbols: :math:`m_e` -> ``gate``, ``[1, E]``, one weight per directed edge in all layers;
    :math:`f_c` -> `Query.evidence`, ``[1, B]``; :math:`s_e` -> the returned score, ``[E]``.
    Absolute values are taken before a bond's directions are averaged.

    ========  ======================  =======================  =====================================
    ..        paper                   released code            here
    ========  ======================  =======================  =====================================
    slope in  pixels; features of     edge mask (PyG, Captum)  edge mask, equal to PyG with Captum
              nodes and edges
    of        class score             the model's own output   logit; log-probability of models that
                                                               return probabilities
    graphs    one                     one                      a batch
    ========  ======================  =======================  =====================================
    """

    name = "saliency"
    config_type = SaliencyConfig
    config: SaliencyConfig

    def _edge_score(self, query: Query, seed: int) -> Tensor:
        gate = query.clean.new_ones(1, query.case.num_edges)
        slope = evidence_slope(query, gate)[0]  # [E]
        return slope.abs() if self.config.absolute else slope


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
