"""ReFine: a mask network per class with a contrast between classes, fine-tuned per graph."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from nicegnn.errors import ConfigError, TargetError
from nicegnn.graph.case import Case, rank_within
from nicegnn.intervention.query import Query
from nicegnn.rivals.base import BaselineConfig
from nicegnn.rivals.learned import LearnedBaseline, LearnedConfig, Survey
from nicegnn.rivals.masknets import MaskNetworks, features_of, mask_inputs
from nicegnn.rivals.masks import (
    binary_entropy,
    check_numbers,
    graph_mean,
    reached_edges,
    relax,
    share_bonds,
)
from nicegnn.seeding import mix
from nicegnn.target.inner_states import capture_readout


@dataclass(frozen=True)
class ReFineConfig(LearnedConfig):
    """Settings of ReFine."""

    learning_rate: float = 5e-3  # Adam, of the global stage
    hidden_size: int = 50  # width of the mask networks
    size: float = 1e-4  # weight of the mean of a graph's mask
    entropy: float = 1e-2  # weight of the mean entropy of a graph's mask
    contrast: float = 0.02  # weight of the contrast between classes
    contrast_temperature: float = 0.1  # how sharply the contrast looks at its best graphs
    ratio: float = 0.4  # share of a graph's bonds in the subgraph of contrast and fine-tuning
    fine_tune_steps: int = 20  # steps of each graph's own copy; 0 for the global stage alone
    fine_tune_rate: float = 2e-4  # Adam, of the fine-tuning
    symmetrise: bool = True  # masks of a bond's directions are averaged while training

    def __post_init__(self) -> None:
        super().__post_init__()
        check_numbers(
            self,
            positive=("contrast_temperature", "fine_tune_rate"),
            not_negative=("size", "entropy", "contrast", "fine_tune_steps"),
            whole=("hidden_size",),
        )
        if not 0 < self.ratio <= 1:
            raise ConfigError(f"`ratio` must lie in (0, 1] (got {self.ratio!r}).")


class ReFine(LearnedBaseline):
    r"""A mask network per class, of which each graph tunes a copy (Wang et al., NeurIPS 2021).

    Global stage, with one network :math:`g_c` for each explained class :math:`c`:

    .. math:: \min_\theta \frac1{|B|} \sum_{G \in B} \Big[ -p_{\hat y}(G \odot m)
        + \frac{a}{|E|} \sum_e m_e + \frac{b}{|E|} \sum_e H(m_e) \Big] + \gamma L_{con}

    .. math:: L_{con} = -\log \frac1{|B|} \sum_{G \in B} e^{q_G / \tau}, \qquad
        q_G = \frac{\sum_{G' \ne G,\; \hat y' = \hat y} s(G, G')}{\sum_{G' \ne G} s(G, G')}

    Local stage: a copy of :math:`g_{\hat y}` for each graph takes ``fine_tune_steps`` down the same
    loss on the subgraph of its best bonds, without samples and without contrast.

    Symbols: :math:`m` -> ``mask``, ``[E]``, a relaxed sample of temperature 1 around the network's
    ``logit``, ``[E]``, which is also the score; :math:`s` -> cosine of the target's representations
    of the two best subgraphs, cut at 0, ``[B, B]``; :math:`a, b, \gamma, \tau` -> ``size``,
    ``entropy``, ``contrast``, ``contrast_temperature``. The best subgraph keeps the share ``ratio``
    of a graph's bonds.

    ============== ============================ ==================================================
    ..             released code                here
    ============== ============================ ==================================================
    loss           sum over 256 graphs of -p    mean over graphs; weight 5 / 256 = 0.02 leaves the
                   and 5 times the contrast     contrast as strong per graph as released
    size, entropy  of the batch                 of each graph, so batch size does not matter
    mask           squashed twice (PyG 1.7)     squashed once, as the formula says
    samples        base-2 logarithm             natural logarithm
    contrast       same-class mass without      slopes through both; a graph is not compared with
                   slope                        itself
    graphs         correctly classified ones    all: labels are not used
    rate           1e-3 for 100 epochs, lowered 5e-3 for fewer steps, constant so that runs can be
                   on plateaus                  resumed
    fine-tuning    anew for each reported       once, for ``ratio``
                   share of bonds
    normalisation  of single graphs, unless set fixed statistics of the global stage
                   to eval()
    edge features  needed                       used where graphs have them
    directions     apart                        averaged (``symmetrise``)
    new class      \-                           the network of the commonest class, with a note
    ============== ============================ ==================================================

    The paper's text was not at hand. Where the target has no readout of one row per graph, its
    log-probabilities take the representation's place.
    """

    name = "refine"
    explain_settings = frozenset({"fine_tune_steps"})
    mechanisms = ("em", "nc")
    config_type: ClassVar[type[BaselineConfig]] = ReFineConfig
    config: ReFineConfig

    def _shape_of(self, survey: Survey) -> dict[str, Any]:
        x, edge_attr = features_of(self._query(survey.example, None, None))
        num_classes = 1 if self.target.mode == "regression" else survey.num_classes
        seen = torch.bincount(survey.explained.clamp(min=0), minlength=num_classes)
        return {
            "node_size": x.size(1),
            "edge_size": 0 if edge_attr is None else edge_attr.size(1),
            "seen": seen.tolist(),
        }

    def _make_network(self, shape: Mapping[str, Any]) -> nn.Module:
        return MaskNetworks(
            len(shape["seen"]), shape["node_size"], shape["edge_size"], self.config.hidden_size
        )

    def _loss(self, net: MaskNetworks, query: Query, step: int, seed: int) -> Tensor:
        logit = self._global_logit(net, query, query.explained.clamp(min=0))
        mask = self._shared(query.case, relax(logit, 1.0, mix(seed, "relax")).sigmoid())
        loss = self._graph_loss(query, mask, mask, mix(seed, "noise")).mean()
        if self.config.contrast > 0 and query.case.num_graphs > 1:
            gate = mask * best_bonds(query.case, mask, self.config.ratio)
            rep = self._representation(query, gate, mix(seed, "contrast"))
            pull = contrast_loss(rep, query.explained, self.config.contrast_temperature)
            loss = loss + self.config.contrast * pull
        return loss

    def _edge_score(self, query: Query, seed: int) -> Tensor:
        net: MaskNetworks = self._fitted()
        label = self._known_class(query)
        if self.config.fine_tune_steps == 0:
            with torch.no_grad():
                return self._global_logit(net, query, label)
        return self._tuned_logit(net, query, label, seed)

    def _global_logit(self, net: MaskNetworks, query: Query, label: Tensor) -> Tensor:
        """Returns what the network of each graph's class says, ``[E]``."""
        classes = torch.arange(net.num_classes, device=label.device)
        return net(mask_inputs(query, net, label, classes), net.weights())

    def _tuned_logit(self, net: MaskNetworks, query: Query, label: Tensor, seed: int) -> Tensor:
        """Returns what a copy of that network says when tuned for its graph, ``[E]``."""
        config = self.config
        inputs = mask_inputs(query, net, torch.arange(label.numel(), device=label.device), label)
        copies = {k: v.detach()[label].requires_grad_() for k, v in net.weights().items()}
        # slopes below eps are rounding, which differs by batch; they must not become whole steps
        optimiser = torch.optim.Adam(copies.values(), lr=config.fine_tune_rate, eps=1e-6)
        for step in range(config.fine_tune_steps):
            mask = self._shared(query.case, net(inputs, copies).sigmoid())
            gate = mask * best_bonds(query.case, mask, config.ratio)
            loss = self._graph_loss(query, mask, gate, mix(seed, "tune", step))
            grads = torch.autograd.grad(loss.sum(), list(copies.values()))
            for value, grad in zip(copies.values(), grads, strict=True):
                value.grad = grad
            optimiser.step()
        with torch.no_grad():
            return net(inputs, copies)

    def _graph_loss(self, query: Query, mask: Tensor, gate: Tensor, stream: int) -> Tensor:
        """Returns each graph's loss without contrast, ``[B]``."""
        case, counted = query.case, reached_edges(query.case)
        log_prob = self._log_prob(query, gate, stream)
        kept = log_prob if self.target.mode == "regression" else log_prob.exp()
        penalty = self.config.size * graph_mean(case, mask, counted)
        return (
            penalty + self.config.entropy * graph_mean(case, binary_entropy(mask), counted) - kept
        )

    def _shared(self, case: Case, mask: Tensor) -> Tensor:
        return share_bonds(case, mask) if self.config.symmetrise else mask

    def _representation(self, query: Query, gate: Tensor, stream: int) -> Tensor:
        """Returns what the target reads out of each graph under gates ``[E]``, ``[B, F]``."""
        draws, case = self.num_draws, query.case
        per_draw = case.batch.num_nodes if self.target.level == "node" else case.num_graphs
        with capture_readout(self.target.model, draws * int(per_draw)) as readout:
            out = query.answers(gate.expand(draws, -1), stream)  # [N, B, C]
            try:
                found = readout.value if self.target.is_batched else None
            except TargetError:
                found = None
        if found is None:
            return out.mean(0)
        return found.view(draws, int(per_draw), -1)[:, case.rows].mean(0)

    def _known_class(self, query: Query) -> Tensor:
        """Returns the class whose network serves each graph, ``[B]``."""
        label = query.explained.clamp(min=0)
        seen = torch.tensor(self._shape["seen"], device=label.device)
        return torch.where(seen[label] > 0, label, seen.argmax())

    def _notes(self, query: Query) -> Sequence[str]:
        seen = self._shape["seen"]
        new = sorted({c for c in query.explained.clamp(min=0).tolist() if seen[c] == 0})
        return [
            f"No training graph was predicted as class {c}: the network of class "
            f"{seen.index(max(seen))} was used in its place."
            for c in new
        ]


def best_bonds(case: Case, mask: Tensor, ratio: float) -> Tensor:
    """Returns which directed edges belong to the best bonds of their graph, ``[E]``."""
    score = case.bonds.mean(mask.detach()).mul(1e4).round()  # symmetric bonds tie, in any batch
    score = score.masked_fill(~case.reached, -1.0)
    number = torch.bincount(case.bonds.batch[case.reached], minlength=case.num_graphs)
    wanted = (number * ratio).ceil()
    rank = rank_within(score, case.bonds.batch, case.num_graphs)
    return (rank < wanted[case.bonds.batch])[case.bonds.edge_bond]


def contrast_loss(representation: Tensor, label: Tensor, temperature: float) -> Tensor:
    r"""Returns how badly representations ``[B, F]`` keep to those of their own class, a scalar.

    See :math:`L_{con}` of `ReFine`. Zero slope where all graphs are of one class.
    """
    unit = nn.functional.normalize(representation, dim=1)
    similarity = (unit @ unit.t()).relu()
    others = ~torch.eye(label.numel(), dtype=torch.bool, device=label.device)
    same = (similarity * (others & (label.view(-1, 1) == label))).sum(1)
    share = same / (similarity * others).sum(1).clamp(min=1e-8)  # [B]
    return math.log(label.numel()) - (share / temperature).logsumexp(0)
