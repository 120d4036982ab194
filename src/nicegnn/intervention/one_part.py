"""Answers of the target with one bond damaged, or one atom replaced, for every bond or atom."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from nicegnn.errors import GraphError
from nicegnn.intervention.fused import find_fused
from nicegnn.intervention.neighbourhoods import CannotFollow, find_follower
from nicegnn.intervention.parts import AtomReplacement, BondDamage, PartDamage
from nicegnn.intervention.pieces import chunks_of
from nicegnn.intervention.query import Query


@dataclass(frozen=True)
class Damaged:
    """Answers for some copies of graphs, each with one bond or atom damaged."""

    item: Tensor  # the damaged bond, or replaced atom, of each copy, [K]
    draw: Tensor  # number of its draw, from 0, [K]
    output: Tensor  # the model's raw output for the copy's graph, [K, C]


@torch.no_grad()
def damage_each_bond(query: Query, num_draws: int, stream: int) -> Iterator[Damaged]:
    """Yields the answers for all reached bonds and all draws, a chunk of copies at a time."""
    bond = query.case.reached.nonzero().view(-1)
    done, total = 0, num_draws * bond.numel()
    for damaged in _damage_each(query, BondDamage(stream), bond, num_draws):
        yield damaged
        done += damaged.item.numel()
        query.shared.watch(done, total)


@torch.no_grad()
def replace_each_atom(query: Query, kinds: Mapping[str, Tensor], row: Tensor) -> Iterator[Damaged]:
    """Yields the answers for all atoms and prototypes, a chunk of copies at a time.

    ``kinds`` are attributes of prototype atoms by name, ``row`` the rows of each atom's prototypes
    among them, ``[V, K]``.
    """
    atom = torch.arange(row.size(0), device=row.device)
    yield from _damage_each(query, AtomReplacement(kinds, row), atom, row.size(1))


@torch.no_grad()
def remove_each_bond(query: Query) -> Iterator[Damaged]:
    """Yields the answers without a bond, for all reached bonds.

    Masking only empties the messages of a bond. Without the bond, layers that divide by degrees or
    attention (GCN, GAT) divide by the bonds that are left.
    """
    if query.stack.lost:
        raise GraphError(
            f"Bonds cannot be taken out of this batch: {sorted(query.stack.lost)} belong to no "
            "node, edge or graph. Pass a list of graphs, or name what the model reads in `inputs`."
        )
    bonds, reached = query.case.bonds, query.case.reached.nonzero().view(-1)
    for part in _chunks(query, bonds.batch[reached]):
        bond = reached[part]
        edges, home = query.stack.edges_of(bonds.batch[bond])
        kept = bonds.edge_bond[edges] != bond[home]
        copies = query.stack.take(bonds.batch[bond], kept=kept)
        out = query.own_rows(query.target.call(copies), bonds.batch[bond], copies)
        yield Damaged(bond, torch.zeros_like(bond), out)


def _damage_each(query: Query, part: PartDamage, item: Tensor, num_draws: int) -> Iterator[Damaged]:
    """Yields the answers of the fastest path that takes an item: kernel, differences, copies."""
    if item.numel() == 0:
        return
    is_left = torch.ones(int(item.max()) + 1, dtype=torch.bool, device=item.device)
    for find in (find_fused, find_follower):
        runner = find(query, part, item, num_draws)
        if runner is None:
            continue
        try:
            for chunk in runner.damage(query, part, item, num_draws):
                yield Damaged(*chunk)
                is_left[chunk[0]] = False
        except CannotFollow:
            pass  # this batch alone; whole copies take the rest
        item = item[is_left[item]]
        if item.numel() == 0:
            return
    yield from _copies(query, part, item, num_draws)


def _copies(query: Query, part: PartDamage, item: Tensor, num_draws: int) -> Iterator[Damaged]:
    """Copies a graph once for each of its items and draws."""
    item = item.repeat_interleave(num_draws)  # [K]
    draw = torch.arange(num_draws, device=item.device).repeat(item.numel() // num_draws)  # [K]
    if isinstance(part, BondDamage) and not query.stack.is_complete:
        yield from _copies_of_batch(query, part, item, draw)
        return
    for chunk in _chunks(query, part.graph_of(query, item)):
        yield Damaged(item[chunk], draw[chunk], part.whole(query, item[chunk], draw[chunk]))


def _chunks(query: Query, graph: Tensor) -> Iterator[slice]:
    """Yields slices of copies of graphs, ``[K]``, with about `chunk_edges` edges each."""
    if not query.target.is_batched:
        yield from (slice(k, k + 1) for k in range(graph.numel()))
        return
    yield from chunks_of(query.stack.num_edges[graph].clamp(min=1), query.chunk_edges)


def _copies_of_batch(
    query: Query, part: BondDamage, bond: Tensor, draw: Tensor
) -> Iterator[Damaged]:
    """Does the same with copies of a whole batch, which cannot be split into graphs."""
    bonds = query.case.bonds
    chunks = (torch.split(value, query.chunk_draws) for value in (bond, draw))
    for one, k in zip(*chunks, strict=True):
        gate = (bonds.edge_bond != one.unsqueeze(1)).to(query.clean.dtype)  # [K, E]
        output = query.outputs(gate, part.stream, draw=k)  # [K, B, C]
        yield Damaged(one, k, output[torch.arange(one.numel()), bonds.batch[one]])
