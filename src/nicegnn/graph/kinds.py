"""Graphs with several kinds of nodes and edges, as one graph that knows the kind of each.

All bookkeeping is done on the one graph; the model is called with the kinds apart.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Batch, Data, HeteroData

from nicegnn.errors import GraphError, TargetError

EdgeType = tuple[str, str, str]

#: Attribute of an ``edge_index`` that `Kinds.apart` makes: the edges of the one graph behind it.
ORIGIN = "nicegnn_origin"
_NOT_KEPT = ("edge_index", "num_nodes", "batch", "ptr")


@dataclass(frozen=True)
class Column:
    """An attribute of one kind, and where the one graph holds it, padded to the widest kind."""

    kind: str | EdgeType
    key: str  # attribute of the kind
    name: str  # attribute of the one graph
    tail: tuple[int, ...]  # shape of a row

    @property
    def width(self) -> int:
        return math.prod(self.tail)


@dataclass(frozen=True)
class Kinds:
    """Kinds of nodes and edges by number, and their attributes."""

    nodes: tuple[str, ...]
    edges: tuple[EdgeType, ...]
    columns: tuple[Column, ...]
    order: tuple[str | EdgeType, ...]  # in which graphs show them: some layers depend on it
    answer: str | None = None  # kind of the nodes that the model's output has rows for

    @classmethod
    def of(cls, graphs: Sequence[HeteroData]) -> Kinds:
        """Returns the kinds of some graphs, numbered by their names."""
        order: dict[Any, None] = {}
        for graph in graphs:
            order |= dict.fromkeys((*graph.node_types, *graph.edge_types))
        nodes = sorted(kind for kind in order if isinstance(kind, str))
        if not nodes:
            raise GraphError("A HeteroData must have nodes of some kind (got none). Add `x`.")
        edges = sorted(kind for kind in order if not isinstance(kind, str))
        columns: dict[tuple[Any, str], Column] = {}
        for graph in graphs:
            for kind in (*graph.node_types, *graph.edge_types):
                for key, value in _attributes(graph, kind).items():
                    side = "" if isinstance(kind, str) or key.startswith("edge_") else "edge_"
                    name = side + key
                    name += "" if value.is_floating_point() else f"_{value.dtype}"[7:]
                    column = Column(kind, key, name, tuple(value.shape[1:]))
                    known = columns.setdefault((kind, key), column)
                    if known != column:
                        raise GraphError(
                            f"`{key}` of {kind} must have the same type and width in all graphs "
                            f"(got shape {known.tail} and {column.tail} of a row)."
                        )
        return cls(tuple(nodes), tuple(edges), tuple(columns.values()), tuple(order))

    def holding(self, graphs: Sequence[HeteroData]) -> Kinds:
        other = Kinds.of(graphs)
        new = {*other.nodes, *other.edges, *other.columns} - {*self.nodes, *self.edges}
        if new := new - {*self.columns}:
            why = "`graphs` must have the kinds and widths of the background"
            raise GraphError(f"{why} (these are new: {sorted(map(str, new))[:3]}).")
        return self

    def join(self, graph: HeteroData) -> Data:
        """Returns the one graph: nodes kind by kind, and edges kind by kind."""
        sizes = [_size(graph, kind) for kind in self.nodes]
        first = dict(zip(self.nodes, torch.tensor([0, *sizes]).cumsum(0).tolist(), strict=False))
        index = [_edge_index(graph, kind, first) for kind in self.edges]
        counts = [one.size(1) for one in index]
        size_of = dict[Any, int](zip(self.nodes + self.edges, sizes + counts, strict=True))
        whole = torch.cat(index, dim=1) if index else torch.empty(2, 0, dtype=torch.long)
        out, device = Data(edge_index=whole, num_nodes=sum(sizes)), whole.device
        for key, numbers in (("node_type", sizes), ("edge_type", counts)):
            number = torch.arange(len(numbers), device=device)
            out[key] = number.repeat_interleave(torch.tensor(numbers, device=device))
        for name in dict.fromkeys(column.name for column in self.columns):
            columns = {c.kind: c for c in self.columns if c.name == name}
            width = max(c.width for c in columns.values())
            parts = []
            for kind in self.nodes if isinstance(next(iter(columns)), str) else self.edges:
                part = _attributes(graph, kind).get(columns[kind].key) if kind in columns else None
                if part is None:
                    part = torch.zeros(size_of[kind], width, device=device)
                wide = part.flatten(1) if part.dim() > 1 else part.unsqueeze(1)
                parts.append(torch.nn.functional.pad(wide, (0, width - wide.size(1))))
            dtype = next((p.dtype for p in parts if p.dtype != torch.float32), torch.float32)
            out[name] = torch.cat([part.to(dtype) for part in parts])
        return out

    def apart(self, batch: Batch) -> HeteroData:
        """Returns the graph of a batch of `join` with its kinds apart, as the model takes it."""
        out, local = HeteroData(), torch.empty_like(batch.node_type)
        rows: dict[Any, Tensor] = {}
        for kind in (one for one in self.order if isinstance(one, str)):
            own = (batch.node_type == self.nodes.index(kind)).nonzero().view(-1)
            rows[kind], local[own] = own, torch.arange(own.numel(), device=own.device)
            out[kind].num_nodes = own.numel()
            out[kind].batch = batch.batch[own]
        for ends in (one for one in self.order if not isinstance(one, str)):
            own = (batch.edge_type == self.edges.index(ends)).nonzero().view(-1)
            rows[ends], index = own, local[batch.edge_index[:, own]]
            setattr(index, ORIGIN, own)
            out[ends].edge_index = index
        for column in self.columns:
            values = batch[column.name][rows[column.kind]][:, : column.width]
            out[column.kind][column.key] = values.reshape(-1, *column.tail)
        return out

    def of_each(self, graph: HeteroData, value: Tensor, side: str) -> dict[Any, Tensor]:
        """Returns values of the ``"nodes"`` or ``"edges"`` of `join` for each kind."""
        kept: set[Any] = {*graph.node_types, *graph.edge_types}
        kinds = [kind for kind in (self.nodes if side == "nodes" else self.edges) if kind in kept]
        return dict(zip(kinds, torch.split(value, [_size(graph, k) for k in kinds]), strict=True))

    def answers(self, output: Any, batch: Batch) -> Any:
        """Returns rows for all nodes from output that has them for one kind, ``[V, C]``."""
        if isinstance(output, dict):
            if self.answer not in output:
                raise TargetError(
                    "`index` must name the kind of the nodes to explain, one of "
                    f"{sorted(output)} (got {self.answer!r}). Pass index=('{min(output)}', [0])."
                )
            output = output[self.answer]
        if self.answer is None or not isinstance(output, Tensor):
            return output
        rows = (batch.node_type == self.nodes.index(self.answer)).nonzero().view(-1)
        if output.dim() == 0 or output.size(0) != rows.numel():
            raise TargetError(
                f"The model must return one row per node of the kind {self.answer!r}, "
                f"{rows.numel()} (got shape {tuple(output.shape)}). Name another kind in `index`."
            )
        place = torch.zeros_like(batch.node_type)  # nodes of other kinds repeat the first row
        place[rows] = torch.arange(rows.numel(), device=rows.device)
        return output.reshape(output.size(0), -1).index_select(0, place)


def _attributes(graph: HeteroData, kind: Any) -> dict[str, Tensor]:
    """Returns the attributes of one kind that have a row per node or edge."""
    if kind not in graph.node_types and kind not in graph.edge_types:
        return {}
    held = {k: v for k, v in graph[kind].items() if k not in _NOT_KEPT and isinstance(v, Tensor)}
    return {k: v for k, v in held.items() if v.dim() > 0 and len(v) == _size(graph, kind)}


def _size(graph: HeteroData, kind: Any) -> int:
    if not isinstance(kind, str):
        return int(graph[kind].edge_index.size(1))
    number = graph[kind].num_nodes if kind in graph.node_types else 0
    if number is None:
        raise GraphError(f"Nodes of the kind {kind!r} must have `x` or `num_nodes` (got neither).")
    return int(number)


def _edge_index(graph: HeteroData, kind: EdgeType, first: Mapping[str, int]) -> Tensor:
    """Returns the edges of one kind by nodes of the one graph, ``[2, E]``."""
    if kind not in graph.edge_types:
        return torch.empty(2, 0, dtype=torch.long)
    index = graph[kind].get("edge_index")
    if not isinstance(index, Tensor) or index.dim() != 2 or index.dtype != torch.long:
        raise GraphError(
            f"`edge_index` of {kind} must be a tensor of whole numbers of shape [2, E] (got "
            f"{type(index).__name__}). Convert a sparse adjacency with to_edge_index()."
        )
    for end, side in zip(index, (kind[0], kind[2]), strict=True):
        size = _size(graph, side)
        if end.numel() and not 0 <= int(end.min()) <= int(end.max()) < size:
            raise GraphError(
                f"`edge_index` of {kind} must hold numbers of its {side!r} nodes, 0 to {size - 1} "
                f"(got {int(end.min())} to {int(end.max())})."
            )
    return index + torch.tensor([[first[kind[0]]], [first[kind[2]]]], device=index.device)
