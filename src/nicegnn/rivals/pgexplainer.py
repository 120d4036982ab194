"""PGExplainer: a network that predicts masks from node states, fitted on many graphs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from nicegnn.errors import ConfigError
from nicegnn.intervention.query import Query
from nicegnn.rivals.base import BaselineConfig
from nicegnn.rivals.learned import LearnedBaseline, LearnedConfig, Survey
from nicegnn.rivals.masks import (
    EdgeMLP,
    binary_entropy,
    check_layers,
    check_numbers,
    cooled,
    edge_state_size,
    edge_states,
    graph_mean,
    graph_sum,
    reached_edges,
    relax,
    share_bonds,
)
from nicegnn.seeding import mix


@dataclass(frozen=True)
class PGExplainerConfig(LearnedConfig):
    """Settings of PGExplainer."""

    size: float = 0.005  # weight of the sum of a graph's mask
    entropy: float = 1.0  # weight of the mean entropy of a graph's mask
    first_temperature: float = 5.0  # of the relaxed samples at the first step
    last_temperature: float = 1.0  # and at the last
    margin: float = 0.01  # noise of the samples is uniform on (margin, 1 - margin)
    hidden_size: int = 64  # width of the network
    layers: str = "last"  # node states it sees: of the ``last`` layer, or of ``all``
    symmetrise: bool = True  # masks of a bond's directions are averaged while training

    def __post_init__(self) -> None:
        super().__post_init__()
        check_layers(self.layers)
        check_numbers(
            self,
            positive=("first_temperature", "last_temperature"),
            not_negative=("size", "entropy"),
            whole=("hidden_size",),
        )
        if not 0 < self.margin < 0.5:
            raise ConfigError(f"`margin` must lie between 0 and 0.5 (got {self.margin!r}).")


class PGExplainer(LearnedBaseline):
    r"""Predicts masks with one network for all graphs (Luo et al., NeurIPS 2020).

    .. math:: \min_\theta \frac1{|B|} \sum_{G \in B} -\log p_{\hat y}(G \odot m)
        + a \sum_e m_e + \frac{b}{|E|} \sum_e H(0.99\, m_e + 0.005)

    .. math:: m_e = \sigma\big((\log \epsilon - \log(1 - \epsilon) + \omega_e) / T\big), \qquad
        \omega_e = \mathrm{MLP}_\theta([z_u \| z_v]), \quad \epsilon \sim U(\beta, 1 - \beta)

    Symbols: :math:`z` -> the target's node states, ``[V, F]``; :math:`\omega` -> ``logit``,
    ``[E]``, also the score; :math:`m` -> ``mask``, ``[E]``; :math:`T` -> temperature, from
    ``first_temperature`` to ``last_temperature``; :math:`\beta` -> ``margin``; :math:`a` ->
    ``size``; :math:`b` -> ``entropy``.

    ============== ====================== ========================= ==============================
    ..             paper's code           PyG                       here
    ============== ====================== ========================= ==============================
    a, b           0.01, 0.01; later      0.05, 1                   0.005, 1: better fidelity on
                   3e-4, 0.3                                        validation molecules
    temperature    5 to 1                 5 to 2                    5 to 1
    directions     averaged in training   apart                     averaged (``symmetrise``)
    size term      of :math:`\sigma(m)`   of m                      of m
    step           \-                     one per call              one per mini-batch, the mean of
                                                                    each graph's own loss
    score          m                      m                         :math:`\omega`, without ties
    node tasks     \-                     explained node's state    the same
                                          appended
    ============== ====================== ========================= ==============================
    """

    name = "pgexplainer"
    mechanisms = ("em", "nc")
    config_type: ClassVar[type[BaselineConfig]] = PGExplainerConfig
    config: PGExplainerConfig

    def _shape_of(self, survey: Survey) -> dict[str, Any]:
        layers, level = self.config.layers, self.target.level
        return {"in_size": edge_state_size(survey.state_sizes, layers, level)}

    def _make_network(self, shape: Mapping[str, Any]) -> nn.Module:
        return EdgeMLP(shape["in_size"], self.config.hidden_size)

    def _loss(self, net: EdgeMLP, query: Query, step: int, seed: int) -> Tensor:
        config, case = self.config, query.case
        logit = net(edge_states(query, config.layers))
        temperature = cooled(config.first_temperature, config.last_temperature, step, config.steps)
        mask = relax(logit, temperature, mix(seed, "relax"), config.margin).sigmoid()
        if config.symmetrise:
            mask = share_bonds(case, mask)
        counted = reached_edges(case)
        loss = -self._log_prob(query, mask, mix(seed, "noise"))  # [B]
        loss = loss + config.size * graph_sum(case, mask, counted)
        entropy = binary_entropy(0.99 * mask + 0.005)
        return (loss + config.entropy * graph_mean(case, entropy, counted)).mean()

    @torch.no_grad()
    def _edge_score(self, query: Query, seed: int) -> Tensor:
        net = self._fitted()
        return net(edge_states(query, self.config.layers))
