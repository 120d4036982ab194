"""Bonds of a batch, and the case: a batch with the outputs to explain."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch_geometric.data import Batch

# what computation graphs of nodes carry for us, which no model reads
OWN_KEYS = ("root_index", "node_origin", "edge_origin", "edge_reached")


@dataclass(frozen=True)
class Bonds:
    """Undirected bonds of a batch: all entries of an edge list between the same two nodes."""

    index: Tensor  # the two ends of each bond, lower node first, [2, M]
    edge_bond: Tensor  # bond of each directed edge, [E]
    batch: Tensor  # graph of each bond, [M]
    count: Tensor  # number of directed edges of each bond, [M]

    def sum(self, edge_value: Tensor) -> Tensor:
        """Adds up the values of a bond's directed edges, ``[..., E]`` to ``[..., M]``."""
        out = edge_value.new_zeros(*edge_value.shape[:-1], self.index.size(1))
        return out.index_add(-1, self.edge_bond, edge_value)

    def mean(self, edge_value: Tensor) -> Tensor:
        """Averages the values of a bond's directed edges, ``[..., E]`` to ``[..., M]``."""
        return self.sum(edge_value) / self.count


def find_bonds(
    edge_index: Tensor, edge_batch: Tensor, undirected: bool = True, kind: Tensor | None = None
) -> Bonds:
    """Groups directed edges between the same two nodes into bonds, ordered by first appearance.

    Edges of different kinds, ``[E]``, are different bonds. With ``undirected=False`` every directed
    edge is its own bond.
    """
    place = torch.arange(edge_index.size(1), device=edge_index.device)
    if not undirected or place.numel() == 0:
        return Bonds(edge_index, place, edge_batch, torch.ones_like(edge_batch))
    ends = edge_index.sort(0).values
    pair = ends[0] * (ends.max() + 1) + ends[1]  # one number per pair: faster than unique rows
    pair = pair if kind is None else pair * (kind.max() + 1) + kind
    unique, inverse, count = torch.unique(pair, return_inverse=True, return_counts=True)
    first = place.new_full(unique.shape, place.numel()).scatter_reduce(0, inverse, place, "amin")
    order = first.argsort()
    rank = torch.empty_like(order).index_copy(0, order, place[: order.numel()])
    first = first[order]  # edge of each bond
    return Bonds(ends[:, first], rank[inverse], edge_batch[first], count[order])


def edge_slots(edge_batch: Tensor, num_graphs: int) -> Tensor:
    """Returns the position of each edge inside its own graph, ``[E]``."""
    return _places(edge_batch.argsort(stable=True), edge_batch, num_graphs)


def rank_within(score: Tensor, batch: Tensor, num_graphs: int) -> Tensor:
    """Returns the rank of each item in its graph, 0 for the highest; ties keep their order."""
    by_score = score.argsort(descending=True, stable=True)
    return _places(by_score[batch[by_score].argsort(stable=True)], batch, num_graphs)


def shared_rank(score: Tensor, batch: Tensor, num_graphs: int) -> Tensor:
    """Like `rank_within`, from 1; equal scores share the best of their ranks: 1, 2, 2, 4."""
    rank = rank_within(score, batch, num_graphs)
    if rank.numel() == 0:
        return rank
    pairs = torch.stack([batch.double(), score.double()])
    _, same = torch.unique(pairs, dim=1, return_inverse=True)
    first = torch.full_like(rank, rank.numel()).scatter_reduce(0, same, rank, "amin")
    return first[same] + 1


def _places(order: Tensor, batch: Tensor, num_graphs: int) -> Tensor:
    """Returns the place of each item in its graph, ``[M]``; ``order`` sorts items by graph."""
    number = torch.bincount(batch, minlength=num_graphs)
    start = number.cumsum(0) - number
    rank = torch.empty_like(batch)
    rank[order] = torch.arange(batch.numel(), device=batch.device) - start[batch[order]]
    return rank


