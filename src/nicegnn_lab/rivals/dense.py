"""Graphs as padded matrices, the target's answer on weighted node pairs, and rivals with both."""

import copy
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor
from torch_geometric.data import Batch
from torch_geometric.utils import to_dense_batch

from nicegnn.errors import GraphError
from nicegnn.explain.call import FitWork
from nicegnn.explain.explainer import Count, ScoreConfig
from nicegnn.intervention.intervene import intervene
from nicegnn.intervention.mechanisms import ElementMask
from nicegnn.intervention.query import Query
from nicegnn.target.frozen_model import Target
from nicegnn_lab.rivals.learned import LearnedConfig, LearnedRival, Survey

Pairs = Literal["auto", "all", "bonds"]
NO_SHIFT = 0.01  # largest change of probabilities that we ignore


@dataclass(frozen=True)
class DenseConfig(LearnedConfig):
    pairs: Pairs = "auto"  # "all", "bonds"; "auto": "all" if pairs of weight 0 change no answer
    max_nodes: Count = 60  # the fit leaves out larger graphs


class DenseRival(LearnedRival):
    """A rival that learns on matrices of node pairs; their number drives the cost."""

    config_type: ClassVar[type[ScoreConfig]] = DenseConfig
    config: DenseConfig
    _pairs: Pairs  # "all" or "bonds", known once the training graphs were read

    def _survey(self, work: FitWork) -> Survey:
        survey, most = super()._survey(work), self.config.max_nodes
        small = survey.stack.num_nodes[survey.kept] <= most  # [G]
        if not bool(small.any()):
            raise GraphError(
                f"`graphs` must hold a graph with edges and at most {most} nodes (got "
                f"{small.numel()} larger ones). Raise `max_nodes`."
            )
        kept, explained = survey.kept[small], survey.explained[small]
        return replace(survey, kept=kept, explained=explained, example=survey.stack.take(kept[:8]))

    def _shape_of(self, survey: Survey) -> dict[str, Any]:
        pairs = self.config.pairs
        shift = 0.0 if pairs == "bonds" else joining_shift(survey.target, survey.example)
        if pairs == "auto":
            pairs, shift = ("bonds", 0.0) if shift > NO_SHIFT else ("all", shift)
        self._pairs = pairs
        return {
            "x_size": node_features(survey.example).size(1),
            "num_left_out": int((survey.stack.num_edges > 0).sum()) - survey.kept.numel(),
            "joining_shift": shift,
            "pairs": pairs,
        }

    def _notes(self, query: Query) -> list[str]:
        left_out, shift = self._shape["num_left_out"], self._shape["joining_shift"]
        notes, most = [], self.config.max_nodes
        if left_out:
            notes.append(f"The fit left out {left_out} graphs of more than {most} nodes.")
        if shift > NO_SHIFT:
            effect = f"Pairs of weight 0 change the model's probabilities by up to {shift:.2f}"
            notes.append(f"{effect}; use pairs='bonds' for this model.")
        return notes


@dataclass(frozen=True)
class DenseGraphs:
    """Graphs as matrices, padded to the largest of them; padding is zero everywhere."""

    x: Tensor  # node features as numbers, [B, N, F]
    adjacency: Tensor  # 1 for bonded pairs, symmetric, nothing on the diagonal, [B, N, N]
    present: Tensor  # which places hold a node, [B, N]
    home: tuple[Tensor, ...]  # graph, place of sender and of receiver of directed edges, 3 x [E]
    edge: Tensor  # number of each directed edge in the batch, [E]

    @property
    def pair(self) -> Tensor:
        """Pairs of two different nodes of a graph, ``[B, N, N]``."""
        both = self.present.unsqueeze(2) & self.present.unsqueeze(1)
        return both & ~torch.eye(both.size(1), dtype=torch.bool, device=both.device)

    def from_edges(self, value: Tensor) -> Tensor:
        """Puts a value per directed edge, ``[E]``, on pairs, ``[B, N, N]``.

        A pair takes the mean over all its edges in both directions; pairs without edges are 0.
        """
        zeros = value.new_zeros(self.adjacency.shape)
        total = zeros.index_put(self.home, value, accumulate=True)
        count = zeros.index_put(self.home, torch.ones_like(value), accumulate=True)
        return (total + total.mT) / (count + count.mT).clamp(min=1)


