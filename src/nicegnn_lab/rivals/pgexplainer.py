"""PGExplainer: a network that predicts masks from node states, fitted on many graphs."""

from torch import Tensor

from nicegnn.intervention.query import Query
from nicegnn.seeding import mix
from nicegnn_lab.rivals.masks import EdgeMLP, MaskPredictor, mean_log_prob, share_bonds


class PGExplainer(MaskPredictor):
    r"""Predicts masks with one network for all graphs (Luo et al., NeurIPS 2020).

    .. math:: \min_\theta \frac1{|B|} \sum_{G \in B} -\log p_{\hat y}(G \odot m)
        + a \sum_e m_e + \frac{b}{|E|} \sum_e H(0.99\, m_e + 0.005)

    Symbols: :math:`a, b` -> ``size``, ``entropy``; others as in `MaskPredictor`.
    """

    name = "pgexplainer"
    mechanisms = ("em", "nc", "exchange")

    def _losses(self, net: EdgeMLP, query: Query, step: int, seed: int) -> list[Tensor]:
        mask = self._sample(self._logit(net, query), step, seed).sigmoid()
        mask = share_bonds(query.case, mask)
        loss = -mean_log_prob(query, mask, self.num_draws, mix(seed, "noise"))  # [B]
        return [self._penalised(loss, query, mask, margin=0.005).mean()]
