"""D4Explainer: a denoiser that turns noisy graphs into near-by graphs of another class."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits
from torch_geometric.data import Data

from nicegnn.errors import ConfigError, GraphError, TargetError
from nicegnn.graph.minibatches import GraphStack
from nicegnn.intervention.query import Query
from nicegnn.rivals.base import BaselineConfig
from nicegnn.rivals.dense import (
    DenseGraphs,
    cap_nodes,
    check_pairs,
    dense_facts,
    dense_notes,
    other_log_prob,
    pair_answers,
    parts_by_size,
    to_dense,
)
from nicegnn.rivals.learned import LearnedBaseline, LearnedConfig, Survey
from nicegnn.rivals.masks import check_numbers
from nicegnn.rivals.ppgn import PPGN
from nicegnn.seeding import mix, slot_numbers

SIGNS = ("removed", "kept")


@dataclass(frozen=True)
class D4Config(LearnedConfig):
    """Settings of `D4Explainer`."""

    learning_rate: float = 1e-3  # Adam
    steps: int = 150  # optimisation steps; 600 kept no more of the prediction (Benzene)
    fit_batch_size: int = 32  # graphs per step
    num_draws: int = 50  # noisy copies whose logits are averaged for a score
    num_levels: int = 10  # T, noisy copies per graph and step
    max_level: float = 0.4  # noise levels are uniform between 0 and this share of flipped pairs
    alpha: float = 0.5  # weight of the counterfactual loss
    positive_weight: float = 2.5  # weight of bonds against unbonded pairs in the distance
    hidden_size: int = 64  # channels per node pair in the denoiser
    num_blocks: int = 6  # blocks of the denoiser
    pairs: str = "bonds"  # "all" node pairs carry messages of the target, or "bonds" alone
    sign: str = "removed"  # important is what the denoiser would have "removed", or "kept"
    max_nodes: int = 60  # larger graphs are left out of the fit
    chunk_pairs: int = 250_000  # node pairs (times copies) in one call of the denoiser

    def __post_init__(self) -> None:
        super().__post_init__()
        check_numbers(
            self,
            not_negative=("alpha", "positive_weight"),
            whole=("num_levels", "hidden_size", "num_blocks", "max_nodes", "chunk_pairs"),
        )
        check_pairs(self.pairs)
        if self.sign not in SIGNS:
            raise ConfigError(f"`sign` must be one of {SIGNS} (got {self.sign!r}).")
        if not 0 < self.max_level <= 0.5:
            raise ConfigError(f"`max_level` must lie in (0, 0.5] (got {self.max_level!r}).")


class D4Explainer(LearnedBaseline):
    r"""Scores bonds by how readily a counterfactual denoiser would remove them.

    .. math::
        \tilde A^t &= A \oplus \mathrm{Bernoulli}(\sigma_t), \qquad
            \sigma_t \sim U(0, \sigma_{\max}), \qquad
            s^t = \mathrm{PPGN}(\tilde A^t, x, \sigma_t) \\
        L &= \tfrac1T \sum_t (1 - 2 \sigma_t + \tfrac1T)\, \mathrm{BCE}(s^t, A)
            - \alpha \log\big(1 - p_{\hat y}(\sigma(\tfrac1T \textstyle\sum_t s^t))\big) \\
        \mathrm{score}_{uv} &= - \tfrac1D \textstyle\sum_d s^d_{uv}

    Symbols: :math:`A` -> ``graphs.adjacency``, ``[B, N, N]``; :math:`\sigma_t` -> ``level``,
    ``[T, B]``; :math:`s` -> ``logit``, ``[T, B, N, N]``; :math:`p_{\hat y}` -> the frozen target's
    probability of the class it predicts, its messages multiplied by the pair weights; D ->
    ``num_draws``. The first term keeps the generated graph close, the second changes its class.

    It generates graphs; it was not made to rank bonds, and its authors release no such score.

    ============== ================================ ==============================================
    ..             paper and released code          here
    ============== ================================ ==============================================
    score          none for bonds; one script takes minus the mean logit: what would go is
                   high logits for important        important; ``sign="kept"`` is the other way
    message pairs  all node pairs                   ``pairs="bonds"``: where neighbours are summed,
                                                    N/2 half-strength messages drown the bonds;
                                                    where they are counted or compared (GCN, GAT),
                                                    pairs of weight 0 already change the answer.
                                                    ``"all"`` is the original
    bond features  not supported                    zeros for new pairs, 1 for ``edge_weight``
    level weights  tiled in the wrong order for     each level its own
                   batches of more than one
    distance       mean over all padded pairs and   mean over a graph's own pairs, then over graphs
                   the diagonal
    products       as they are                      divided by the root of N
    dropout        1e-3                             none, so that no global state is drawn from
    learning rate  decays by 0.999 per epoch        constant
    training       800 epochs, then the state that  ``steps``, then the last state; on a GPU the
                   changes graphs least             denoiser multiplies in bfloat16
    graph size     all, at cubic cost               up to ``max_nodes`` in the fit; larger graphs
                                                    are explained, in parts of ``chunk_pairs``
    ============== ================================ ==============================================

    The denoiser is not told which class to leave: scores are for the predicted class, whatever
    ``target`` asks for.

    Cost grows with the cube of a graph's nodes and at the defaults asks for a GPU: a step takes
    about 0.3 TFLOP on molecules of 30 nodes, a score 12 GFLOP. ``hidden_size``, ``num_blocks`` and
    ``num_levels`` make it smaller.
    """

    name = "d4explainer"
    explain_settings = frozenset({"sign", "num_draws"})
    config_type: ClassVar[type[BaselineConfig]] = D4Config
    config: D4Config
    _pairs: str  # "all" or "bonds", known once the training graphs were read

    def _survey(self, units: Sequence[Data], progress: bool) -> Survey:
        survey = super()._survey(units, progress)
        if self.target.mode == "regression":
            raise TargetError(
                "d4explainer looks for graphs of another class; a regression model has no classes."
            )
        return cap_nodes(survey, self.config.max_nodes)

    def _shape_of(self, survey: Survey) -> dict[str, Any]:
        x_size = to_dense(survey.example).x.size(2)
        facts = dense_facts(survey, self.target, self.config.pairs)
        self._pairs = facts["pairs"]
        return {"x_size": x_size, **facts}

    def _make_network(self, shape: Mapping[str, Any]) -> nn.Module:
        return PPGN(shape["x_size"], self.config.hidden_size, self.config.num_blocks)

    def _loss(self, net: Any, query: Query, step: int, seed: int) -> Tensor:
        parts = [d + self.config.alpha * c for d, c in self._losses(net, query, seed)]
        return torch.stack(parts).sum()

    def _take_step(
        self, net: nn.Module, optimiser: torch.optim.Optimizer, query: Query, step: int, seed: int
    ) -> dict[str, float]:
        """Adds up gradients over parts of the batch, so that memory stays bounded."""
        report = {"loss": 0.0, "distance": 0.0, "counterfactual": 0.0}
        parameters = list(net.parameters())
        for distance, counterfactual in self._losses(net, query, seed):
            loss = distance + self.config.alpha * counterfactual
            for parameter, grad in zip(
                parameters, torch.autograd.grad(loss, parameters), strict=True
            ):
                parameter.grad = grad if parameter.grad is None else parameter.grad + grad
            for key, value in zip(report, (loss, distance, counterfactual), strict=True):
                report[key] += float(value.detach())
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        return report

    def _losses(self, net: Any, query: Query, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yields distance and counterfactual loss of parts of a batch; their sums are its means."""
        config, batch = self.config, query.case.batch
        stack = GraphStack(batch, batch.edge_index.device)
        sizes = stack.num_nodes
        num_graphs, longest = sizes.numel(), int(sizes.max())
        generator = torch.Generator().manual_seed(seed)
        level = config.max_level * torch.rand(config.num_levels, num_graphs, generator=generator)
        chance = torch.rand(config.num_levels, num_graphs, longest, longest, generator=generator)
        level, chance = level.to(sizes.device), chance.to(sizes.device)
        for chosen in parts_by_size(sizes, config.chunk_pairs // config.num_levels):
            part = stack.take(chosen)
            graphs = to_dense(part)
            size = graphs.x.size(1)
            one_level = level[:, chosen]  # [T, b]
            noisy = flip_pairs(graphs.adjacency, one_level, chance[:, chosen, :size, :size])
            with torch.autocast("cuda", torch.bfloat16, enabled=noisy.is_cuda):
                logit = _denoise(net, graphs, noisy, one_level).float()  # [T, b, N, N]
            distance = graph_distance(logit, graphs, one_level, config.positive_weight)  # [b]
            weight = logit.mean(0).sigmoid()  # [b, N, N]
            answer = pair_answers(self.target, part, weight, self._pairs)
            counterfactual = -other_log_prob(answer, query.explained[chosen])  # [b]
            yield distance.sum() / num_graphs, counterfactual.sum() / num_graphs

    @torch.no_grad()
    def _edge_score(self, query: Query, seed: int) -> Tensor:
        net, batch, num_draws = self._fitted(), query.case.batch, self.config.num_draws
        sizes = batch.ptr.diff()
        draws = torch.arange(num_draws, device=sizes.device)
        level = self.config.max_level * slot_numbers(mix(seed, "level"), draws, kind="uniform")
        score = torch.zeros(query.case.num_edges, device=sizes.device)
        has_edges = torch.bincount(query.case.edge_batch, minlength=sizes.numel()) > 0
        for size in torch.unique(sizes[has_edges]).tolist():  # one size at a time: no padding
            alike = ((sizes == size) & has_edges).nonzero().view(-1)
            together = max(1, self.config.chunk_pairs // size**2)  # graphs times draws in a call
            for chosen in torch.split(alike, max(1, together // num_draws)):
                graphs = to_dense(batch, chosen)
                total = torch.zeros_like(graphs.adjacency)
                for part in torch.split(draws, max(1, together // chosen.numel())):
                    chance = _addressed_chances(seed, part, size)  # [D, 1, N, N]
                    one_level = level[part].unsqueeze(1).expand(-1, chosen.numel())
                    noisy = flip_pairs(graphs.adjacency, one_level, chance)
                    total += _denoise(net, graphs, noisy, one_level).sum(0)
                score[graphs.edge] = graphs.to_edges(total / num_draws)
        return -score if self.config.sign == "removed" else score

    def _notes(self, query: Query) -> Sequence[str]:
        notes = dense_notes(self._shape, self.config.max_nodes)
        if bool((query.explained != query.clean.argmax(1)).any()):
            notes.append("Scores are for the predicted class, which the denoiser learned to leave.")
        return notes


def flip_pairs(adjacency: Tensor, level: Tensor, chance: Tensor) -> Tensor:
    """Returns noisy copies in which each pair is flipped with the probability of its level.

    Args:
        adjacency: clean graphs, ``[B, N, N]``.
        level: flip probability of each copy, ``[T, B]``.
        chance: uniform numbers, of which those above the diagonal count, ``[T, B, N, N]``.
    """
    flip = (chance < level[:, :, None, None]).triu(1).to(adjacency)
    return (adjacency - flip - flip.mT).abs()


def graph_distance(
    logit: Tensor, graphs: DenseGraphs, level: Tensor, positive_weight: float
) -> Tensor:
    r"""Returns the distance of generated graphs from the clean ones, ``[B]``.

    .. math:: \tfrac1T \sum_t (1 - 2 \sigma_t + \tfrac1T)\, \mathrm{mean}_{u \ne v}\,
        \mathrm{BCE}(s^t_{uv}, A_{uv})

    Symbols: :math:`s^t` -> ``logit``, ``[T, B, N, N]``; :math:`A` -> ``graphs.adjacency``;
    :math:`\sigma_t` -> ``level``, ``[T, B]``; bonds count ``positive_weight`` times.
    """
    pair = graphs.pair.to(logit)  # [B, N, N]
    bce = binary_cross_entropy_with_logits(
        logit,
        graphs.adjacency.expand_as(logit),
        pos_weight=logit.new_tensor(positive_weight),
        reduction="none",
    )
    mean = (bce * pair).sum((2, 3)) / pair.sum((1, 2)).clamp(min=1)  # [T, B]
    return ((1 - 2 * level + 1 / level.size(0)) * mean).mean(0)


def _denoise(net: Any, graphs: DenseGraphs, noisy: Tensor, level: Tensor) -> Tensor:
    """Returns the denoiser's logits of noisy copies, ``[T, B, N, N]``."""
    num = noisy.size(0)
    if graphs.x.size(2) != net.x_size:
        raise GraphError(
            f"The denoiser was fitted on graphs with {net.x_size} node features (got "
            f"{graphs.x.size(2)}): explain graphs with the same features as those of fit()."
        )
    x = graphs.x.repeat(num, 1, 1)
    present = graphs.present.repeat(num, 1)
    return net(noisy.flatten(0, 1), x, level.flatten(), present).view_as(noisy)


def _addressed_chances(seed: int, draws: Tensor, size: int) -> Tensor:
    """Returns uniform numbers of the pairs above the diagonal, ``[D, 1, N, N]``.

    A pair's number is fixed by seed, draw and its two places, whatever the size of the graph.
    """
    place = torch.arange(size, device=draws.device)
    u, v = place.unsqueeze(1), place.unsqueeze(0)
    slot = torch.where(u < v, v * (v - 1) // 2 + u, 0)  # [N, N]
    rows = [slot_numbers(mix(seed, "flip", d), slot, kind="uniform") for d in draws.tolist()]
    return torch.stack(rows).unsqueeze(1)
