"""Damage to one bond or atom as a difference: only nodes that it reaches are run.

A damaged bond changes the states of its receivers after the first layer, of their receivers after
the second, and so on; a replaced atom has changed before the first. A *piece* has these nodes and
the edges between them. The model runs on pieces alone; its sums are completed by the clean pass:

.. math:: \\sum_j v'_j = \\sum_j v_j + \\sum_{j \\in \\mathrm{piece}} (v'_j - v_j)

Symbols: :math:`v_j` -> a value of the clean pass, recorded once; :math:`v'_j` -> its damaged value.
This is exact up to rounding for sums and means, if everything else in the model works row by row.
Models that do anything else, such as attention or a maximum, are run whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from nicegnn.errors import ShortCutEnds, TargetError
from nicegnn.graph.case import Case
from nicegnn.graph.minibatches import gather_items
from nicegnn.intervention.intervene import intervene, is_anchored
from nicegnn.intervention.parts import Damaged, Kind, PartDamage, Pieces, chunks_of, run_whole
from nicegnn.intervention.query import Query

WORTH = 50_000  # edges of whole copies of graphs, for which differences save time
_COMPARED = 6  # items whose answers on two paths are compared
_SUMS = ("scatter_add_", "scatter_add", "index_add_", "index_add")
_NO_SUMS = ("scatter_reduce_", "scatter_reduce", "index_reduce_", "index_reduce")


class Reach:
    """Finds what damage to a bond or an atom reaches in a model of `num_layers` layers.

    Where single rows of the output are explained, ``rows``, nodes are left out whose change comes
    too late to arrive.
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
        #: Bound of the edges of each piece, ``[M]`` or ``[V]``.
        self.sizes = self._count_walks(case)

    def pieces(self, item: Tensor, kind: Kind) -> Pieces:
        """Returns the piece of each bond or atom, ``[K]``, with all edges between its nodes."""
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
            newest = newest[torch.isin(newest, reached, assume_unique=True, invert=True)]
            reached = torch.cat([reached, newest]).sort().values
        node, piece = reached % self.num_nodes, reached // self.num_nodes
        place, start = gather_items(self._out_pointer, node)
        sender = torch.arange(node.numel(), device=item.device).repeat_interleave(start.diff())
        edge, home = self._out_edge[place], piece[sender]
        key = home * self.num_nodes + self._receiver[edge]
        receiver = torch.searchsorted(reached, key).clamp(max=reached.numel() - 1)
        inside = reached[receiver] == key
        index = torch.stack([sender[inside], receiver[inside]])
        return Pieces(item, node, piece, edge[inside], index, home[inside])

    def _in_time(self, key: Tensor, layer: int) -> Tensor:
        """Returns the nodes whose change after a layer can still arrive at the row."""
        return key[self._to_row[key % self.num_nodes] <= self.num_layers - layer]

    def _count_walks(self, case: Case) -> dict[Kind, Tensor]:
        """Bounds the edges of each piece by the walks from it, in time linear in edges."""
        sender, receiver, bonds = self._sender, self._receiver, case.bonds
        degree, most = self._out_pointer.diff().double(), float(case.num_edges)
        walks = [torch.zeros_like(degree)]  # of so many layers that are left
        for left in range(self.num_layers + 1):
            on = torch.zeros_like(degree).index_add(0, sender, walks[-1][receiver])
            number = (degree + on).clamp(max=most)
            walks.append(torch.where(self._to_row <= left, number, 0.0))
        return {"bond": bonds.sum(walks[-2][receiver]).clamp(max=most), "atom": walks[-1]}


def _pointer(item: Tensor, size: int) -> Tensor:
    count = torch.bincount(item, minlength=size)
    return torch.cat([count.new_zeros(1), count.cumsum(0)])


class Sum(NamedTuple):
    """One sum over edges or nodes."""

    is_pooled: bool  # over the nodes of graphs, otherwise over the edges of nodes
    dim: int  # dimension that is added up
    value: Tensor  # what was added, with a row per edge or node
    result: Tensor  # with a row per node or graph, in the clean pass


