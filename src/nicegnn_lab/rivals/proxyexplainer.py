"""ProxyExplainer: masks trained on generated graphs that look like the training graphs."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, normalize

from nicegnn.explain.explainer import Count, Positive
from nicegnn.intervention.query import Query
from nicegnn.optimisation import descend
from nicegnn.seeding import mix
from nicegnn_lab.rivals import dense, masks
from nicegnn_lab.rivals.dense import DenseConfig, DenseGraphs, DenseRival
from nicegnn_lab.rivals.learned import Survey
from nicegnn_lab.rivals.masks import EdgeMLP, MaskConfig, MaskPredictor
from nicegnn_lab.rivals.references import slot_numbers

LAYER_SIZES = (128, 128, 64)  # widths of the generator's graph convolutions
LATENT_SIZE = 64  # its latent numbers per node
IDENTITY_SIZE = 32  # random numbers that identify a node's place


@dataclass(frozen=True)
class ProxyConfig(DenseConfig, MaskConfig):
    fit_batch_size: Count = 64  # graphs per step
    generator_learning_rate: Positive = 3e-3  # Adam, generator
    generator_steps: Count = 10  # steps of the generator before each step of the explainer


class ProxyExplainer(DenseRival, MaskPredictor):
    r"""Predicts masks whose generated proxy graphs keep the prediction (Chen et al., ICML 2024).

    .. math::
        \omega_e &= \mathrm{MLP}([z_u \| z_v]), \qquad
            m_e = \sigma((\log \epsilon - \log(1 - \epsilon) + \omega_e) / T) \\
        \tilde A &= \max(\mathrm{gen}(m), \mathrm{gen}(1 - m; \mathrm{noise})) \\
        L_{\mathrm{gen}} &= \sum_{u \ne v} \mathrm{BCE}(\tilde A_{uv}, A_{uv}) + \mathrm{KL}, \qquad
        L = -\log p_{\hat y}(\tilde A) + a \sum_e m_e + \frac{b}{|E|} \sum_e H(m_e)

    Symbols: :math:`z` -> node states of the target, ``[V, F]``; :math:`\omega` ->
    ``logit``, ``[E]``, also the score; :math:`m` -> ``mask``, ``[E]``; :math:`T` -> temperature;
    :math:`\tilde A` -> sigmoid of ``proxy``, ``[B, N, N]``; gen -> `ProxyGenerator`;
    :math:`p_{\hat y}(\tilde A)` -> the frozen target, its messages multiplied by the proxy's
    weights; :math:`a, b` -> ``size``, ``entropy``. All terms are means over graphs.

    Each step trains the generator alone, `generator_steps` times, on a fixed mask; then it draws a
    new proxy and trains the explainer alone.
    """

    name = "proxyexplainer"
    config_type = ProxyConfig
    config: ProxyConfig

    def _shape_of(self, survey: Survey) -> dict[str, Any]:
        graphs, shape = dense.to_dense(survey.example), super()._shape_of(survey)
        shape["edge_size"] = MaskPredictor._shape_of(self, survey)["in_size"]
        return shape | {"density": float(graphs.adjacency.sum() / graphs.pair.sum())}

    def _make_network(self, shape: Mapping[str, Any]) -> nn.Module:
        generator = ProxyGenerator(shape["x_size"], min(max(shape["density"], 0.01), 0.99))
        explainer = EdgeMLP(shape["edge_size"], self.config.hidden_size)
        return nn.ModuleDict({"explainer": explainer, "generator": generator})

    def _mask_network(self, net: Any) -> nn.Module:
        return net["explainer"]

    def _optimiser(self, net: Any) -> torch.optim.Optimizer:
        explainer, generator = (list(net[part].parameters()) for part in ("explainer", "generator"))
        faster = {"params": generator, "lr": self.config.generator_learning_rate}
        groups: list[dict[str, Any]] = [{"params": explainer}, faster]
        return torch.optim.Adam(groups, lr=self.config.learning_rate)

    def _take_step(
        self, net: Any, optimiser: torch.optim.Optimizer, query: Query, step: int, seed: int
    ) -> dict[str, float]:
        graphs = dense.to_dense(query.case.batch)
        with torch.no_grad():
            mask = graphs.from_edges(self._mask(net, query, step, seed)) * graphs.adjacency
        for number in range(self.config.generator_steps):
            proxy, divergence = self._proxy(net, graphs, mask, mix(seed, "generator", number))
            drawn = (reconstruction(proxy, graphs) + divergence).mean()
            descend(drawn, list(net["generator"].parameters()), optimiser)
        return super()._take_step(net, optimiser, query, step, seed)

    def _moved(self, net: Any, step: int) -> list[nn.Parameter]:
        return list(net["explainer"].parameters())

    def _losses(self, net: Any, query: Query, step: int, seed: int) -> list[Tensor]:
        graphs = dense.to_dense(query.case.batch)
        mask = self._mask(net, query, step, seed)  # [E]
        pairs = graphs.from_edges(mask) * graphs.adjacency
        proxy, _ = self._proxy(net, graphs, pairs, mix(seed, "proxy"))
        answer = dense.pair_answers(query.target, query.case.batch, proxy.sigmoid(), self._pairs)
        loss = -masks.class_log_prob(query, answer.unsqueeze(0))[0]  # [B]
        return [self._penalised(loss, query, mask).mean()]

    def _mask(self, net: Any, query: Query, step: int, seed: int) -> Tensor:
        bonds = query.case.bonds
        logit = bonds.mean(self._logit(net, query))  # [M]
        return self._sample(logit, step, seed).sigmoid()[bonds.edge_bond]

    def _proxy(
        self, net: Any, graphs: DenseGraphs, mask: Tensor, seed: int
    ) -> tuple[Tensor, Tensor]:
        noise = masks.normal_noise(graphs.x.new_zeros(*graphs.x.shape[:2], LATENT_SIZE), seed)
        return net["generator"](graphs, mask, noise)


class ProxyGenerator(nn.Module):
    r"""Draws a graph like the input graph from its explanation and from its other bonds.

    .. math::
        h^{(0)}_u &= [x_u, r_u], \qquad
            h^{(l+1)} = \mathrm{relu}\,\frac{\hat W h^{(l)} \Theta_l}{\|\hat W h^{(l)} \Theta_l\|},
            \qquad \hat W = D^{-1/2} (W + I) D^{-1/2} \\
        z_u &= \mu(h_u) + e^{\log \mathrm{var}(h_u) / 2} \epsilon_u, \qquad
            q_u = \mathrm{norm}\, \mathrm{MLP}([z_u, \max_v z_v, \mathrm{mean}_v z_v]) \\
        s_{uv}(W, \epsilon) &= q_u^\top \mathrm{diag}(c)\, q_v + b, \qquad
            \mathrm{proxy} = \max(\sigma(s(m, 0)), \sigma(s(1 - m, \epsilon)))

    Symbols: :math:`x` -> ``graphs.x``, ``[B, N, F]``; :math:`r` -> ``identity``, fixed random
    numbers of a node's place, ``[N, R]``; :math:`W` -> ``weight``, mask of the bonds,
    ``[B, N, N]``; :math:`\epsilon` -> ``noise``, ``[B, N, Z]``; :math:`c, b` -> ``metric``,
    ``bias``; norm -> `standardise`, over the nodes of a graph, without which all nodes start alike
    and training stalls; Z, R -> `LATENT_SIZE`, `IDENTITY_SIZE`. An untrained generator joins the
    share ``density`` of pairs. The identity separates nodes with equal surroundings; only the
    training of the explainer uses it.
    """

    def __init__(self, x_size: int, density: float) -> None:
        super().__init__()
        sizes, size = [x_size + IDENTITY_SIZE, *LAYER_SIZES], LATENT_SIZE
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(sizes))
        self.mean = nn.Linear(sizes[-1], size)
        self.log_var = nn.Linear(sizes[-1], size)
        inner, last = nn.Linear(3 * size, 2 * size), nn.Linear(2 * size, size)
        self.code = nn.Sequential(inner, nn.ReLU(), last)
        self.metric = nn.Parameter(torch.ones(size) / math.sqrt(size))
        self.bias = nn.Parameter(torch.tensor(math.log(density / (1 - density))))

    def encode(self, graphs: DenseGraphs, weight: Tensor) -> tuple[Tensor, Tensor]:
        """Returns mean and log-variance of latents by weights of bonds, ``[..., B, N, Z]`` each."""
        size = weight.size(-1)
        slot = torch.arange(size * IDENTITY_SIZE, device=weight.device)
        identity = slot_numbers(mix("identity"), slot, kind="normal").view(size, -1)
        identity = identity.expand(weight.size(-3), -1, -1)
        h = torch.cat([graphs.x, identity], dim=2) * graphs.present.unsqueeze(2)
        loops = weight + torch.eye(size, device=weight.device)
        scale = loops.sum(-1).rsqrt()  # [..., B, N]
        spread = scale.unsqueeze(-1) * loops * scale.unsqueeze(-2)
        for layer in self.layers:
            h = normalize(spread @ layer(h), dim=-1).relu()
        return self.mean(h), self.log_var(h)

    def decode(self, graphs: DenseGraphs, z: Tensor) -> Tensor:
        """Returns the logit of each pair of nodes, symmetric, ``[..., B, N, N]``."""
        present = graphs.present.unsqueeze(2)  # [B, N, 1]
        highest = z.masked_fill(~present, -torch.inf).amax(-2, keepdim=True)
        mean = (z * present).sum(-2, keepdim=True) / present.sum(1, keepdim=True)
        context = torch.cat([highest, mean], dim=-1)
        q = self.code(torch.cat([z, context.expand(*z.shape[:-1], -1)], dim=-1))
        q = dense.standardise(q, present.to(q), -2)
        return (q * self.metric) @ q.mT + self.bias

    def forward(self, graphs: DenseGraphs, mask: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the proxy's logit of each pair ``[B, N, N]`` and the divergence ``[B]``.

        The mask, ``[B, N, N]``, is near 1 for bonds of the explanation. Normal noise,
        ``[B, N, Z]``, perturbs the other bonds.
        """
        both, log_vars = self.encode(graphs, torch.stack([mask, graphs.adjacency - mask]))
        mean, log_var = both[1], log_vars[1]
        rest = mean + (log_var / 2).exp() * noise
        logit = torch.maximum(*self.decode(graphs, torch.stack([both[0], rest])))
        divergence = (mean.square() + log_var.exp() - log_var - 1) / 2  # [B, N, Z]
        return logit, (divergence * graphs.present.unsqueeze(2)).sum((1, 2))


def reconstruction(logit: Tensor, graphs: DenseGraphs) -> Tensor:
    r"""Returns the distance of proxies from the input graphs, summed over node pairs, ``[B]``.

    .. math:: \sum_{u \ne v} \mathrm{BCE}(\sigma(s_{uv}), A_{uv})

    Symbols: :math:`s` -> ``logit``, ``[B, N, N]``; :math:`A` -> ``graphs.adjacency``.
    """
    bce = binary_cross_entropy_with_logits(logit, graphs.adjacency, reduction="none")
    return (bce * graphs.pair).sum((1, 2))
