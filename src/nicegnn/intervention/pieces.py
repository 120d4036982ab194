"""Pieces: the nodes that damage to one bond or atom can reach, and the edges between them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from nicegnn.graph.case import Case
from nicegnn.graph.minibatches import gather_items

Kind = Literal["bond", "atom"]


@dataclass(frozen=True)
class Pieces:
    """Reached nodes and the edges between them, one piece per bond or atom, side by side."""

    item: Tensor  # the damaged bond, or replaced atom, of each piece, [K]
    node: Tensor  # node of the batch behind each node, [V]
    node_piece: Tensor  # piece of each node, rising, [V]
    edge: Tensor  # edge of the batch behind each edge, [E]
    edge_index: Tensor  # by nodes of the pieces, [2, E]
    edge_piece: Tensor  # piece of each edge, rising, [E]

    def repeated(self, times: int) -> Pieces:
        """Returns all pieces several times, one after the other."""
        copy = torch.arange(times, device=self.item.device)

        def counted(value: Tensor, step: int) -> Tensor:
            return (value.unsqueeze(-2) + step * copy.unsqueeze(1)).flatten(-2)

        num_nodes, num = self.node.numel(), self.item.numel()
        return Pieces(
            self.item.repeat(times),
            self.node.repeat(times),
            counted(self.node_piece, num),
            self.edge.repeat(times),
            counted(self.edge_index, num_nodes),
            counted(self.edge_piece, num),
        )


class Reach:
    """Finds what damage to a bond or an atom reaches in a model of `num_layers` layers.

    An atom whose features are replaced has changed before the first layer. Damage to messages
    changes the bond's ends after the first layer, and their receivers after the next. Where a
    single row of the output is explained, ``rows``, nodes are left out whose change comes too late
    to arrive.
    """

    def __init__(self, case: Case, num_layers: int, rows: Tensor | None = None) -> None:
        sender, self._receiver = case.batch.edge_index
        self._sender, self.num_layers = sender, num_layers
        self.num_nodes = int(case.batch.num_nodes)
        self._out_pointer = _pointer(sender, self.num_nodes)
        self._out_edge = sender.argsort(stable=True)  # edges by their sender
        self._bond_pointer = _pointer(case.bonds.edge_bond, case.bonds.batch.numel())
        self._bond_edge = case.bonds.edge_bond.argsort(stable=True)
        far = num_layers + 1
        self._to_row = torch.zeros_like(case.batch.batch)  # layers from a node to its row, [V]
        if rows is not None:
            self._to_row = self._to_row.fill_(far).index_fill(0, rows, 0)
            for step in range(1, far):
                near = sender[self._to_row[self._receiver] < step]
                self._to_row[near] = self._to_row[near].clamp(max=step)
        self._count_walks(case)

    def pieces(self, item: Tensor, kind: Kind) -> Pieces:
        """Returns the piece of each bond or atom, ``[K]``."""
        home, ends = torch.arange(item.numel(), device=item.device), item
        if kind == "bond":
            place, start = gather_items(self._bond_pointer, item)
            edge = self._bond_edge[place]
            home = home.repeat_interleave(start.diff()).repeat(2)
            ends = torch.cat([self._sender[edge], self._receiver[edge]])
        reached = newest = self._in_time(torch.unique(home * self.num_nodes + ends), 0)
        for layer in range(2 if kind == "bond" else 1, self.num_layers + 1):
            place, start = gather_items(self._out_pointer, newest % self.num_nodes)
            home = (newest // self.num_nodes).repeat_interleave(start.diff())
            key = home * self.num_nodes + self._receiver[self._out_edge[place]]
            newest = self._in_time(torch.unique(key), layer)
            newest = newest[~_is_in(newest, reached)]
            reached = torch.cat([reached, newest]).sort().values
        return self._within(item, reached)

    def _in_time(self, key: Tensor, layer: int) -> Tensor:
        """Returns the nodes whose change after a layer can still arrive at the row."""
        return key[self._to_row[key % self.num_nodes] <= self.num_layers - layer]

    def _within(self, item: Tensor, reached: Tensor) -> Pieces:
        """Returns the pieces of some nodes, with all edges between nodes of a piece."""
        node, piece = reached % self.num_nodes, reached // self.num_nodes
        place, start = gather_items(self._out_pointer, node)
        sender = torch.arange(node.numel(), device=item.device).repeat_interleave(start.diff())
        edge, home = self._out_edge[place], piece[sender]
        key = home * self.num_nodes + self._receiver[edge]
        inside = _is_in(key, reached)
        index = torch.stack([sender[inside], torch.searchsorted(reached, key[inside])])
        return Pieces(item, node, piece, edge[inside], index, home[inside])

    def _count_walks(self, case: Case) -> None:
        """Bounds the edges of each piece by the walks from it, in time linear in edges."""
        sender, receiver, bonds = self._sender, self._receiver, case.bonds
        degree, most = self._out_pointer.diff().double(), float(case.num_edges)
        walks = [torch.zeros_like(degree)]  # of so many layers that are left
        for left in range(self.num_layers + 1):
            on = torch.zeros_like(degree).index_add(0, sender, walks[-1][receiver])
            number = (degree + on).clamp(max=most)
            walks.append(torch.where(self._to_row <= left, number, 0.0))
        damaged = bonds.sum(walks[-2][receiver]).clamp(max=most)
        #: Bound of the edges of each piece, ``[M]`` or ``[V]``.
        self.sizes = {"bond": damaged, "atom": walks[-1]}


def _pointer(item: Tensor, size: int) -> Tensor:
    count = torch.bincount(item, minlength=size)
    return torch.cat([count.new_zeros(1), count.cumsum(0)])


def chunks_of(size: Tensor, most: int) -> Iterator[slice]:
    """Yields slices of items whose sizes, ``[K]``, add up to about `most`."""
    chunk, first = (size.cumsum(0) - size).div(most, rounding_mode="floor"), 0
    for count in torch.unique_consecutive(chunk, return_counts=True)[1].tolist():
        yield slice(first, first + count)
        first += count


def _is_in(key: Tensor, keys: Tensor) -> Tensor:
    """Whether each key is among the sorted ones."""
    if keys.numel() == 0:
        return torch.zeros_like(key, dtype=torch.bool)
    place = torch.searchsorted(keys, key).clamp(max=keys.numel() - 1)
    return keys[place] == key
