"""Matches the messages of each layer, edge by edge, with the edges that have a gate."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from nicegnn.errors import InterventionError
from nicegnn.graph.kinds import ORIGIN, EdgeType

Part = tuple[EdgeType, Tensor, Tensor]  # kind, its edges of the one graph [E_k], edge_index
Match = tuple[Tensor, Tensor]  # rows of a layer's messages that have a gate, and the edge of each


class EdgeRows:
    """Matches the message rows of each layer with the edges that have a gate.

    A layer may walk the edges backwards, or replace the graph's self-loops by its own, one per
    node; those rows have no gate. One that takes ``edge_type`` may send one relation at a time, or
    sorted by relation. A model with an ``edge_index`` for each kind of edge (``parts``) has layers
    for one kind (``HeteroConv``, ``to_hetero``), or for all in turn, with nodes counted on
    (``HGTConv``). Any other difference is an error. Unknown edges are those of the first layer.
    """

    def __init__(
        self, num_edges: int, edge_index: Tensor | None, parts: Sequence[Part] = ()
    ) -> None:
        self.num_edges, self.edge_index, self.parts = num_edges, edge_index, parts

    def match(
        self, name: str, layer: Any, ends: Sequence[Tensor], relation: Tensor | None, turn: int
    ) -> Match | None:
        """Returns the rows with a gate and the edge of each, ``[K]``; None if row k is edge k.

        ``ends`` are senders and receivers, ``relation`` is the type of each edge, ``[E]``; ``turn``
        counts the propagations of one call of the layer.
        """
        sender, receiver = ends
        rows, is_loop = torch.arange(sender.numel(), device=sender.device), sender == receiver
        adds_loops = getattr(layer, "add_self_loops", False) is True
        has_own = adds_loops and bool(is_loop.any())  # loops of the layer's own
        is_whole = sender.numel() == self.num_edges and not has_own
        if self.edge_index is None and not self.parts:
            is_clear = int((~is_loop).sum()) == self.num_edges
            known = rows[~is_loop] if is_clear else rows
            if has_own and not is_clear:
                raise InterventionError(
                    f"`edge_index` must be given for layer '{name}', which puts self-loops of its "
                    "own in the place of the graph's (got None)."
                )
            if known.numel() == self.num_edges:
                self.edge_index = torch.stack([sender[known], receiver[known]])
        index = self.edge_index if is_whole else None
        if index is not None and any(_same(index, *pair) for pair in (ends, ends[::-1])):
            return None
        for edges, index in self._tried(name, ends, relation, turn):
            if not has_own and _same(index, sender, receiver):
                return rows, edges
            rest, kept = ~is_loop, index[0] != index[1]
            is_part = not self.parts and edges.numel() < self.num_edges  # of one relation
            if not is_part and _same(index[:, kept], sender[rest], receiver[rest]):
                return rows[rest], edges[kept]
        if getattr(layer, "cached", False) is True:
            why = f"Layer '{name}' must send along the graph's edges (got those of an earlier one"
            raise InterventionError(f"{why}, because of cached=True). Set `layer.cached = False`.")
        raise InterventionError(
            f"Layer '{name}' passes {sender.numel()} messages along other edges than the "
            f"{self.num_edges} with a gate, because of pooling, rewiring or dropped edges. Explain "
            "the part before that, or set `layer.explain = False` on later layers."
        )

    def _tried(
        self, name: str, ends: Sequence[Tensor], relation: Tensor | None, turn: int
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Yields edges that a layer may send along, and their ends, the likeliest first."""
        if self.parts:
            sizes = [index.size(1) for _, _, index in self.parts]
            if len(sizes) > 1 and len(ends[0]) == sum(sizes):  # of each kind, nodes counted on
                blocks = zip(torch.split(torch.stack([*ends]), sizes, 1), self.parts, strict=True)
                moved = [index + (own - index)[:, :1] for own, (_, _, index) in blocks]
                yield torch.cat([edges for _, edges, _ in self.parts]), torch.cat(moved, dim=1)

            def unlike(number: int) -> tuple[bool, bool, bool]:
                kind, _, index = self.parts[number]
                named = "__".join(kind) in name or "___".join(kind) in name
                return index.data_ptr() != ends[0].data_ptr(), not named, number != turn

            for number in sorted(range(len(self.parts)), key=unlike):
                yield self.parts[number][1:]
        elif self.edge_index is not None:
            edges = torch.arange(self.num_edges, device=ends[0].device)
            if relation is not None and relation.numel() == self.num_edges:
                # where several relations have the same edges, they come in order
                kinds = sorted(set(relation.tolist()), key=lambda kind: (kind != turn, kind))
                of_kind = [edges[relation == kind] for kind in kinds]
                none = edges[:0]  # a relation without edges
                for some in (relation.argsort(stable=True), *of_kind, none):
                    yield some, self.edge_index[:, some]
            yield edges, self.edge_index


def find_kinds(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Part]:
    """Returns the kinds of edges among a model's inputs, of a graph from `Kinds.apart`."""
    for value in (*args, *kwargs.values()):
        stores = getattr(value, "edge_index_dict", value) if hasattr(value, "edge_types") else value
        held = stores.items() if isinstance(stores, dict) else ()
        if found := [(k, getattr(v, ORIGIN), v) for k, v in held if hasattr(v, ORIGIN)]:
            return found
    return []


def _same(edge_index: Tensor, sender: Tensor, receiver: Tensor) -> bool:
    return torch.equal(edge_index[0], sender) and torch.equal(edge_index[1], receiver)
