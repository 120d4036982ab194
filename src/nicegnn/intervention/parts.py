"""What happens to one bond or atom at a time: in whole copies of graphs, and in pieces of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch_geometric.data import Batch

from nicegnn.intervention.pieces import Kind, Pieces, chunks_of
from nicegnn.intervention.query import Query

_COMPARED = 6  # items whose answers on two paths are compared

#: Damaged bonds or replaced atoms, their draws, and raw outputs, ``[K]``, ``[K]`` and ``[K, C]``.
Chunk = tuple[Tensor, Tensor, Tensor]


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


def in_copies(query: Query, part: PartDamage, item: Tensor, num_draws: int) -> Iterator[Chunk]:
    """Yields the answers of whole copies of graphs, a chunk of them at a time."""
    item = item.repeat_interleave(num_draws)  # [K]
    draw = torch.arange(num_draws, device=item.device).repeat(item.numel() // num_draws)  # [K]
    for some in copy_chunks(query, part.graph_of(query, item)):
        yield item[some], draw[some], run_whole(query, part, item[some], draw[some])


def copy_chunks(query: Query, graph: Tensor) -> Iterator[slice]:
    """Yields slices of copies of graphs, ``[K]``, with about `chunk_edges` edges each."""
    if query.is_batched:
        return chunks_of(query.stack.num_edges[graph].clamp(min=1), query.chunk_edges)
    return (slice(k, k + 1) for k in range(graph.numel()))


@torch.no_grad()
def agrees(
    query: Query,
    part: PartDamage,
    item: Tensor,
    num_draws: int,
    answer: Callable[[Tensor, Tensor], Tensor],
) -> bool:
    """Whether a path's ``answer`` for a few items and draws is that of whole copies."""
    item = item[:: max(1, item.numel() // _COMPARED)][:_COMPARED]
    # draws differ, since a prototype may be just what an item is
    draw = torch.arange(item.numel(), device=item.device) % num_draws
    whole = run_whole(query, part, item, draw)
    return torch.allclose(answer(item, draw), whole, rtol=1e-3, atol=1e-3)
