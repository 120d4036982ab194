"""GNNExplainer: a mask per graph that keeps the prediction and stays small."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from nicegnn.config import Count, NotNegative, Positive
from nicegnn.explain.explainer import ScoreConfig, ScoreExplainer
from nicegnn.explain.opinions import slope_in
from nicegnn.intervention.query import Query
from nicegnn.seeding import mix
from nicegnn_lab.rivals.masks import add_penalties, graph_sum, mean_log_prob
from nicegnn_lab.rivals.references import slot_numbers


@dataclass(frozen=True)
class GNNExplainerConfig(ScoreConfig):
    steps: Count = 300  # passes and gradients per graph
    learning_rate: Positive = 0.01  # Adam
    size: NotNegative = 0.005  # weight of the sum of the mask
    entropy: NotNegative = 1.0  # weight of the mean entropy of the mask


class GNNExplainer(ScoreExplainer):
    r"""Optimises one mask value per directed edge of each graph (Ying et al., NeurIPS 2019).

    .. math:: \min_w \; -\log p_{\hat y}(G \odot m) + a \sum_e m_e
        + \frac{b}{|E|} \sum_e H(m_e), \qquad m = \sigma(w), \quad w \sim N(0, 2 / |V|)

    Symbols: :math:`w` -> ``logit``, ``[E]``, also the score; :math:`m` -> ``mask``, ``[E]``;
    :math:`G \odot m` -> every message through the mechanism with gate :math:`m_e`; :math:`a` ->
    ``size``; :math:`b` -> ``entropy``; :math:`H` -> entropy of a coin; :math:`|V|, |E|` -> nodes
    and directed edges of the graph. Graphs do not influence each other: losses are added up, and
    Adam works per coordinate.
    """

    name = "gnnexplainer"
    mechanisms = ("em", "nc", "exchange")
    config_type = GNNExplainerConfig
    config: GNNExplainerConfig
    _is_silent = False  # whether a graph of the last batch has no slope at any edge

    def _notes(self, query: Query) -> Sequence[str]:
        note = "Masks do not change the prediction of some graphs: all scores of these are equal."
        return (note,) if self._is_silent else ()

    def _edge_score(self, query: Query, seed: int) -> Tensor:
        case, config, seed = query.case, self.config, mix(seed, "start", 0)
        logit = first_logit(query, seed).requires_grad_()
        has_slope = torch.zeros_like(logit, dtype=torch.bool)
        optimiser = torch.optim.Adam([logit], lr=config.learning_rate)
        for step in range(config.steps):
            mask = logit.sigmoid()
            loss = -mean_log_prob(query, mask, self.num_draws, mix(seed, "step", step))  # [B]
            if step > 0:
                loss = add_penalties(loss, case, mask, has_slope, config.size, config.entropy)
            slope = slope_in(loss, logit)
            if step == 0:
                has_slope = slope != 0
            if not bool(has_slope.any()):  # no message reaches the output
                break
            logit.grad = slope
            optimiser.step()
        return self._put_last(query, logit.detach(), has_slope)

    def _put_last(self, query: Query, logit: Tensor, has_slope: Tensor) -> Tensor:
        """Ranks edges without slope below all others of their graph."""
        case = query.case
        number = graph_sum(case, torch.ones_like(logit), has_slope)
        edges = torch.bincount(case.edge_batch, minlength=case.num_graphs)
        self._is_silent = bool(((number == 0) & (edges > 0)).any())
        lowest = logit.new_zeros(case.num_graphs).scatter_reduce(
            0, case.edge_batch, logit.masked_fill(~has_slope, torch.inf), "amin", include_self=False
        )
        lowest = torch.where(number > 0, lowest, 0.0)
        return torch.where(has_slope, logit, lowest[case.edge_batch] - 1)


def first_logit(query: Query, seed: int) -> Tensor:
    """Returns the first mask before its sigmoid, ``[E]``, with PyG's scale for each graph."""
    case = query.case
    nodes = torch.bincount(case.batch.batch, minlength=case.num_graphs).clamp(min=1)
    scale = (2 / nodes).sqrt()[case.edge_batch]
    return (slot_numbers(seed, case.slot, kind="normal") * scale).to(query.clean.dtype)
