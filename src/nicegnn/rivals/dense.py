"""Graphs of a batch as padded matrices, and the frozen target's answer on weighted node pairs."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import one_hot
from torch_geometric.data import Batch

from nicegnn.errors import ConfigError, GraphError
from nicegnn.graph.minibatches import GraphStack
from nicegnn.intervention.intervene import intervene
from nicegnn.intervention.mechanisms import ElementMask
from nicegnn.rivals.learned import Survey
from nicegnn.target.frozen_model import Target

PAIRS = ("auto", "all", "bonds")
NO_SHIFT = 0.01  # joining pairs at weight 0 must not move probabilities by more


@dataclass(frozen=True)
class DenseGraphs:
    """Graphs as matrices, padded to the largest of them; padding is zero everywhere.

    Attributes:
        x: node features as numbers, ``[B, N, F]``.
        adjacency: 1 for bonded pairs, symmetric, nothing on the diagonal, ``[B, N, N]``.
        present: which places hold a node, ``[B, N]``.
        home: row, place of sender and place of receiver of each directed edge, ``[3, E]``.
        edge: which directed edges of the batch these are, ``[E]``.
    """

    x: Tensor
    adjacency: Tensor
    present: Tensor
    home: Tensor
    edge: Tensor

    @property
    def pair(self) -> Tensor:
        """Pairs of two different nodes of a graph, ``[B, N, N]``."""
        both = self.present.unsqueeze(2) & self.present.unsqueeze(1)
        return both & ~torch.eye(both.size(1), dtype=torch.bool, device=both.device)

    def to_edges(self, matrix: Tensor) -> Tensor:
        """Reads a value per pair, ``[..., B, N, N]``, at each directed edge, ``[..., E]``."""
        graph, sender, receiver = self.home
        return matrix[..., graph, sender, receiver]

    def from_edges(self, value: Tensor) -> Tensor:
        """Puts a value per directed edge, ``[E]``, on pairs, ``[B, N, N]``.

        A pair takes the mean over all its edges in both directions; pairs without edges are 0.
        """
        graph, sender, receiver = self.home
        zeros = value.new_zeros(self.adjacency.shape)
        total = zeros.index_put((graph, sender, receiver), value, accumulate=True)
        count = zeros.index_put((graph, sender, receiver), torch.ones_like(value), accumulate=True)
        return (total + total.mT) / (count + count.mT).clamp(min=1)


def node_features(batch: Batch) -> Tensor:
    """Returns node features as numbers, ``[V, F]``; a constant for graphs without any."""
    x = batch.get("x")
    if not isinstance(x, Tensor):
        return torch.ones(int(batch.num_nodes), 1, device=batch.edge_index.device)
    return x.float().view(x.size(0), -1)


def node_places(batch: Batch) -> Tensor:
    """Returns the position of each node in its own graph, ``[V]``."""
    return torch.arange(batch.batch.numel(), device=batch.batch.device) - batch.ptr[batch.batch]


def edge_homes(batch: Batch) -> Tensor:
    """Returns graph, place of sender and place of receiver of each directed edge, ``[3, E]``."""
    place, (sender, receiver) = node_places(batch), batch.edge_index
    return torch.stack([batch.batch[sender], place[sender], place[receiver]])


def to_dense(batch: Batch, chosen: Tensor | None = None) -> DenseGraphs:
    """Returns graphs of a batch as matrices.

    Args:
        chosen: numbers of the graphs to take, by default all.
    """
    sizes, place = batch.ptr.diff(), node_places(batch)
    if chosen is None:
        chosen = torch.arange(sizes.numel(), device=sizes.device)
    row = torch.full_like(sizes, -1)  # [G], row of each graph of the batch
    row[chosen] = torch.arange(chosen.numel(), device=row.device)
    node = (row[batch.batch] >= 0).nonzero().view(-1)
    at = row[batch.batch[node]], place[node]
    shape = chosen.numel(), int(sizes[chosen].max())
    feature = node_features(batch)
    x = feature.new_zeros(*shape, feature.size(1))
    x[at] = feature[node]
    present = torch.zeros(shape, dtype=torch.bool, device=x.device)
    present[at] = True
    home = edge_homes(batch)
    home = torch.stack([row[home[0]], home[1], home[2]])
    edge = (home[0] >= 0).nonzero().view(-1)
    home = home[:, edge]
    adjacency = x.new_zeros(*shape, shape[1])
    adjacency[home[0], home[1], home[2]] = 1
    adjacency[home[0], home[2], home[1]] = 1
    adjacency.diagonal(dim1=1, dim2=2).zero_()
    return DenseGraphs(x, adjacency, present, home, edge)


def join_all_pairs(batch: Batch) -> Batch:
    """Returns the batch with every unbonded pair of nodes of a graph joined, behind its own edges.

    New edges have no bond features: ``edge_weight`` is 1 for them, every other attribute of edges
    is 0.
    """
    dense = to_dense(batch)
    graph, u, v = (dense.pair & (dense.adjacency == 0)).nonzero().t()
    added = torch.stack([u, v]) + batch.ptr[graph]  # [2, P]
    out = copy.copy(batch)
    for key, value in batch.to_dict().items():
        if key != "edge_index" and isinstance(value, Tensor) and batch.is_edge_attr(key):
            fill = 1 if key == "edge_weight" else 0
            filler = value.new_full((added.size(1), *value.shape[1:]), fill)
            out[key] = torch.cat([value, filler])
    out.edge_index = torch.cat([batch.edge_index, added], dim=1)
    return out


def pair_answers(target: Target, batch: Batch, weight: Tensor, pairs: str) -> Tensor:
    """Returns log-probabilities (or values) of the target on weighted pairs, ``[B, C]``.

    Messages are multiplied by the weight of their pair. Loops of a node to itself stay as they are.

    Args:
        weight: weight in [0, 1] of each pair, symmetric, ``[B, N, N]``; differentiable.
        pairs: ``all`` sends messages between all nodes of a graph, ``bonds`` along its bonds only.
    """
    if not target.is_batched and batch.num_graphs > 1:
        stack = GraphStack(batch, batch.edge_index.device)
        numbers = torch.split(torch.arange(batch.num_graphs), 1)
        sizes = batch.ptr.diff().tolist()
        return torch.cat(
            [
                pair_answers(target, stack.take(g), weight[g, :n, :n], pairs)
                for g, n in zip(numbers, sizes, strict=True)
            ]
        )
    joined = join_all_pairs(batch) if pairs == "all" else batch
    graph, u, v = edge_homes(joined)
    gate = torch.where(u == v, 1.0, weight[graph, u, v])  # [E]
    with intervene(target.model, ElementMask(), gate, edge_index=joined.edge_index):
        out = target.call(joined)
    rows = batch.get("root_index")
    return target.read(out if rows is None else out[rows])


def other_log_prob(answer: Tensor, label: Tensor) -> Tensor:
    r"""Returns :math:`\log(1 - p_y)` from log-probabilities ``[B, C]``, without cancellation."""
    is_label = one_hot(label, answer.size(1)).bool()
    return answer.masked_fill(is_label, -torch.inf).logsumexp(1)


@torch.no_grad()
def joining_shift(target: Target, batch: Batch) -> float:
    """Returns how far joining all pairs at weight 0 moves the target's answers, at most.

    Zero for sums over neighbours. Layers that count or compare neighbours (GCN, GAT, means) see
    the new pairs even when they send nothing.
    """
    adjacency = to_dense(batch).adjacency
    clean = pair_answers(target, batch, adjacency, "bonds")
    joined = pair_answers(target, batch, adjacency, "all")
    if target.mode != "regression":
        clean, joined = clean.exp(), joined.exp()
    return float((clean - joined).abs().max())


def cap_nodes(survey: Survey, max_nodes: int) -> Survey:
    """Leaves graphs of more than `max_nodes` nodes out of those to learn from."""
    small = survey.stack.num_nodes[survey.kept] <= max_nodes  # [G]
    if not bool(small.any()):
        raise GraphError(
            f"All {small.numel()} training graphs with edges have more than max_nodes={max_nodes} "
            "nodes; raise `max_nodes`, at a cost that grows with its square or cube."
        )
    kept = survey.kept[small]
    return replace(
        survey, kept=kept, explained=survey.explained[small], example=survey.stack.take(kept[:8])
    )


def dense_facts(survey: Survey, target: Target, pairs: str) -> dict[str, Any]:
    """Returns which pairs may carry messages and what `dense_notes` tells, as plain values.

    Args:
        pairs: ``auto`` is ``all`` for models that pairs of weight 0 leave alone, else ``bonds``.
    """
    left_out = int((survey.stack.num_edges > 0).sum()) - survey.kept.numel()
    shift = 0.0 if pairs == "bonds" else joining_shift(target, survey.example)
    if pairs == "auto":
        pairs, shift = ("bonds", 0.0) if shift > NO_SHIFT else ("all", shift)
    return {"num_left_out": left_out, "joining_shift": shift, "pairs": pairs}


def dense_notes(facts: Mapping[str, Any], max_nodes: int) -> list[str]:
    """Returns what a reader of the scores should know about the fit."""
    notes = []
    if facts["num_left_out"]:
        notes.append(
            f"{facts['num_left_out']} training graphs of more than {max_nodes} nodes were left out "
            "of the fit."
        )
    if facts["joining_shift"] > NO_SHIFT:
        notes.append(
            "Joining all node pairs at weight 0 already moves the model's probabilities by up to "
            f"{facts['joining_shift']:.2f}; use pairs='bonds' for this model."
        )
    return notes


def check_pairs(pairs: str) -> None:
    """Raises `ConfigError` unless `pairs` is known."""
    if pairs not in PAIRS:
        raise ConfigError(f"`pairs` must be one of {PAIRS} (got {pairs!r}).")


def parts_by_size(num_nodes: Tensor, budget: int) -> Iterator[Tensor]:
    """Yields graphs in groups of similar size with at most `budget` padded pairs, ``[b]`` each."""
    order = num_nodes.argsort(stable=True)
    sizes = num_nodes[order].tolist()
    first = 0
    for last in range(1, len(sizes) + 1):
        if last == len(sizes) or (last + 1 - first) * sizes[last] ** 2 > budget:
            yield order[first:last]
            first = last
