"""D4Explainer: a denoiser that turns noisy graphs into similar graphs of another class."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from nicegnn.errors import GraphError
from nicegnn.explain.explainer import Count, NotNegative, Positive
from nicegnn.graph.minibatches import GraphStack
from nicegnn.intervention.query import Query
from nicegnn.seeding import mix
from nicegnn.target.losses import other_log_prob
from nicegnn_lab.rivals import dense
from nicegnn_lab.rivals.dense import DenseConfig, DenseGraphs, DenseRival, Pairs, to_dense
from nicegnn_lab.rivals.references import slot_numbers

Sign = Literal["removed", "kept"]
Level = Annotated[float, "lie in (0, 0.5]", lambda v: 0 < v <= 0.5]


@dataclass(frozen=True)
class D4Config(DenseConfig):
    learning_rate: Positive = 1e-3  # Adam
    steps: Count = 150  # optimisation steps; 600 kept no more of the prediction (Benzene)
    fit_batch_size: Count = 32  # graphs per step
    num_draws: Count = 50  # noisy copies whose logits are averaged for a score
    num_levels: Count = 10  # T, noisy copies per graph and step
    max_level: Level = 0.4  # largest share of flipped pairs; levels are uniform below it
    alpha: NotNegative = 0.5  # weight of the counterfactual loss
    positive_weight: NotNegative = 2.5  # weight of bonds against unbonded pairs in the distance
    hidden_size: Count = 64  # channels per node pair in the denoiser
    num_blocks: Count = 6  # blocks of the denoiser
    pairs: Pairs = "bonds"  # messages of the target pass along "bonds", or between "all" nodes
    sign: Sign = "removed"  # important bonds are those that the denoiser "removed", or "kept"
    chunk_pairs: Count = 250_000  # node pairs (times copies) in one call of the denoiser


class D4Explainer(DenseRival):
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
    ``num_draws``. The first term keeps the generated graph close, the second changes its class. The
    authors generate graphs and release no score of bonds.

    Scores are always for the predicted class, also if ``target`` names another: the denoiser does
    not see a class. The cost grows with the cube of a graph's nodes. The defaults need a GPU: with
    30 nodes, a step takes about 0.3 TFLOP, a score 12 GFLOP.
    """

    name = "d4explainer"
    config_type = D4Config
    config: D4Config

    def _make_network(self, shape: Mapping[str, Any]) -> nn.Module:
        return PPGN(shape["x_size"], self.config.hidden_size, self.config.num_blocks)

    def _losses(self, net: Any, query: Query, step: int, seed: int) -> Iterator[Tensor]:
        config, batch = self.config, query.case.batch
        stack = GraphStack(batch, batch.edge_index.device)
        sizes = stack.num_nodes
        num_graphs, longest = sizes.numel(), int(sizes.max())
        generator, shape = torch.Generator().manual_seed(seed), (config.num_levels, num_graphs)
        level = config.max_level * torch.rand(shape, generator=generator).to(sizes.device)
        chance = torch.rand(*shape, longest, longest, generator=generator).to(sizes.device)
        for chosen in dense.parts_by_size(sizes, config.chunk_pairs // config.num_levels):
            part, one_level = stack.take(chosen), level[:, chosen]  # [T, b]
            graphs = to_dense(part)
            size = graphs.x.size(1)
            noisy = flip_pairs(graphs.adjacency, one_level, chance[:, chosen, :size, :size])
            with torch.autocast("cuda", torch.bfloat16, enabled=noisy.is_cuda):
                logit = _denoise(net, graphs, noisy, one_level).float()  # [T, b, N, N]
            distance = graph_distance(logit, graphs, one_level, config.positive_weight)  # [b]
            weight = logit.mean(0).sigmoid()  # [b, N, N]
            answer = dense.pair_answers(query.target, part, weight, self._pairs)
            counterfactual = -other_log_prob(answer.unsqueeze(0), query.explained[chosen])[0]  # [b]
            yield distance.sum() / num_graphs + config.alpha * (counterfactual.sum() / num_graphs)

    @torch.no_grad()
    def _edge_score(self, query: Query, seed: int) -> Tensor:
        net, case, num_draws = self._fitted(), query.case, self.config.num_draws
        draws = torch.arange(num_draws, device=query.clean.device)
        level = self.config.max_level * slot_numbers(mix(seed, "level"), draws, kind="uniform")
        score = torch.zeros(case.num_edges, device=draws.device)
        has_edges = torch.bincount(case.edge_batch, minlength=case.num_graphs) > 0
        sizes = torch.where(has_edges, case.batch.ptr.diff(), 0)
        for size in torch.unique(sizes).tolist():  # one size at a time: no padding
            if size == 0:
                continue
            together = max(1, self.config.chunk_pairs // size**2)  # graphs times draws in a call
            alike = (sizes == size).nonzero().view(-1)
            for chosen in torch.split(alike, max(1, together // num_draws)):
                graphs = to_dense(case.batch, chosen)
                total = torch.zeros_like(graphs.adjacency)
                for part in torch.split(draws, max(1, together // chosen.numel())):
                    chance = _addressed_chances(seed, part, size)  # [D, 1, N, N]
                    one_level = level[part].unsqueeze(1).expand(-1, chosen.numel())
                    noisy = flip_pairs(graphs.adjacency, one_level, chance)
                    total += _denoise(net, graphs, noisy, one_level).sum(0)
                score[graphs.edge] = (total / num_draws)[graphs.home]
        return -score if self.config.sign == "removed" else score

    def _notes(self, query: Query) -> list[str]:
        notes = super()._notes(query)
        if bool((query.explained != query.clean.argmax(1)).any()):
            notes.append("Scores are for the predicted class; d4explainer can explain no other.")
        return notes


def flip_pairs(adjacency: Tensor, level: Tensor, chance: Tensor) -> Tensor:
    """Returns copies with pairs flipped where the chance is below the level, ``[T, B, N, N]``."""
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
    pair, wanted = graphs.pair.to(logit), graphs.adjacency.expand_as(logit)
    weight = logit.new_tensor(positive_weight)
    bce = binary_cross_entropy_with_logits(logit, wanted, pos_weight=weight, reduction="none")
    mean = (bce * pair).sum((2, 3)) / pair.sum((1, 2)).clamp(min=1)  # [T, B]
    return ((1 - 2 * level + 1 / level.size(0)) * mean).mean(0)


def _denoise(net: Any, graphs: DenseGraphs, noisy: Tensor, level: Tensor) -> Tensor:
    """Returns the denoiser's logits of noisy copies, ``[T, B, N, N]``."""
    if graphs.x.size(2) != net.x_size:
        raise GraphError(
            f"Graphs must have {net.x_size} node features, as in the fit (got "
            f"{graphs.x.size(2)}). Explain graphs with the same features as those of fit()."
        )
    x, present = graphs.x.repeat(len(noisy), 1, 1), graphs.present.repeat(len(noisy), 1)
    return net(noisy.flatten(0, 1), x, level.flatten(), present).view_as(noisy)


def _addressed_chances(seed: int, draws: Tensor, size: int) -> Tensor:
    """Returns a uniform number per draw and pair of places above the diagonal, ``[D, 1, N, N]``."""
    place = torch.arange(size, device=draws.device)
    u, v = place.unsqueeze(1), place.unsqueeze(0)
    slot = torch.where(u < v, v * (v - 1) // 2 + u, 0)  # [N, N]
    rows = [slot_numbers(mix(seed, "flip", d), slot, kind="uniform") for d in draws.tolist()]
    return torch.stack(rows).unsqueeze(1)


class PPGN(nn.Module):
    r"""The denoiser: noisy adjacency, node features and noise level to one logit per node pair.

    .. math::
        h^{(0)}_{uv} &= W [\tilde A_{uv}, x_u, x_v, 1_{u=v}\, n(\sigma)] \\
        h^{(k+1)}_{uv} &= \mathrm{relu}\, \mathrm{norm}\, W^{(k)} \Big[h^{(k)}_{uv},
            \tfrac{1}{\sqrt N} \sum_w a^{(k)}(h^{(k)}_{uw}) \odot b^{(k)}(h^{(k)}_{wv})\Big] \\
        s_{uv} &= \mathrm{MLP}([h^{(0)}, \dots, h^{(K)}]_{uv}), \qquad
            s \leftarrow \tfrac12 (s + s^\top)

    Symbols: :math:`\tilde A` -> ``adjacency``, ``[R, N, N]``; :math:`x` -> ``x``, ``[R, N, F]``;
    :math:`\sigma` -> ``level``, ``[R]``; :math:`n` -> ``noise``, a network 1-4-1; :math:`a, b, W`
    -> ``left``, ``right``, ``join``; norm -> `standardise`, over the pairs of one graph and
    channel; K -> ``num_blocks``; R -> graphs times draws. Padding changes no result.
    """

    def __init__(self, x_size: int, hidden_size: int, num_blocks: int) -> None:
        super().__init__()
        self.x_size = x_size
        self.noise = nn.Sequential(nn.Linear(1, 4), nn.ReLU(), nn.Linear(4, 1))
        self.sender = nn.Linear(x_size, hidden_size)
        self.receiver = nn.Linear(x_size, hidden_size, bias=False)
        self.pair = nn.Linear(2, hidden_size, bias=False)
        self.blocks = nn.ModuleList(_Block(hidden_size) for _ in range(num_blocks))
        self.skips = nn.ModuleList(
            nn.Linear(hidden_size, hidden_size, bias=k == 0) for k in range(num_blocks + 1)
        )
        self.head = nn.Linear(hidden_size, 1)

    def forward(self, adjacency: Tensor, x: Tensor, level: Tensor, present: Tensor) -> Tensor:
        """Returns symmetric logits, ``[R, N, N]``; ignore those of absent nodes."""
        both = (present.unsqueeze(2) & present.unsqueeze(1)).unsqueeze(3).to(x)  # [R, N, N, 1]
        size = present.sum(1).to(x)  # [R]
        noise = self.noise(level.unsqueeze(1)).unsqueeze(2) * torch.eye(x.size(1), device=x.device)
        h = self.sender(x).unsqueeze(2) + self.receiver(x).unsqueeze(1)
        h = h + self.pair(torch.stack([adjacency, noise], dim=3))  # [R, N, N, D]
        collected = self.skips[0](h)  # one linear map of all h side by side, as a running sum
        for block, skip in zip(self.blocks, list(self.skips)[1:], strict=True):
            h = block(h, both, size)
            collected = collected + skip(h)
        logit = self.head(collected.relu()).squeeze(3)
        return (logit + logit.mT) / 2


class _Block(nn.Module):
    """Products of pairs along all paths of two steps, joined with the pairs themselves."""

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.left = nn.Linear(hidden_size, hidden_size)
        self.right = nn.Linear(hidden_size, hidden_size)
        self.join = nn.Linear(2 * hidden_size, hidden_size)

    def forward(self, h: Tensor, both: Tensor, size: Tensor) -> Tensor:
        a, b = self.left(h) * both, self.right(h) * both
        product = torch.einsum("ruwd,rwvd->ruvd", a, b) / size.sqrt().view(-1, 1, 1, 1)
        joined = self.join(torch.cat([h, product], dim=3))
        return dense.standardise(joined, both, 1, 2).relu()  # over the pairs of a graph
