"""Matches the messages of layers for several kinds of edges with the edges that have a gate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from nicegnn.errors import InterventionError
from nicegnn.graph.kinds import ORIGIN, EdgeType
from nicegnn.intervention.layer_binding import EdgeRows

Part = tuple[EdgeType, Tensor, Tensor]  # kind, its edges of the one graph [E_k], edge_index


class KindRows:
    """Like `EdgeRows`, for a model that is called with an ``edge_index`` for each kind of edge.

    A layer sends the messages of one kind (``HeteroConv``, ``to_hetero``, ``HANConv``), or those of
    all kinds one after the other, with nodes counted on (``HGTConv``).
    """

    edge_index = None  # there is no single one

    def __init__(self, parts: Sequence[Part]) -> None:
        self.parts = parts
        self._rows = [EdgeRows(origin.numel(), index) for _, origin, index in parts]
        self._matches: dict[tuple[str, int, int, int], tuple[Any, ...]] = {}

    def match(
        self,
        name: str,
        sender: Tensor,
        receiver: Tensor,
        adds_loops: bool,
        relation: Tensor | None = None,
        turn: int = 0,
        is_cached: bool = False,
    ) -> tuple[Tensor, Tensor]:
        """Returns the rows with a gate and the edge of each, ``[K]``; see `EdgeRows.match`."""
        key = (name, turn, sender.data_ptr(), sender.numel())
        if key not in self._matches:
            matched = self._all_kinds(sender, receiver)
            if matched is None:
                matched = self._one_kind(turn, is_cached, name, sender, receiver, adds_loops)
            self._matches[key] = (matched, sender)  # kept: its address must not be used again
        return self._matches[key][0]

    def _one_kind(
        self, turn: int, is_cached: bool, name: str, sender: Tensor, receiver: Tensor, loops: bool
    ) -> tuple[Tensor, Tensor]:
        """Matches the edges of one kind: the same tensor, the kind in a layer's name, any."""

        def unlike(number: int) -> tuple[bool, bool, bool]:
            kind, _, index = self.parts[number]
            named = "__".join(kind) in name or "___".join(kind) in name
            return index.data_ptr() != sender.data_ptr(), not named, number != turn

        for number in sorted(range(len(self.parts)), key=unlike):
            try:
                found = self._rows[number].match(name, sender, receiver, loops, is_cached=is_cached)
            except InterventionError:  # those of another kind
                continue
            rows, origin = torch.arange(sender.numel()).to(sender), self.parts[number][1]
            return (rows, origin) if found is None else (found[0], origin[found[1]])
        raise InterventionError(
            f"Layer '{name}' passes {sender.numel()} messages along other edges than those of any "
            "kind, because of pooling, rewiring or dropped edges. Explain the part before that, or "
            "set `layer.explain = False` on this layer."
        )

    def _all_kinds(self, sender: Tensor, receiver: Tensor) -> tuple[Tensor, Tensor] | None:
        """Matches the edges of all kinds, one kind after the other."""
        sizes = [origin.numel() for _, origin, _ in self.parts]
        if len(sizes) == 1 or sender.numel() != sum(sizes):
            return None
        blocks = zip(torch.split(sender, sizes), torch.split(receiver, sizes), strict=True)
        for (one, other), (_, _, index) in zip(blocks, self.parts, strict=True):
            for end, local in ((one, index[0]), (other, index[1])):
                if end.numel() and not bool((end - local == end[0] - local[0]).all()):
                    return None
        edges = torch.cat([origin for _, origin, _ in self.parts])
        return torch.arange(edges.numel(), device=edges.device), edges


def find_kinds(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Part]:
    """Returns the kinds of edges among a model's inputs, of a graph from `Kinds.apart`."""
    for value in (*args, *kwargs.values()):
        stores = getattr(value, "edge_index_dict", value) if hasattr(value, "edge_types") else value
        if isinstance(stores, dict) and any(hasattr(one, ORIGIN) for one in stores.values()):
            return [
                (kind, getattr(index, ORIGIN), index)
                for kind, index in stores.items()
                if hasattr(index, ORIGIN)
            ]
    return []
