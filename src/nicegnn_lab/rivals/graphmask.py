"""GraphMask: hard gates per layer and edge; a learned vector replaces dropped messages."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from nicegnn.config import Count, NotNegative, Positive
from nicegnn.explain.explainer import ScoreConfig, ScoreExplainer
from nicegnn.intervention.intervene import Site
from nicegnn.intervention.query import Query
from nicegnn.optimisation import descend
from nicegnn.seeding import mix
from nicegnn_lab.rivals.masks import graph_mean, reached_edges
from nicegnn_lab.rivals.references import slot_numbers

TEMPERATURE, LOW, HIGH = 1 / 3, -0.2, 1.0  # of the hard concrete distribution, as released
_START = 2.0  # first location of every gate: open with chance 0.87


@dataclass(frozen=True)
class GraphMaskConfig(ScoreConfig):
    steps: Count = 100  # passes and gradients per layer
    learning_rate: Positive = 0.01  # Adam, of gates and baselines
    penalty: NotNegative = 5.0  # weight of the expected share of open gates
    allowance: NotNegative = 0.03  # degradation that costs nothing
    multiplier_rate: Positive = 0.01  # RMSprop, of the Lagrange multiplier
    multiplier_start: float = 0.55  # of the multiplier, before its softplus


class GraphMask(ScoreExplainer):
    r"""Finds gates per layer and edge that drop as many messages as the prediction allows.

    .. math:: \max_\lambda \min_{a, b} \;
        \kappa \sum_l \frac{1}{|E|} \sum_e P(z_e^{(l)} \ne 0)
        + \lambda \, [d(z) - \beta]_+, \qquad
        \tilde m_e^{(l)} = z_e^{(l)} m_e^{(l)} + (1 - z_e^{(l)}) \, b^{(l)}

    .. math:: s_e = \frac1L \sum_l P(z_e^{(l)} \ne 0)

    Symbols: :math:`a` -> ``location`` of the hard concrete gates, ``[L, E]``; :math:`z` ->
    ``gate``, 0 or 1, ``[L, E]``; :math:`b^{(l)}` -> ``baseline``, ``[B, F]``, one vector per graph
    and layer; :math:`d` -> `Target.degradation`, ``[B]``; :math:`\lambda` -> softplus of
    ``multiplier``, ``[B]``; :math:`\kappa` -> ``config.penalty``; :math:`\beta` -> ``allowance``;
    :math:`s_e` -> the returned score, ``[E]``.

    The last layer's gates are trained first, then also those of the layer before, and so on.
    Losses of graphs are added up and optimisers work per coordinate, so graphs do not influence
    each other. Scores depend on the seed: each step draws the gates once. A rounding error can flip
    a hard gate, so devices may differ on some edges.
    """

    name = "graphmask"
    config_type = GraphMaskConfig
    mechanisms = ()  # `_LayerMask` is its only one
    config: GraphMaskConfig

    @torch.enable_grad()
    def _edge_score(self, query: Query, seed: int) -> Tensor:
        masked, mask = self._masked_query(query)
        config, num_layers, counted = self.config, len(mask.sizes), reached_edges(query.case)
        location = nn.Parameter(query.clean.new_full((num_layers, query.case.num_edges), _START))
        for layer, size in enumerate(mask.sizes):  # the same small random vector for each graph
            generator = torch.Generator().manual_seed(mix(seed, "baseline", layer))
            value = (2 * torch.rand(size, generator=generator) - 1) / math.sqrt(max(size, 1))
            value = value.to(query.clean).repeat(query.case.num_graphs, 1)  # [B, F]
            mask.baseline.append(nn.Parameter(value))
        parameters = [location, *mask.baseline]
        multiplier = torch.full_like(query.clean[:, 0], config.multiplier_start)  # [B]
        descent = torch.optim.Adam(parameters, lr=config.learning_rate)
        ascent = torch.optim.RMSprop([multiplier], lr=config.multiplier_rate, centered=True)
        for lowest in reversed(range(num_layers)):  # this layer and those after it have gates
            for step in range(config.steps):
                mask.gate = self._sample(query, location, lowest, mix(seed, lowest, step))
                chances = keep_chance(location[lowest:])  # [L', E]
                shares = [graph_mean(query.case, chance, counted) for chance in chances]
                penalty = torch.stack(shares).sum(0)  # expected open gates, [B]
                answer = masked.answers(location.new_ones(1, query.case.num_edges))  # [1, B, C]
                d = query.target.degradation(query.clean, answer, query.explained)[0]  # [B]
                excess = (d - config.allowance).clamp(min=0)
                loss = config.penalty * penalty + softplus(multiplier) * excess
                descend(loss.sum(), parameters, descent)
                multiplier.grad = -multiplier.sigmoid() * excess.detach()  # uphill
                ascent.step()
                multiplier.clamp_(-2, 30)
        return keep_chance(location.detach()).mean(0)

    def _sample(self, query: Query, location: Tensor, lowest: int, seed: int) -> Tensor:
        """Draws gates; those of lower layers and of edges out of reach stay open, ``[L, E]``."""
        seeds = (mix(seed, layer) for layer in range(lowest, location.size(0)))
        noise = [slot_numbers(seed, query.case.slot, kind="uniform") for seed in seeds]
        gate = sample_gates(location[lowest:], torch.stack(noise).to(location))
        gate = torch.where(reached_edges(query.case), gate, 1.0)
        return torch.cat([torch.ones_like(location[:lowest]), gate])

    def _masked_query(self, query: Query) -> tuple[Query, _LayerMask]:
        case, mask = query.case, _LayerMask(query.case.edge_batch)
        numbered = replace(case, slot=torch.arange(case.num_edges, device=case.slot.device))
        explained = None if bool((query.explained < 0).any()) else query.explained
        masked = Query(query.target, numbered, mask, explained=explained)
        with torch.no_grad():
            masked.answers(query.clean.new_ones(1, case.num_edges))  # records the sizes of messages
        return masked, mask


class _LayerMask:
    """Replaces dropped messages by gates of each layer; `slot` is the number of an edge."""

    is_random = False

    def __init__(self, edge_batch: Tensor) -> None:
        self.edge_batch = edge_batch
        self.gate: Tensor | None = None  # [L, E]
        self.baseline: list[nn.Parameter] = []  # L x [B, F]
        self.sizes: list[int] = []  # of the messages of each layer

    def __call__(self, message: Tensor, gate: Tensor, site: Site) -> Tensor:
        if self.gate is None:
            self.sizes[site.layer :] = [message.size(1)]
            return message
        z = self.gate[site.layer, site.slot].unsqueeze(1).to(message.dtype)  # [E, 1]
        b = self.baseline[site.layer][self.edge_batch[site.slot]].to(message.dtype)  # [E, F]
        return z * message + (1 - z) * b


def sample_gates(location: Tensor, noise: Tensor) -> Tensor:
    r"""Returns hard concrete gates, 0 or 1, with the slope of the soft gates.

    .. math:: z = \big[\sigma\big((\log u - \log(1 - u) + a) / \tau\big) (\zeta - \gamma)
        + \gamma\big]_0^1, \text{ rounded}

    Symbols: :math:`a` -> ``location``; :math:`u` -> ``noise``, uniform; :math:`\tau, \gamma, \zeta`
    -> ``TEMPERATURE``, ``LOW``, ``HIGH``.
    """
    soft = ((noise.logit() + location) / TEMPERATURE).sigmoid() * (HIGH - LOW) + LOW
    soft = soft.clamp(0, 1)
    return soft + ((soft > 0.5).to(soft.dtype) - soft).detach()


def keep_chance(location: Tensor) -> Tensor:
    r"""Returns the chance that a gate, before rounding, is not zero.

    .. math:: P(z \ne 0) = \sigma\big(a - \tau \log(-\gamma / \zeta)\big)
    """
    return (location - TEMPERATURE * math.log(-LOW / HIGH)).sigmoid()