class Follower:
    """A clean pass over a query's batch, which follows differences, or raises `ShortCutEnds`."""

    def __init__(self, query: Query) -> None:
        case, target = query.case, query.target
        if not query.is_batched or not query.stack.can_cut:
            raise ShortCutEnds("One graph at a time, or graphs that cannot be cut.")
        self.num_nodes, self.num_edges = int(case.batch.num_nodes), case.num_edges
        gate = query.clean.new_ones(self.num_edges)
        record, index = _Sums(case.batch.batch), case.batch.edge_index
        passing = intervene(target.model, lambda message, *_: message, gate, edge_index=index)
        with torch.no_grad(), passing as report, record:
            self.output = target.call(case.batch)[case.rows]  # [B, C]
        self.sums = record.sums
        own = {True: (self.num_nodes,), False: (self.num_edges, self.num_edges + self.num_nodes)}
        is_known = all(one.value.size(one.dim) in own[one.is_pooled] for one in self.sums)
        if report.excluded or not is_known:
            raise ShortCutEnds("Layers are left out, or other things than edges and nodes added.")
        rows = case.rows if target.level == "node" else None
        self.reach = Reach(case, len(report.layers), rows)

    def outputs(self, query: Query, part: PartDamage, pieces: Pieces, draw: Tensor) -> Tensor:
        """Returns the raw output for each piece's graph, its item being damaged, ``[K, C]``."""
        if is_anchored(query.mechanism):
            _ = query.clean_messages  # recorded by a pass that is not to be followed
        graph = part.graph_of(query, pieces.item)
        where = pieces.node_piece, pieces.edge_index
        copies = query.stack.cut(graph, pieces.node, pieces.edge, *where)
        try:
            with _Completed(self, pieces, graph, copies.batch) as follow:
                out = part.run(query, copies, pieces, draw)
        except TargetError as error:
            raise ShortCutEnds("The model does not take parts of graphs.") from error
        if len(follow.sums) != len(self.sums):
            raise ShortCutEnds("The model adds up another number of times.")
        if query.target.level != "node":
            return out
        is_row = pieces.node == query.case.rows[graph][pieces.node_piece]
        return self.output[graph].index_copy(0, pieces.node_piece[is_row], out[is_row])


@torch.no_grad()
def in_pieces(query: Query, part: PartDamage, item: Tensor, num_draws: int) -> Iterator[Damaged]:
    """Yields answers by differences, chunk by chunk, if whole copies would be large.

    Answers for a few items are compared with those of whole graphs first. Raises `ShortCutEnds` if
    differences cannot be sent through the model, or this batch.
    """
    size = query.stack.num_edges[part.graph_of(query, item)].sum()
    if num_draws * int(size) < WORTH:
        return
    follower: Follower = query.shared.follower or Follower(query)
    query.shared.follower, reach = follower, follower.reach
    some = item[:: max(1, item.numel() // _COMPARED)][:_COMPARED]
    # draws differ, since a prototype may be just what an item is
    draw = torch.arange(some.numel(), device=item.device) % num_draws
    found = follower.outputs(query, part, reach.pieces(some, part.kind), draw)
    if not torch.allclose(found, run_whole(query, part, some, draw), rtol=1e-3, atol=1e-3):
        raise ShortCutEnds("The model is not made of sums and of layers that work row by row.")
    number = torch.arange(num_draws, device=item.device)
    for chunk in chunks_of(num_draws * reach.sizes[part.kind][item], query.chunk_edges):
        copies = reach.pieces(item[chunk].repeat(num_draws), part.kind)
        draw = number.repeat_interleave(chunk.stop - chunk.start)
        yield Damaged(copies.item, draw, follower.outputs(query, part, copies, draw))


class _Sums(TorchFunctionMode):
    """Sees and keeps every sum over edges or nodes that is made in its context."""

    def __init__(self, batch: Tensor) -> None:
        super().__init__()
        self.batch = batch  # graph of each node
        self.sums = list[Sum]()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        if name not in (*_SUMS, *_NO_SUMS):
            return func(*args, **(kwargs or {}))
        if name in _NO_SUMS or kwargs or len(args) != 4 or not isinstance(args[3], Tensor):
            raise ShortCutEnds(f"The model takes a maximum, attends, or adds up by {name}.")
        into, dim, place, value = args
        known, memory = self.batch.untyped_storage(), place.untyped_storage()
        is_pooled = memory.data_ptr() == known.data_ptr()
        return self.add_up(func, into, Sum(is_pooled, dim % value.dim(), value, into), place)

    def add_up(self, run: Callable[..., Tensor], into: Tensor, new: Sum, place: Tensor) -> Tensor:
        out = run(into, new.dim, place, new.value)
        self.sums.append(new._replace(result=out.clone()))
        return out


class _Completed(_Sums):
    """Completes the sums of a pass over pieces by those of the clean pass."""

    def __init__(self, clean: Follower, pieces: Pieces, graph: Tensor, batch: Tensor) -> None:
        super().__init__(batch)
        self._clean, self._pieces, self._graph = clean, pieces, graph

    def add_up(self, run: Callable[..., Tensor], into: Tensor, new: Sum, place: Tensor) -> Tensor:
        dim, pieces = new.dim, self._pieces
        if len(self.sums) == len(self._clean.sums):
            raise ShortCutEnds("The model adds up more often.")
        clean = self._clean.sums[len(self.sums)]
        self.sums.append(new)
        kept = self._graph if new.is_pooled else pieces.node
        rows = pieces.node if new.is_pooled else pieces.edge
        num_values, num_edges = clean.value.size(clean.dim), self._clean.num_edges
        if not clean.is_pooled and num_values > num_edges:  # a self-loop of each node comes last
            rows = torch.cat([rows, pieces.node + num_edges])
        is_same = (new.is_pooled, dim) == (clean.is_pooled, clean.dim)
        if not is_same or (into.size(dim), new.value.size(dim)) != (kept.numel(), rows.numel()):
            raise ShortCutEnds("The model adds up other things.")
        base = clean.result.index_select(dim, kept)
        if run.__name__.endswith("_"):  # the model may go on with the tensor that it added to
            base = into.copy_(base)
        return run(base, dim, place, new.value - clean.value.index_select(dim, rows))