def standardise(value: Tensor, present: Tensor, *dims: int) -> Tensor:
    """Gives each channel (last dimension) mean 0 and variance 1 over the present items of `dims`.

    `present` is 1 for an item and 0 for padding, which becomes 0.
    """
    number = present.sum(dims, keepdim=True).clamp(min=1)
    centred = (value - (value * present).sum(dims, keepdim=True) / number) * present
    variance = centred.square().sum(dims, keepdim=True) / number
    return centred / (variance + 1e-5).sqrt()


def node_features(batch: Batch) -> Tensor:
    """Returns node features as numbers, ``[V, F]``; a constant for graphs without any."""
    x = batch.get("x")
    if not isinstance(x, Tensor):
        return torch.ones(int(batch.num_nodes), 1, device=batch.edge_index.device)
    return x.float().view(x.size(0), -1)


def edge_homes(batch: Batch) -> tuple[Tensor, ...]:
    """Returns graph, place of sender and place of receiver of each directed edge, ``[E]`` each."""
    graph = batch.batch[batch.edge_index[0]]
    return graph, *(batch.edge_index - batch.ptr[graph])


def to_dense(batch: Batch, chosen: Tensor | None = None) -> DenseGraphs:
    """Returns the chosen graphs of a batch as matrices, by default all."""
    row = torch.arange(int(batch.num_graphs), device=batch.batch.device)  # of each graph
    if chosen is not None:
        row = torch.full_like(row, -1).index_copy(0, chosen, row[: chosen.numel()])
    num, is_in = int(row.max()) + 1, row[batch.batch] >= 0
    feature = node_features(batch)[is_in]
    x, present = to_dense_batch(feature, row[batch.batch[is_in]], batch_size=num)
    graph, u, v = edge_homes(batch)
    edge = (row[graph] >= 0).nonzero().view(-1)
    graph, u, v = row[graph[edge]], u[edge], v[edge]
    adjacency = x.new_zeros(*present.shape, present.size(1))
    adjacency[graph, u, v] = adjacency[graph, v, u] = 1
    adjacency.diagonal(dim1=1, dim2=2).zero_()
    return DenseGraphs(x, adjacency, present, (graph, u, v), edge)


def join_all_pairs(batch: Batch) -> Batch:
    """Returns the batch with all unbonded pairs of a graph's nodes joined, behind its own edges."""
    graphs = to_dense(batch)
    graph, u, v = (graphs.pair & (graphs.adjacency == 0)).nonzero().t()
    added = torch.stack([u, v]) + batch.ptr[graph]  # [2, P]
    out = copy.copy(batch)
    for key, value in batch.to_dict().items():
        if key != "edge_index" and isinstance(value, Tensor) and batch.is_edge_attr(key):
            shape, fill = (added.size(1), *value.shape[1:]), int(key == "edge_weight")  # else 0
            out[key] = torch.cat([value, value.new_full(shape, fill)])
    out.edge_index = torch.cat([batch.edge_index, added], dim=1)
    return out


def pair_answers(target: Target, batch: Batch, weight: Tensor, pairs: Pairs) -> Tensor:
    """Returns log-probabilities of the target on weighted pairs, ``[B, C]``.

    Messages are multiplied by the symmetric weight of their pair, ``[B, N, N]``, in [0, 1]. Loops
    keep weight 1. Messages pass between ``all`` nodes of a graph, or along its ``bonds`` only.
    """
    joined = join_all_pairs(batch) if pairs == "all" else batch
    graph, u, v = edge_homes(joined)
    gate = torch.where(u == v, 1.0, weight[graph, u, v])  # [E]
    with intervene(target.model, ElementMask(), gate, edge_index=joined.edge_index):
        return target.read(target.call(joined))


@torch.no_grad()
def joining_shift(target: Target, batch: Batch) -> float:
    """Returns the largest change of the target's answers when all pairs are joined at weight 0.

    It is zero for sums over neighbours. GCN, GAT and means also count pairs that send nothing.
    """
    adjacency = to_dense(batch).adjacency
    clean = pair_answers(target, batch, adjacency, "bonds")
    joined = pair_answers(target, batch, adjacency, "all")
    return float((clean.exp() - joined.exp()).abs().max())


def parts_by_size(num_nodes: Tensor, budget: int) -> Iterator[Tensor]:
    """Yields graphs in groups of similar size with at most `budget` padded pairs, ``[b]`` each."""
    order = num_nodes.argsort(stable=True)
    sizes = num_nodes[order].tolist()
    first = 0
    for last in range(1, len(sizes) + 1):
        if last == len(sizes) or (last + 1 - first) * sizes[last] ** 2 > budget:
            yield order[first:last]
            first = last
