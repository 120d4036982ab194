"""What happens to one bond or atom at a time: in whole copies of graphs, and in pieces of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch_geometric.data import Batch

from nicegnn.intervention.pieces import Kind, Pieces
from nicegnn.intervention.query import Query

_COMPARED = 6  # items whose answers on two paths are compared


@dataclass(frozen=True)
class BondDamage:
    """Both messages of a bond are damaged in all layers, by the mechanism of the query."""

    stream: int  # see `intervene`
    kind: Kind = "bond"

    def graph_of(self, query: Query, bond: Tensor) -> Tensor:
        """Returns the graph of each bond, ``[K]``."""
        return query.case.bonds.batch[bond]

    def whole(self, query: Query, bond: Tensor, draw: Tensor) -> Tensor:
        """Returns the raw output for a whole copy of each bond's graph, ``[K, C]``."""
        graph = self.graph_of(query, bond)
        edges, home = query.stack.edges_of(graph)
        copies = query.stack.take(graph)
        return query.own_rows(
            self._run(query, copies, edges, bond[home], draw[home]), graph, copies
        )

    def run(self, query: Query, copies: Batch, pieces: Pieces, draw: Tensor) -> Tensor:
        """Returns the model's raw output for pieces whose bonds are damaged."""
        home = pieces.edge_piece
        return self._run(query, copies, pieces.edge, pieces.item[home], draw[home])

    def _run(
        self, query: Query, copies: Batch, edges: Tensor, bond: Tensor, draw: Tensor
    ) -> Tensor:
        """Damages the edges of a bond, which is named for each edge of a batch, ``[E]``."""
        gate = (query.case.bonds.edge_bond[edges] != bond).to(query.clean.dtype)
        return query.damaged(copies, edges, gate, draw, self.stream)


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

    def whole(self, query: Query, atom: Tensor, draw: Tensor) -> Tensor:
        """Returns the raw output for a whole copy of each atom's graph, ``[K, C]``."""
        batch, graph = query.case.batch, self.graph_of(query, atom)
        copies = query.stack.take(graph)
        self.put(copies, copies.ptr[:-1] + atom - batch.ptr[graph], atom, draw)
        return query.own_rows(query.target.call(copies), graph, copies)

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


@torch.no_grad()
def agrees(
    query: Query,
    part: PartDamage,
    item: Tensor,
    num_draws: int,
    answer: Callable[[Tensor, Tensor], Tensor],
) -> bool | None:
    """Whether a path's ``answer`` for a few items and draws is that of whole copies.

    It is None if the damage changes no answer: that tells nothing.
    """
    item = item[:: max(1, item.numel() // _COMPARED)][:_COMPARED]
    # draws differ, since a prototype may be just what an item is
    draw = torch.arange(item.numel(), device=item.device) % num_draws
    if item.numel() == 0:
        return None
    found, whole = answer(item, draw), part.whole(query, item, draw)
    if not torch.allclose(found, whole, rtol=1e-3, atol=1e-3):
        return False
    clean = query.clean[part.graph_of(query, item)]
    return None if torch.allclose(query.target.read(whole), clean, rtol=1e-5, atol=1e-5) else True
