"""Damage to one bond, sent through the model as a difference: only nodes that it reaches are run.

A damaged bond changes the states of its receivers after the first layer, of their receivers after
the second, and so on. A *piece* has these nodes and the edges between them. The model runs on
pieces alone. Whatever it adds up over edges or nodes is completed by what the clean pass added up:

.. math:: \\sum_j v'_j = \\sum_j v_j + \\sum_{j \\in \\mathrm{piece}} (v'_j - v_j)

Symbols: :math:`v_j` -> a value of the clean pass, recorded once; :math:`v'_j` -> its damaged value.
This is exact up to rounding for sums and means (degrees and pooled states among them), if
everything else in the model works row by row, as linear layers, activations and normalisations in
evaluation mode do. Models that do anything else, such as attention or a maximum, are run whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from nicegnn.graph.minibatches import gather_items
from nicegnn.intervention.intervene import Site, intervene
from nicegnn.intervention.query import Query

_SUMS = ("scatter_add_", "scatter_add", "index_add_", "index_add")
_NO_SUMS = ("scatter_reduce_", "scatter_reduce", "index_reduce_", "index_reduce")
_BLOCK_NODES = 5e7  # bonds times nodes whose neighbourhoods are found together
_COMPARED = 6  # bonds whose answers are compared with those of whole graphs


class CannotFollow(Exception):
    """The model does something that a difference cannot be sent through; the text says what."""


@dataclass(frozen=True)
class Sum:
    """One sum of the clean pass."""

    is_pooled: bool  # over the nodes of graphs, otherwise over the edges of nodes
    dim: int  # dimension that is added up
    value: Tensor  # what was added, with a row per edge or node
    result: Tensor  # with a row per node or graph


@dataclass(frozen=True)
class Pieces:
    """Reached nodes and the edges between them, one piece per bond, side by side."""

    bond: Tensor  # the damaged bond of each piece, [K]
    node: Tensor  # node of the batch behind each node, [V]
    node_piece: Tensor  # piece of each node, rising, [V]
    edge: Tensor  # edge of the batch behind each edge, [E]
    edge_index: Tensor  # by nodes of the pieces, [2, E]
    edge_piece: Tensor  # piece of each edge, rising, [E]

    def part(self, first: int, last: int) -> Pieces:
        """Returns the pieces from `first` to one before `last`."""
        ends = torch.tensor([first, last], device=self.bond.device)
        a, b = torch.searchsorted(self.node_piece, ends).tolist()
        c, d = torch.searchsorted(self.edge_piece, ends).tolist()
        nodes, edges = slice(a, b), slice(c, d)
        return Pieces(
            self.bond[first:last],
            self.node[nodes],
            self.node_piece[nodes] - first,
            self.edge[edges],
            self.edge_index[:, edges] - a,
            self.edge_piece[edges] - first,
        )

    def repeated(self, times: int) -> Pieces:
        """Returns all pieces several times, one after the other."""
        copy = torch.arange(times, device=self.bond.device)

        def counted(value: Tensor, step: int) -> Tensor:
            return (value.unsqueeze(-2) + step * copy.unsqueeze(1)).flatten(-2)

        num_nodes, num = self.node.numel(), self.bond.numel()
        return Pieces(
            self.bond.repeat(times),
            self.node.repeat(times),
            counted(self.node_piece, num),
            self.edge.repeat(times),
            counted(self.edge_index, num_nodes),
            counted(self.edge_piece, num),
        )


class Follower:
    """A clean pass of the model over a query's batch, and what is needed to follow a difference.

    Raises:
        CannotFollow: if the model or the batch does not allow it.
    """

    def __init__(self, query: Query) -> None:
        case, target = query.case, query.target
        if target.level != "graph" or not target.is_batched:
            raise CannotFollow("The model explains nodes, or takes one graph at a time.")
        if not query.stack.can_cut:
            raise CannotFollow("Graphs have attributes that belong to no node, edge or graph.")
        self.num_nodes, self.num_edges = int(case.batch.num_nodes), case.num_edges
        gate = query.clean.new_ones(self.num_edges)
        record = _RecordSums(case.batch.batch)
        index = case.batch.edge_index
        passing = intervene(target.model, _unchanged, gate, edge_index=index)
        with torch.no_grad(), passing as report, record:
            target.call(case.batch)
        if report.excluded:
            raise CannotFollow(f"Layers are left out by explain=False: {report.excluded}.")
        self.sums, self.num_layers = record.sums, len(report.layers)
        sender, self._receiver = index
        self._out_pointer = _pointer(sender, self.num_nodes)
        self._out_edge = sender.argsort(stable=True)  # edges by their sender
        self._bond_pointer = _pointer(case.bonds.edge_bond, case.bonds.batch.numel())
        self._bond_edge = case.bonds.edge_bond.argsort(stable=True)

    def damage(
        self, query: Query, bond: Tensor, num_draws: int, stream: int, first_draw: Tensor
    ) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Yields bonds, draws and raw outputs, ``[K]``, ``[K]`` and ``[K, C]``, chunk by chunk.

        ``first_draw`` is the number of each bond's first noise draw, ``[M]``.
        """
        block = max(1, min(4096, int(_BLOCK_NODES // max(1, self.num_nodes))))
        for some in torch.split(bond, block):
            pieces = self.pieces(some)
            size = num_draws * torch.bincount(pieces.edge_piece, minlength=some.numel())
            chunk = (size.cumsum(0) - size) // query.chunk_edges
            first = 0
            for count in torch.unique_consecutive(chunk, return_counts=True)[1].tolist():
                copies = pieces.part(first, first + count).repeated(num_draws)
                draw = torch.arange(num_draws, device=bond.device).repeat_interleave(count)
                noise = draw + first_draw[copies.bond]
                yield copies.bond, draw, self.outputs(query, copies, noise, stream)
                first += count

    def outputs(self, query: Query, pieces: Pieces, noise: Tensor, stream: int) -> Tensor:
        """Returns the raw output for each piece's graph, its bond being damaged, ``[K, C]``."""
        bonds, graph = query.case.bonds, query.case.bonds.batch[pieces.bond]
        where = pieces.node_piece, pieces.edge_index
        copies = query.stack.cut(graph, pieces.node, pieces.edge, *where)
        is_clean = bonds.edge_bond[pieces.edge] != pieces.bond[pieces.edge_piece]
        gate = is_clean.to(query.clean.dtype)
        draw = noise[pieces.edge_piece]
        if query.is_anchored:
            _ = query.clean_messages  # recorded by a pass that is not to be followed
        with _FollowSums(self, pieces, graph, copies.batch) as follow:
            out = query.damaged(copies, pieces.edge, gate, draw, stream)
        if follow.number != len(self.sums):
            raise CannotFollow("The model adds up another number of times.")
        return out

    def pieces(self, bond: Tensor) -> Pieces:
        """Returns what damage to each bond, ``[K]``, reaches before the last layer."""
        num_nodes, receiver = self.num_nodes, self._receiver
        place, start = gather_items(self._bond_pointer, bond)
        home = torch.arange(bond.numel(), device=bond.device).repeat_interleave(start.diff())
        newest = torch.unique(home * num_nodes + receiver[self._bond_edge[place]])
        reached = newest  # by piece, then by node
        for _ in range(self.num_layers - 1):
            place, start = gather_items(self._out_pointer, newest % num_nodes)
            home = (newest // num_nodes).repeat_interleave(start.diff())
            found = torch.unique(home * num_nodes + receiver[self._out_edge[place]])
            newest = found[~_is_in(found, reached)]
            reached = torch.cat([reached, newest]).sort().values
        node, piece = reached % num_nodes, reached // num_nodes
        place, start = gather_items(self._out_pointer, node)
        sender = torch.arange(node.numel(), device=bond.device).repeat_interleave(start.diff())
        edge, home = self._out_edge[place], piece[sender]
        key = home * num_nodes + receiver[edge]
        inside = _is_in(key, reached)
        index = torch.stack([sender[inside], torch.searchsorted(reached, key[inside])])
        return Pieces(bond, node, piece, edge[inside], index, home[inside])


def find_follower(query: Query) -> Follower | None:
    """Returns the follower of a query if differences can be sent through its model, else None.

    The first time, answers for a few bonds are compared with those of whole graphs. The target
    remembers the result until the model's weights change.
    """
    target, shared = query.target, query.shared
    weights = target.weights()
    if target.followed_for == weights and target.not_followed:
        return None
    try:
        if shared.follower is None:
            shared.follower = Follower(query)
        if target.followed_for == weights or _agrees(query, shared.follower):
            target.not_followed = ""
            if shared.has_effect or target.followed_for == weights:
                target.followed_for = weights
            return shared.follower
        reason = "The model is not made of sums and of layers that work row by row."
    except CannotFollow as error:
        reason = str(error)
    shared.follower = None
    target.not_followed, target.followed_for = reason, weights
    return None


def _agrees(query: Query, follower: Follower) -> bool:
    """Whether some bonds get the same answers as in whole copies of their graphs."""
    case = query.case
    reached = case.reached.nonzero().view(-1)
    if reached.numel() == 0:
        return True
    some = reached[:: max(1, reached.numel() // _COMPARED)][:_COMPARED]
    noise = torch.zeros_like(some)
    with torch.no_grad():
        found = follower.outputs(query, follower.pieces(some), noise, 0)
        graph = case.bonds.batch[some]
        edges, home = query.stack.edges_of(graph)
        gate = (case.bonds.edge_bond[edges] != some[home]).to(query.clean.dtype)
        whole = query.damaged(query.stack.take(graph), edges, gate, noise[home], 0)
        clean = query.target.call(query.stack.take(graph))
    query.shared.has_effect = not torch.allclose(whole, clean, rtol=1e-5, atol=1e-5)
    return torch.allclose(found, whole, rtol=1e-3, atol=1e-3)


class _OnSums(TorchFunctionMode):
    """Hands every sum over edges or nodes that is made in its context to `add_up`."""

    def __init__(self, batch: Tensor) -> None:
        super().__init__()
        self._batch = batch  # graph of each node

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        name = getattr(func, "__name__", "")
        if name in _NO_SUMS:
            raise CannotFollow("The model takes a maximum, or attends to neighbours.")
        if name not in _SUMS:
            return func(*args, **(kwargs or {}))
        if kwargs or len(args) != 4 or not isinstance(args[3], Tensor):
            raise CannotFollow("The model adds up in a way that is not known.")
        into, dim, index, value = args
        is_pooled = _shares_memory(index, self._batch)
        return self.add_up(func, into, dim % value.dim(), index, value, is_pooled)

    def add_up(
        self,
        func: Callable[..., Tensor],
        into: Tensor,
        dim: int,
        index: Tensor,
        value: Tensor,
        is_pooled: bool,
    ) -> Tensor:
        """Adds values into a tensor, at the places of an index in one dimension."""
        raise NotImplementedError


class _RecordSums(_OnSums):
    """Keeps every sum of a clean pass."""

    def __init__(self, batch: Tensor) -> None:
        super().__init__(batch)
        self.sums = list[Sum]()

    def add_up(
        self,
        func: Callable[..., Tensor],
        into: Tensor,
        dim: int,
        index: Tensor,
        value: Tensor,
        is_pooled: bool,
    ) -> Tensor:
        out = func(into, dim, index, value)
        self.sums.append(Sum(is_pooled, dim, value, out.clone()))
        return out


class _FollowSums(_OnSums):
    """Completes the sums of a pass over pieces by those of the clean pass."""

    def __init__(self, clean: Follower, pieces: Pieces, graph: Tensor, batch: Tensor) -> None:
        super().__init__(batch)
        self._clean, self._pieces, self._graph = clean, pieces, graph
        self.number = 0  # sums so far

    def add_up(
        self,
        func: Callable[..., Tensor],
        into: Tensor,
        dim: int,
        index: Tensor,
        value: Tensor,
        is_pooled: bool,
    ) -> Tensor:
        if self.number == len(self._clean.sums):
            raise CannotFollow("The model adds up another number of times.")
        clean = self._clean.sums[self.number]
        self.number += 1
        kept = self._graph if is_pooled else self._pieces.node
        if (is_pooled, dim) != (clean.is_pooled, clean.dim) or into.size(dim) != kept.numel():
            raise CannotFollow("The model adds up other things.")
        known = clean.result.index_select(dim, kept)
        if func.__name__.endswith("_"):  # the model may go on with the tensor that it added to
            known = into.copy_(known)
        change = value - clean.value.index_select(dim, self._rows(value.size(dim), clean))
        return func(known, dim, index, change)

    def _rows(self, size: int, clean: Sum) -> Tensor:
        """Returns the row of the clean pass behind each value."""
        pieces, known = self._pieces, clean.value.size(clean.dim)
        num_nodes, num_edges = self._clean.num_nodes, self._clean.num_edges
        own, num = (pieces.node, num_nodes) if clean.is_pooled else (pieces.edge, num_edges)
        if (size, known) == (own.numel(), num):
            return own
        loops = pieces.node.numel(), num_nodes
        if not clean.is_pooled and (size, known) == (own.numel() + loops[0], num + loops[1]):
            return torch.cat([own, pieces.node + num])  # then a self-loop of each node
        raise CannotFollow("The model adds up other things.")


def _unchanged(message: Tensor, gate: Tensor, site: Site) -> Tensor:
    return message


def _shares_memory(index: Tensor, batch: Tensor) -> bool:
    return index.untyped_storage().data_ptr() == batch.untyped_storage().data_ptr()


def _pointer(item: Tensor, size: int) -> Tensor:
    count = torch.bincount(item, minlength=size)
    return torch.cat([count.new_zeros(1), count.cumsum(0)])


def _is_in(key: Tensor, known: Tensor) -> Tensor:
    """Whether each key is among the sorted ones."""
    place = torch.searchsorted(known, key).clamp(max=known.numel() - 1)
    return known[place] == key
