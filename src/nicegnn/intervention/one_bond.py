"""What the target answers when the messages of one bond alone are damaged, for every bond."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch_geometric.data import Batch

from nicegnn.errors import GraphError
from nicegnn.graph.case import rank_within
from nicegnn.graph.minibatches import GraphStack
from nicegnn.intervention.query import Query


@dataclass(frozen=True)
class Damaged:
    """Answers of some copies of graphs, each with one bond damaged."""

    bond: Tensor  # the damaged bond of each copy, [K]
    draw: Tensor  # which draw of the bond it is, counted from 0, [K]
    output: Tensor  # the model's raw output for the copy's graph, [K, C]


@torch.no_grad()
def damage_each_bond(
    query: Query, num_draws: int, stream: int, *, fresh: bool = False
) -> Iterator[Damaged]:
    """Yields the answers for all bonds within reach and all draws, a chunk of copies at a time.

    A graph is copied once for each of its own bonds and draws, so small graphs do not pay for large
    ones beside them. Where a batch cannot be taken apart, all of it is copied as often as its
    largest graph has bonds. If ``fresh``, the bonds of a graph have draws of their own instead of
    the same ones.
    """
    case = query.case
    number = rank_within(case.reached.float(), case.bonds.batch, case.num_graphs)  # in its graph
    reached = case.reached.nonzero().view(-1)
    order = torch.argsort(number[reached], stable=True)  # first bonds first: few draws in a chunk
    bond = reached[order].repeat_interleave(num_draws)  # [K]
    draw = torch.arange(num_draws, device=bond.device).repeat(reached.numel())  # [K]
    noise = draw + num_draws * number[bond] if fresh else draw
    stack = query.stack
    if stack.lost or not query.target.is_batched:
        yield from _copies_of_all(query, number, bond, draw, noise, stream)
        return
    for part in _chunks(query, stack, bond):
        some = bond[part]
        graph = case.bonds.batch[some]
        edges, home = stack.edges_of(graph)  # of the batch, and the copy that each belongs to
        copies = stack.take(graph)
        gate = (case.bonds.edge_bond[edges] != some[home]).to(query.clean.dtype)
        output = query.damaged(copies, edges, gate, noise[part][home], stream)
        yield Damaged(some, draw[part], _own_rows(query, output, graph, copies))


@torch.no_grad()
def remove_each_bond(query: Query) -> Iterator[Damaged]:
    """Yields the answers when a bond is taken out of the graph, for all bonds within reach.

    Masking leaves a bond in the graph and only empties its messages. Layers that divide by degrees
    or weigh neighbours against each other (GCN, GAT) divide by what is left when it is taken out.
    """
    case, target = query.case, query.target
    bond = case.reached.nonzero().view(-1)
    stack = query.stack
    if stack.lost:
        raise GraphError(
            f"Bonds cannot be taken out of this batch: {sorted(stack.lost)} belong to no node, "
            "edge or graph. Hand over a list of graphs, or name what the model reads: inputs=[...]."
        )
    for part in _chunks(query, stack, bond) if target.is_batched else range(bond.numel()):
        some = bond[part].view(-1)
        graph = case.bonds.batch[some]
        edges, home = stack.edges_of(graph)
        copies = stack.take(graph, kept=case.bonds.edge_bond[edges] != some[home])
        output = _own_rows(query, target.call(copies), graph, copies)
        yield Damaged(some, torch.zeros_like(some), output)


def can_remove(query: Query) -> bool:
    """Whether bonds can be taken out: all that the model may read must be cut from the batch."""
    return not query.stack.lost


def _chunks(query: Query, stack: GraphStack, bond: Tensor) -> Iterator[slice]:
    """Yields slices of copies, one copy per bond, each of about as many edges as a call takes."""
    size = stack.num_edges[query.case.bonds.batch[bond]]
    chunk = (size.cumsum(0) - size) // query.chunk_edges
    first = 0
    for count in torch.unique_consecutive(chunk, return_counts=True)[1].tolist():
        yield slice(first, first + count)
        first += count


def _own_rows(query: Query, output: Tensor, graph: Tensor, copies: Batch) -> Tensor:
    """Returns the output row of each copy that is explained, ``[K, C]``."""
    if query.target.level == "graph":
        return output
    case = query.case
    return output[case.rows[graph] - case.batch.ptr[graph] + copies.ptr[:-1]]


def _copies_of_all(
    query: Query, number: Tensor, bond: Tensor, draw: Tensor, noise: Tensor, stream: int
) -> Iterator[Damaged]:
    """The same with copies of the whole batch, the k-th bond of every graph damaged in each."""
    case = query.case
    copy_of = torch.stack([number[bond], draw], dim=1)
    rows, home = torch.unique(copy_of, dim=0, return_inverse=True)  # [R, 2]
    for first in range(0, rows.size(0), query.chunk_draws):
        some = rows[first : first + query.chunk_draws]
        part = ((home >= first) & (home < first + some.size(0))).nonzero().view(-1)
        row = home[part] - first
        draws = noise.new_zeros(some.size(0)).index_copy(0, row, noise[part])
        gate = case.edge_gate((number != some[:, :1]).to(query.clean.dtype))  # [R, E]
        output = query.outputs(gate, stream, draw=draws)  # [R, B, C]
        yield Damaged(bond[part], draw[part], output[row, case.bonds.batch[bond[part]]])
