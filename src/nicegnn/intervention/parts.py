"""What happens to one bond or atom at a time: in whole copies of graphs, and in pieces of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch_geometric.data import Batch

from nicegnn.intervention.query import Query

Kind = Literal["bond", "atom"]


class Damaged(NamedTuple):
    """Answers for some copies of graphs, each with one bond or atom damaged."""

    item: Tensor  # the damaged bond, or replaced atom, of each copy, [K]
    draw: Tensor  # number of its draw, from 0, [K]
    output: Tensor  # the model's raw output for the copy's graph, [K, C]


@dataclass(frozen=True)
class Pieces:
    """Reached nodes and the edges between them, one piece per bond or atom, side by side."""

    item: Tensor  # the damaged bond, or replaced atom, of each piece, [K]
    node: Tensor  # node of the batch behind each node, [V]
    node_piece: Tensor  # piece of each node, rising, [V]
    edge: Tensor  # edge of the batch behind each edge, [E]
    edge_index: Tensor  # by nodes of the pieces, [2, E]
    edge_piece: Tensor  # piece of each edge, rising, [E]


@dataclass(frozen=True)
class BondDamage:
    """Both messages of a bond are damaged in all layers, by the mechanism of the query."""

    stream: int  # see `intervene`
    kind: Kind = "bond"

    def graph_of(self, query: Query, bond: Tensor) -> Tensor:
        """Returns the graph of each bond, ``[K]``."""
        return query.case.bonds.batch[bond]

    def run(self, query: Query, copies: Batch, pieces: Pieces, draw: Tensor) -> Tensor:
        """Returns the model's raw output for pieces whose bonds are damaged."""
        home, edges = pieces.edge_piece, pieces.edge
        gate = (query.case.bonds.edge_bond[edges] != pieces.item[home]).to(query.clean.dtype)
        return query.damaged(copies, edges, gate, draw[home], self.stream)


@dataclass(frozen=True)
class AtomReplacement:
    """An atom gets the attributes of another one; everything else runs on."""

    kinds: Mapping[str, Tensor]  # attributes of all candidates, by name
    row: Tensor  # rows of each atom's prototypes among them, [V, K]
    kind: Kind = "atom"

    def graph_of(self, query: Query, atom: Tensor) -> Tensor:
        """Returns the graph of each atom, ``[K]``."""
        batch: Tensor = query.case.batch.batch
        return batch[atom]

    def run(self, query: Query, copies: Batch, pieces: Pieces, draw: Tensor) -> Tensor:
        """Returns the model's raw output for pieces whose atoms are replaced."""
        place = (pieces.node == pieces.item[pieces.node_piece]).nonzero().view(-1)
        home = pieces.node_piece[place]
        self.put(copies, place, pieces.item[home], draw[home])
        return query.target.call(copies)

    def put(self, copies: Batch, place: Tensor, atom: Tensor, draw: Tensor) -> None:
        """Gives rows of a batch the attributes that atoms get in draws, ``[K]`` each."""
        for key, value in self.kinds.items():
            copies[key] = copies[key].index_copy(0, place, value[self.row[atom, draw]])


PartDamage = BondDamage | AtomReplacement


def run_whole(query: Query, part: PartDamage, item: Tensor, draw: Tensor) -> Tensor:
    """Returns the raw output for a whole copy of each item's graph, ``[K, C]``."""
    graph = part.graph_of(query, item)
    copies, (edges, home) = query.copies(graph), query.stack.edges_of(graph)
    nodes = query.stack.nodes_of(graph)
    pieces = Pieces(item, nodes, copies.batch, edges, copies.edge_index, home)
    output = part.run(query, copies, pieces, draw)
    if query.target.level != "node":
        return output
    return output[query.case.rows[graph] - query.case.batch.ptr[graph] + copies.ptr[:-1]]


def in_copies(query: Query, part: PartDamage, item: Tensor, num_draws: int) -> Iterator[Damaged]:
    """Yields the answers of whole copies of graphs, a chunk of them at a time."""
    item = item.repeat_interleave(num_draws)  # [K]
    draw = torch.arange(num_draws, device=item.device).repeat(item.numel() // num_draws)  # [K]
    for some in copy_chunks(query, part.graph_of(query, item)):
        output = run_whole(query, part, item[some], draw[some])
        yield Damaged(item[some], draw[some], output)


def copy_chunks(query: Query, graph: Tensor) -> Iterator[slice]:
    """Yields slices of copies of graphs, ``[K]``, with about `chunk_edges` edges each."""
    if query.is_batched:
        return chunks_of(query.stack.num_edges[graph].clamp(min=1), query.chunk_edges)
    return (slice(k, k + 1) for k in range(graph.numel()))


def chunks_of(size: Tensor, most: int) -> Iterator[slice]:
    """Yields slices of items whose sizes, ``[K]``, add up to about `most`."""
    chunk, first = (size.cumsum(0) - size).div(most, rounding_mode="floor"), 0
    for count in torch.unique_consecutive(chunk, return_counts=True)[1].tolist():
        yield slice(first, first + count)
        first += count
