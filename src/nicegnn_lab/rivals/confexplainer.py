"""ConfExplainer: masks with a learned confidence that mixes them with noise."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from nicegnn.explain.explainer import Count, NotNegative, Positive
from nicegnn.intervention.query import Query
from nicegnn.seeding import mix
from nicegnn_lab.rivals import masks
from nicegnn_lab.rivals.masks import EdgeMLP, MaskConfig, MaskPredictor
from nicegnn_lab.rivals.references import true_edges


@dataclass(frozen=True)
class ConfExplainerConfig(MaskConfig):
    learning_rate: Positive = 5e-3  # Adam
    steps: Count = 600  # even ones train the masks, odd ones the confidence
    size: NotNegative = 3e-4  # weight of the sum of a graph's mask
    entropy: NotNegative = 0.3  # weight of the mean entropy of a graph's mask
    agreement: NotNegative = 0.1  # weight of confidence where mask and reference differ


class ConfidentMasks(nn.Module):
    r"""A mask network and a confidence head.

    .. math:: c_e = \sigma\big(w^\top [\mathrm{ReLU}(W\, \mathrm{ReLU}([z_u \| z_v])) \,\|\, m_e]
        + b\big)
    """

    def __init__(self, in_size: int, hidden_size: int) -> None:
        super().__init__()
        self.mask = EdgeMLP(in_size, hidden_size)
        self.inner = nn.Sequential(nn.ReLU(), nn.Linear(in_size, 4), nn.ReLU())  # 4 as released
        self.outer = nn.Linear(5, 1)

    def confidence(self, z: Tensor, mask: Tensor) -> Tensor:
        """Returns the confidence in the mask of each directed edge, ``[E]``."""
        return self.outer(torch.cat([self.inner(z), mask.unsqueeze(1)], dim=1)).sigmoid().squeeze(1)


class ConfExplainer(MaskPredictor):
    r"""Predicts masks and a confidence in them, without truth (Zhang et al., KDD 2025).

    .. math:: \min \frac1{|B|} \sum_{G \in B} -\log p_{\hat y}(G \odot m') + a \sum_e m'_e
        + \frac{b}{|E|} \sum_e H(m'_e) + \lambda \sum_e c_e |t_e - m_e|

    .. math:: m_e = \sigma(s_e), \qquad m'_e = \sigma(c_e s_e + (1 - c_e)\, \xi_e), \qquad
        \xi_e \sim N(0, 1)

    Symbols: :math:`s` -> ``sample``, ``[E]``, a relaxed sample around the mask network's
    ``logit``, ``[E]``, which is also the score; :math:`m` -> ``mask``; :math:`m'` -> ``noisy``;
    :math:`c` -> ``confidence`` of the head, ``[E]``; :math:`t` -> `_reference`, 1 where the logit
    is positive, without slope; :math:`a, b, \lambda` -> ``size``, ``entropy``, ``agreement``.
    """

    name = "confexplainer"
    mechanisms = ("em", "nc", "exchange")
    config_type = ConfExplainerConfig
    config: ConfExplainerConfig

    def _make_network(self, shape: Mapping[str, Any]) -> nn.Module:
        return ConfidentMasks(shape["in_size"], self.config.hidden_size)

    def _mask_network(self, net: ConfidentMasks) -> nn.Module:
        return net.mask

    def _moved(self, net: ConfidentMasks, step: int) -> list[nn.Parameter]:
        head = [*net.inner.parameters(), *net.outer.parameters()]
        return head if step % 2 else list(net.mask.parameters())

    def _losses(self, net: ConfidentMasks, query: Query, step: int, seed: int) -> list[Tensor]:
        config, case = self.config, query.case
        z = masks.edge_states(query, config.layers)
        logit = net.mask(z)
        sample = self._sample(logit, step, seed)
        mask = sample.sigmoid()
        confidence = net.confidence(z, mask)
        noise = masks.normal_noise(sample, mix(seed, "confidence"))
        noisy = masks.share_bonds(case, (confidence * sample + (1 - confidence) * noise).sigmoid())
        loss = -masks.mean_log_prob(query, noisy, self.num_draws, mix(seed, "noise"))  # [B]
        loss = self._penalised(loss, query, noisy)
        difference = confidence * (self._reference(query, logit) - mask).abs()
        untrue = masks.graph_sum(case, difference, masks.reached_edges(case))  # [B]
        return [(loss + config.agreement * untrue).mean()]

    def _reference(self, query: Query, logit: Tensor) -> Tensor:
        return (logit.detach() > 0).to(logit.dtype)  # [E]


@dataclass(frozen=True)
class ConfExplainerSupervisedConfig(ConfExplainerConfig):
    agreement: NotNegative = 1.0  # weight of confidence where mask and truth differ


class ConfExplainerSupervised(ConfExplainer):
    """ConfExplainer whose reference is the ``edge_truth`` of training graphs; explain() needs none.

    Tables must list it apart from methods that see predictions only.
    """

    name = "confexplainer-supervised"
    config_type = ConfExplainerSupervisedConfig

    def _reference(self, query: Query, logit: Tensor) -> Tensor:
        return true_edges(query).to(logit.dtype)
