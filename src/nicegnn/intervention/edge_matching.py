"""Which message of a layer belongs to which gate: matched edge by edge, never guessed."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from nicegnn.errors import InterventionError


@dataclass(frozen=True)
class Rows:
    """Which message rows carry a gate: ``rows[k]`` belongs to edge ``edges[k]``.

    Both are None where row k simply is edge k.
    """

    rows: Tensor | None = None
    edges: Tensor | None = None


class EdgeRows:
    """Matches the message rows of each layer with the edges that have a gate.

    Layers may add self-loops of their own (then they drop the graph's and append one per node);
    those rows carry no gate. Any other difference from the graph's edges is an error.

    Args:
        num_edges: number of gates.
        edge_index: the edges the gates belong to, if known; else those of the first layer.
    """

    def __init__(self, num_edges: int, edge_index: Tensor | None) -> None:
        self.num_edges = num_edges
        self.edge_index = edge_index
        self._found: dict[tuple[int, int, int, bool], tuple[Tensor, Tensor, Rows]] = {}

    def match(self, name: str, sender: Tensor, receiver: Tensor, adds_loops: bool = False) -> Rows:
        """Returns where the gates apply in a layer with messages from `sender` to `receiver`.

        Args:
            adds_loops: whether the layer puts self-loops of its own in place of the graph's, even
                where that leaves the list of edges as it was.
        """
        key = (sender.data_ptr(), receiver.data_ptr(), sender.numel(), adds_loops)
        if key not in self._found:
            found = self._search(name, sender, receiver, adds_loops)
            if self.edge_index is None:
                rows = slice(None) if found.rows is None else found.rows
                self.edge_index = torch.stack([sender[rows], receiver[rows]])
            # the tensors are kept with the result, so that their addresses stay theirs
            self._found[key] = (sender, receiver, found)
        return self._found[key][2]

    def _search(self, name: str, sender: Tensor, receiver: Tensor, adds_loops: bool) -> Rows:
        reference, num_rows = self.edge_index, sender.numel()
        own_loops = adds_loops and bool((sender == receiver).any())
        if num_rows == self.num_edges and not own_loops:
            if reference is None or _same(reference, sender, receiver):
                return Rows()
            if _same(reference, receiver, sender):  # a layer that walks the edges backwards
                return Rows()
        rows = (sender != receiver).nonzero().view(-1)  # the layer's rows that are no self-loops
        if reference is None:
            edges = torch.arange(self.num_edges, device=rows.device)
            matches = rows.numel() == self.num_edges
        else:
            edges = (reference[0] != reference[1]).nonzero().view(-1)
            matches = rows.numel() == edges.numel() and _same(
                reference[:, edges], sender[rows], receiver[rows]
            )
        if not matches:
            raise InterventionError(
                f"Layer '{name}' passes {num_rows} messages along other edges than the "
                f"{self.num_edges} that have a gate. Layers that change the edge set (pooling, "
                "graph rewiring, dropped edges) cannot be intervened on: explain the part of the "
                "model before them, or set `layer.explain = False` on the layers after them."
            )
        return Rows(rows, edges)


def find_edge_index(
    model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], num_edges: int
) -> Tensor | None:
    """Finds the graph among a model's inputs: by name, in a Data object, or by shape."""
    try:
        named = inspect.signature(model.forward).bind(*args, **kwargs).arguments
    except (TypeError, ValueError):  # wrong call: let the model itself complain
        named = dict(kwargs)
    values = [*args, *kwargs.values()]
    found = named.get("edge_index")
    for value in values:
        if found is None and not isinstance(value, Tensor):
            found = getattr(value, "edge_index", None)
    if found is None:
        shapes = [v for v in values if _is_edge_index(v) and v.size(1) == num_edges]
        return shapes[0] if shapes else None
    if not _is_edge_index(found):
        return None  # sparse or malformed: the layers will say so
    if found.size(1) != num_edges:
        raise InterventionError(
            f"`gate` must hold one value per edge (got {num_edges} gates, {found.size(1)} edges)."
        )
    return found


def _is_edge_index(value: Any) -> bool:
    return (
        isinstance(value, Tensor)
        and value.layout == torch.strided
        and value.dtype == torch.long
        and value.dim() == 2
        and value.size(0) == 2
    )


def _same(edge_index: Tensor, sender: Tensor, receiver: Tensor) -> bool:
    return torch.equal(edge_index[0], sender) and torch.equal(edge_index[1], receiver)
