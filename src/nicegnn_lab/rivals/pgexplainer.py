"""PGExplainer: a network that predicts masks from node states, fitted on many graphs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from torch import Tensor

from nicegnn.intervention.query import Query
from nicegnn.seeding import mix
from nicegnn_lab.rivals.masks import EdgeMLP, MaskConfig, MaskPredictor, mean_log_prob, share_bonds

Margin = Annotated[float, "lie between 0 and 0.5", lambda v: 0 < v < 0.5]


@dataclass(frozen=True)
class PGExplainerConfig(MaskConfig):
    margin: Margin = 0.01  # noise of the samples is uniform on (margin, 1 - margin)
    symmetrise: bool = True  # masks of a bond's directions are averaged while training


class PGExplainer(MaskPredictor):
    r"""Predicts masks with one network for all graphs (Luo et al., NeurIPS 2020).

    .. math:: \min_\theta \frac1{|B|} \sum_{G \in B} -\log p_{\hat y}(G \odot m)
        + a \sum_e m_e + \frac{b}{|E|} \sum_e H(0.99\, m_e + 0.005),
        \qquad \epsilon \sim U(\beta, 1 - \beta)

    Symbols: :math:`\beta` -> ``margin``; :math:`a, b` -> ``size``, ``entropy``; others as in
    `MaskPredictor`.
    """

    name = "pgexplainer"
    mechanisms = ("em", "nc", "exchange")
    config_type = PGExplainerConfig
    config: PGExplainerConfig

    def _loss(self, net: EdgeMLP, query: Query, step: int, seed: int) -> Tensor:
        mask = self._sample(self._logit(net, query), step, seed, self.config.margin).sigmoid()
        if self.config.symmetrise:
            mask = share_bonds(query.case, mask)
        loss = -mean_log_prob(query, mask, self.num_draws, mix(seed, "noise"))  # [B]
        return self._penalised(loss, query, mask, margin=0.005).mean()
