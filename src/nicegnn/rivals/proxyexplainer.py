"""ProxyExplainer: masks judged on generated graphs that look like the training graphs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid
from torch_geometric.data import Data

from nicegnn.errors import ConfigError
from nicegnn.intervention.query import Query
from nicegnn.optimisation import descend
from nicegnn.rivals.base import BaselineConfig
from nicegnn.rivals.dense import (
    DenseGraphs,
    cap_nodes,
    check_pairs,
    dense_facts,
    dense_notes,
    other_log_prob,
    pair_answers,
    to_dense,
)
from nicegnn.rivals.learned import LearnedBaseline, LearnedConfig, Survey
from nicegnn.rivals.masks import (
    EdgeMLP,
    binary_entropy,
    check_numbers,
    cooled,
    edge_state_size,
    edge_states,
    graph_mean,
    graph_sum,
    normal_noise,
    reached_edges,
    relax,
)
from nicegnn.rivals.proxy_generator import ProxyGenerator, reconstruction
from nicegnn.seeding import mix


@dataclass(frozen=True)
class ProxyConfig(LearnedConfig):
    """Settings of `ProxyExplainer`."""

    learning_rate: float = 3e-3  # Adam, explainer
    steps: int = 300  # steps of the explainer
    fit_batch_size: int = 64  # graphs per step
    size: float = 0.005  # a, weight of the sum of the mask
    entropy: float = 1.0  # b, weight of the mean entropy of the mask
    first_temperature: float = 5.0  # of the relaxed samples, at the first step
    last_temperature: float = 1.0  # at the last step
    hidden_size: int = 64  # width of the explainer
    generator_learning_rate: float = 3e-3  # Adam, generator
    generator_steps: int = 10  # steps of the generator before each step of the explainer
    generator_sizes: tuple[int, ...] = (128, 128, 64)  # widths of its graph convolutions
    latent_size: int = 64  # its latent numbers per node
    identity_size: int = 32  # random numbers that tell it a node's place
    noise_scale: float = 1.0  # share of its spread by which it perturbs what is not explanation
    pairs: str = "auto"  # the proxy joins "all" node pairs, or weighs the "bonds" alone
    max_nodes: int = 60  # larger graphs are left out of the fit

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "generator_sizes", tuple(self.generator_sizes))
        check_numbers(
            self,
            positive=("generator_learning_rate", "first_temperature", "last_temperature"),
            not_negative=("size", "entropy", "noise_scale"),
            whole=("hidden_size", "generator_steps", "latent_size", "identity_size", "max_nodes"),
        )
        sizes = self.generator_sizes
        if not sizes or not all(type(size) is int and size > 0 for size in sizes):
            raise ConfigError(f"`generator_sizes` must hold widths of at least 1 (got {sizes!r}).")
        check_pairs(self.pairs)


class ProxyExplainer(LearnedBaseline):
    r"""Predicts masks whose generated proxy graphs keep the prediction (Chen et al., ICML 2024).

    .. math::
        \omega_e &= \mathrm{MLP}([z_u \| z_v]), \qquad
            m_e = \sigma((\log \epsilon - \log(1 - \epsilon) + \omega_e) / T) \\
        \tilde A &= \max(\mathrm{gen}(m), \mathrm{gen}(1 - m; \mathrm{noise})) \\
        L_{\mathrm{gen}} &= \sum_{u \ne v} \mathrm{BCE}(\tilde A_{uv}, A_{uv}) + \mathrm{KL}, \qquad
        L = -\log p_{\hat y}(\tilde A) + a \sum_e m_e + \frac{b}{|E|} \sum_e H(m_e)

    Symbols: :math:`z` -> states of the target's last layer, ``[V, F]``; :math:`\omega` ->
    ``logit``, ``[E]``, also the score; :math:`m` -> ``mask``, ``[E]``; :math:`T` -> temperature;
    :math:`\tilde A` -> sigmoid of ``proxy``, ``[B, N, N]``; gen -> `ProxyGenerator`;
    :math:`p_{\hat y}(\tilde A)` -> the frozen target, its messages multiplied by the proxy's
    weights; :math:`a, b` -> ``size``, ``entropy``. All terms are means over graphs.

    Each step first moves the generator alone, `generator_steps` times, on a fixed mask; then draws
    the proxy anew and moves the explainer alone.

    ============== ================================ ==============================================
    ..             paper and released code          here
    ============== ================================ ==============================================
    proxy nodes    a template with as many atoms    the graph's own nodes: dummy atoms would
                   of each type as any graph has    change every sum over nodes
    decoder        pooled latent to all pairs of    pooled and own latents of two nodes to their
                   the template                     pair, so that size and order are free
    identity       place in the template            random numbers of a node's place
    sizes          1024-512-256, latent 512         128-128-64, latent 64: a graph is smaller than
                                                    the template
    message pairs  all node pairs, as edge weights  ``pairs="auto"``: all, by weights on messages,
                                                    where pairs of weight 0 leave the model's
                                                    answer alone (sums over neighbours, GIN); else
                                                    the graph's bonds (GCN, GAT, means)
    bond features  none                             zeros for new pairs, 1 for ``edge_weight``
    update order   the generator moves before the   generator first, on a detached mask; then a
                   explainer's backward pass, which new proxy for the explainer
                   current PyTorch refuses
    target class   of the padded template           of the graph itself
    updates        100, of all graphs at once, 10   300, of 64 graphs, 10 generator steps each:
                   generator steps each             with 3 at a third of the rate, proxies were so
                                                    poor that masks emptied
    graph size     all                              up to ``max_nodes`` in the fit, for its square
                                                    cost; all are explained
    size weight    shrinks with each seed           constant
    mask           one value per direction          one per bond, as scores are per bond
    temperature    5 to 5, or 5 to 1                5 to 1
    noise          0.01 of a variational sample     the full sample (``noise_scale=1``): at 0.01
                                                    the rest comes back whole, the proxy is the
                                                    graph whatever the mask, and the size term
                                                    empties it
    node codes     as they are                      mean 0 and variance 1 over a graph's nodes
    ============== ================================ ==============================================
    """

    name = "proxyexplainer"
    config_type: ClassVar[type[BaselineConfig]] = ProxyConfig
    config: ProxyConfig
    _pairs: str  # "all" or "bonds", known once the training graphs were read

    def _survey(self, units: Sequence[Data], progress: bool) -> Survey:
        return cap_nodes(super()._survey(units, progress), self.config.max_nodes)

    def _shape_of(self, survey: Survey) -> dict[str, Any]:
        graphs = to_dense(survey.example)
        width = edge_state_size(survey.state_sizes, "last", self.target.level)
        facts = dense_facts(survey, self.target, self.config.pairs)
        self._pairs = facts["pairs"]
        return {
            "edge_size": width,
            "x_size": graphs.x.size(2),
            "density": float(graphs.adjacency.sum() / graphs.pair.sum()),
            **facts,
        }

    def _make_network(self, shape: Mapping[str, Any]) -> nn.Module:
        config = self.config
        generator = ProxyGenerator(
            shape["x_size"],
            config.generator_sizes,
            config.latent_size,
            config.identity_size,
            config.noise_scale,
            min(max(shape["density"], 0.01), 0.99),
        )
        explainer = EdgeMLP(shape["edge_size"], config.hidden_size)
        return nn.ModuleDict({"explainer": explainer, "generator": generator})

    def _optimiser(self, net: Any) -> torch.optim.Optimizer:
        config = self.config
        return torch.optim.Adam(
            [
                {"params": net["explainer"].parameters(), "lr": config.learning_rate},
                {"params": net["generator"].parameters(), "lr": config.generator_learning_rate},
            ]
        )

    def _take_step(
        self, net: Any, optimiser: torch.optim.Optimizer, query: Query, step: int, seed: int
    ) -> dict[str, float]:
        graphs = to_dense(query.case.batch)
        with torch.no_grad():
            mask = graphs.from_edges(self._mask(net, query, step, seed)) * graphs.adjacency
        for number in range(self.config.generator_steps):
            drawn = self._generator_loss(net, graphs, mask, mix(seed, "generator", number))
            descend(drawn, list(net["generator"].parameters()), optimiser)
        loss = self._loss(net, query, step, seed)
        descend(loss, list(net["explainer"].parameters()), optimiser)
        return {"loss": float(loss.detach()), "generator": float(drawn.detach())}

    def _generator_loss(self, net: Any, graphs: DenseGraphs, mask: Tensor, seed: int) -> Tensor:
        """Returns how unlike the input graphs their proxies are, plus the divergence."""
        proxy, divergence = self._proxy(net, graphs, mask, seed)
        return (reconstruction(proxy, graphs) + divergence).mean()

    def _loss(self, net: Any, query: Query, step: int, seed: int) -> Tensor:
        config, case = self.config, query.case
        graphs = to_dense(case.batch)
        mask = self._mask(net, query, step, seed)  # [E]
        pairs = graphs.from_edges(mask) * graphs.adjacency
        proxy, _ = self._proxy(net, graphs, pairs, mix(seed, "proxy"))
        answer = pair_answers(self.target, case.batch, proxy.sigmoid(), self._pairs)  # [B, C]
        counted = reached_edges(case)
        return (
            self._kept(query, answer)
            + config.size * graph_sum(case, mask, counted)
            + config.entropy * graph_mean(case, binary_entropy(mask), counted)
        ).mean()

    def _mask(self, net: Any, query: Query, step: int, seed: int) -> Tensor:
        """Returns a relaxed sample of the mask, equal in both directions of a bond, ``[E]``."""
        config, bonds = self.config, query.case.bonds
        logit = bonds.mean(net["explainer"](edge_states(query, "last")))  # [M]
        temperature = cooled(config.first_temperature, config.last_temperature, step, config.steps)
        return relax(logit, temperature, mix(seed, "relax")).sigmoid()[bonds.edge_bond]

    def _proxy(
        self, net: Any, graphs: DenseGraphs, mask: Tensor, seed: int
    ) -> tuple[Tensor, Tensor]:
        noise = normal_noise(graphs.x.new_zeros(*graphs.x.shape[:2], self.config.latent_size), seed)
        return net["generator"](graphs, mask, noise)

    def _kept(self, query: Query, answer: Tensor) -> Tensor:
        """Returns minus the log-probability of the explained class, ``[B]``."""
        if self.target.mode == "regression":  # no classes: the squared change
            return self.target.degradation(query.clean, answer.unsqueeze(0), query.explained)[0]
        label = query.explained
        odds = answer.gather(1, label.unsqueeze(1)).squeeze(1) - other_log_prob(answer, label)
        return -logsigmoid(odds)  # slopes stay exact on confident graphs

    @torch.no_grad()
    def _edge_score(self, query: Query, seed: int) -> Tensor:
        return self._fitted()["explainer"](edge_states(query, "last"))

    def _notes(self, query: Query) -> Sequence[str]:
        return dense_notes(self._shape, self.config.max_nodes)
