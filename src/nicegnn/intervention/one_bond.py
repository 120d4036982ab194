"""Answers of the target with one bond damaged or removed, for every bond."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from nicegnn.errors import GraphError
from nicegnn.graph.case import Case, rank_within
from nicegnn.graph.minibatches import GraphStack
from nicegnn.intervention.fused import find_fused
from nicegnn.intervention.neighbourhoods import find_follower
from nicegnn.intervention.query import Query


@dataclass(frozen=True)
class Damaged:
    """Answers for some copies of graphs, each with one bond damaged."""

    bond: Tensor  # the damaged bond of each copy, [K]
    draw: Tensor  # number of the bond's draw, from 0, [K]
    output: Tensor  # the model's raw output for the copy's graph, [K, C]


@torch.no_grad()
def damage_each_bond(
    query: Query, num_draws: int, stream: int, *, fresh: bool = False
) -> Iterator[Damaged]:
    """Yields the answers for all reached bonds and all draws, a chunk of copies at a time.

    A graph is copied once for each of its own bonds and draws. A batch that cannot be split into
    graphs is copied as often as its largest graph has bonds. If ``fresh``, each bond of a graph has
    its own draws.
    """
    total = num_draws * int(query.case.reached.sum())
    yield from _watched(query, _damage(query, num_draws, stream, fresh), total)


def _damage(query: Query, num_draws: int, stream: int, fresh: bool) -> Iterator[Damaged]:
    case = query.case
    reached = case.reached.nonzero().view(-1)
    first = torch.zeros_like(case.bonds.batch)
    if fresh:
        first = num_draws * _numbers(case)
    fused = find_fused(query, num_draws * reached.numel()) if reached.numel() else None
    if fused is not None:
        fits = fused.fits(query, reached)
        for chunk in fused.damage(query, reached[fits], num_draws, stream, first):
            yield Damaged(*chunk)
        reached = torch.cat([reached[~fits], fused.left])
    if reached.numel() == 0:
        return
    number = _numbers(case)
    order = torch.argsort(number[reached], stable=True)  # so that a chunk needs few draws
    follower = find_follower(query)
    if follower is not None:
        for chunk in follower.damage(query, reached[order], num_draws, stream, first):
            yield Damaged(*chunk)
        return
    bond = reached[order].repeat_interleave(num_draws)  # [K]
    draw = torch.arange(num_draws, device=bond.device).repeat(reached.numel())  # [K]
    noise = draw + first[bond]
    stack = query.stack
    if stack.lost or not query.target.is_batched:
        yield from _copies_of_all(query, number, bond, draw, noise, stream)
        return
    for part in _chunks(query, stack, bond):
        yield Damaged(
            bond[part], draw[part], query.with_one_damaged(bond[part], noise[part], stream)
        )


def _numbers(case: Case) -> Tensor:
    """Returns the number of each bond in its graph, those that are reached first, ``[M]``."""
    return rank_within(case.reached.float(), case.bonds.batch, case.num_graphs)


@torch.no_grad()
def remove_each_bond(query: Query) -> Iterator[Damaged]:
    """Yields the answers without a bond, for all reached bonds.

    Masking only empties the messages of a bond. Without the bond, layers that divide by degrees or
    attention (GCN, GAT) divide by the bonds that are left.
    """
    bond = query.case.reached.nonzero().view(-1)
    yield from _watched(query, _remove(query, bond), bond.numel())


def _remove(query: Query, bond: Tensor) -> Iterator[Damaged]:
    stack = query.stack
    if stack.lost:
        raise GraphError(
            f"Bonds cannot be taken out of this batch: {sorted(stack.lost)} belong to no node, "
            "edge or graph. Pass a list of graphs, or name what the model reads: inputs=[...]."
        )
    follower = find_follower(query, "removal") if bond.numel() else None
    if follower is not None:
        for some, output in follower.remove(query, bond):
            yield Damaged(some, torch.zeros_like(some), output)
        return
    for part in _chunks(query, stack, bond) if query.target.is_batched else range(bond.numel()):
        some = bond[part].view(-1)
        yield Damaged(some, torch.zeros_like(some), query.without_one(some))


def _watched(query: Query, each: Iterator[Damaged], total: int) -> Iterator[Damaged]:
    """Tells who watches the query how many answers there are so far."""
    done = 0
    for some in each:
        yield some
        done += some.bond.numel()
        query.shared.watch(done, total)


def can_remove(query: Query) -> bool:
    """Whether bonds can be taken out: the stack must hold all that the model may read."""
    return not query.stack.lost


def _chunks(query: Query, stack: GraphStack, bond: Tensor) -> Iterator[slice]:
    """Yields slices of copies, one per bond, with about `chunk_edges` edges each."""
    size = stack.num_edges[query.case.bonds.batch[bond]]
    chunk = (size.cumsum(0) - size) // query.chunk_edges
    first = 0
    for count in torch.unique_consecutive(chunk, return_counts=True)[1].tolist():
        yield slice(first, first + count)
        first += count


def _copies_of_all(
    query: Query, number: Tensor, bond: Tensor, draw: Tensor, noise: Tensor, stream: int
) -> Iterator[Damaged]:
    """Does the same with copies of the whole batch: copy k damages bond k of every graph."""
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