def merge_equal(value: Tensor, batch: Tensor, size: Tensor) -> Tensor:
    r"""Gives values of a graph that differ by rounding alone their mean, ``[M]``.

    Neighbours in rising order are alike if they differ by at most
    :math:`\tau = 256\,\epsilon\,(1 + |v| + s)`. A chain of such neighbours gets its mean, unless
    its ends differ by more than :math:`4 \tau`: then it stays as it is. Equivalent bonds have
    exactly equal scores by this, in whatever order their graph is written. What is at most
    :math:`256\,\epsilon\,(1 + s)` becomes zero.

    Symbols: :math:`v` -> ``value``, ``[M]``; graph of each -> ``batch``, ``[M]``; :math:`s` ->
    ``size``, of the numbers that each graph's values were computed from, ``[B]``; :math:`\epsilon`
    -> rounding error of the dtype.
    """
    if value.numel() == 0:
        return value
    order = value.nan_to_num(torch.inf).argsort(stable=True)
    order = order[batch[order].argsort(stable=True)]  # by graph, then by value
    v, home = value[order], batch[order]
    eps = 256 * torch.finfo(value.dtype).eps
    floor = eps * (1 + size.to(v)[home])
    limit = floor + eps * v.abs()
    is_new = torch.ones_like(home, dtype=torch.bool)
    is_new[1:] = ~((v.diff().abs() <= limit[1:]) & (home.diff() == 0))
    group = is_new.cumsum(0) - 1
    number = int(group[-1]) + 1
    count = torch.bincount(group, minlength=number)
    first = count.cumsum(0) - count
    extent = v[first + count - 1] - v[first]
    mean = v.new_zeros(number).index_add(0, group, v) / count
    is_alike = (extent <= 4 * limit[first]) & (count > 1)
    out = value.clone()
    merged = torch.where(is_alike[group], mean[group], v)
    out[order] = torch.where(merged.abs() <= floor, 0.0, merged)
    return out


@dataclass(frozen=True)
class Case:
    """A batch to be explained: its edges, its bonds, and the output row of each graph."""

    batch: Batch
    rows: Tensor  # output row that is explained in each graph, [B]
    edge_batch: Tensor  # graph of each directed edge, [E]
    slot: Tensor  # noise coordinate of each directed edge, [E]
    bonds: Bonds
    reached: Tensor  # bonds that can influence the explained row, [M]
    kind: Tensor | None = None  # kind of each directed edge, if there are several, [E]
    num_kinds: int = 1

    @property
    def num_graphs(self) -> int:
        return int(self.batch.num_graphs)

    @property
    def num_edges(self) -> int:
        return int(self.edge_batch.numel())

    def with_kinds(self, kind: Tensor, num_kinds: int) -> Case:
        """Returns the case with the kind of each edge, ``[E]``; a bond has edges of one kind."""
        bonds, reached = self.bonds, self.reached
        if bonds.count.numel() and int(bonds.count.max()) > 1:
            bonds = find_bonds(self.batch.edge_index, self.edge_batch, kind=kind)
            edges = self.batch.get("edge_reached")  # a bond of several kinds is reached by one
            edges = reached[self.bonds.edge_bond] if edges is None else edges
            reached = bonds.sum(edges.float()) > 0
        return replace(self, bonds=bonds, reached=reached, kind=kind, num_kinds=num_kinds)

    def per_graph_mean(self, bond_value: Tensor) -> Tensor:
        """Averages a bond value over the reached directed edges of each graph, ``[..., B]``."""
        weight = (self.bonds.count * self.reached).to(bond_value.dtype)
        zeros = bond_value.new_zeros(*bond_value.shape[:-1], self.num_graphs)
        total = zeros.index_add(-1, self.bonds.batch, bond_value * weight)
        size = bond_value.new_zeros(self.num_graphs).index_add(0, self.bonds.batch, weight)
        return total / size.clamp(min=1)

    def edge_gate(self, bond_gate: Tensor) -> Tensor:
        """Gives each directed edge its bond's gate; bonds out of reach stay clean, ``[..., E]``."""
        gate = torch.where(self.reached, bond_gate, torch.ones_like(bond_gate))
        return gate[..., self.bonds.edge_bond]


def make_case(batch: Batch, *, undirected: bool = True) -> Case:
    """Prepares a batch of graphs, or of computation graphs of explained nodes.

    The explained rows are ``batch.root_index``, or row g for graph g. The directed edges that can
    influence them are ``batch.edge_reached``, ``[E]``, or all.
    """
    rows, reached_edge = batch.get("root_index"), batch.get("edge_reached")
    edge_batch = batch.batch[batch.edge_index[0]]
    bonds = find_bonds(batch.edge_index, edge_batch, undirected=undirected)
    reached = torch.ones_like(bonds.batch, dtype=torch.bool)
    if reached_edge is not None:
        reached = bonds.sum(reached_edge.float()) > 0
    if rows is None:
        rows = torch.arange(batch.num_graphs, device=batch.edge_index.device)
    return Case(batch, rows, edge_batch, edge_slots(edge_batch, batch.num_graphs), bonds, reached)
