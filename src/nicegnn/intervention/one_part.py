"""Answers of the target with one bond damaged, or one atom replaced, for every bond or atom."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from nicegnn.errors import GraphError, ShortCutEnds
from nicegnn.intervention.fused import find_fused
from nicegnn.intervention.neighbourhoods import find_follower
from nicegnn.intervention.parts import AtomReplacement, BondDamage, PartDamage
from nicegnn.intervention.pieces import chunks_of
from nicegnn.intervention.query import Query


class Damaged(NamedTuple):
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


def _damage_each(query: Query, part: PartDamage, item: Tensor, num_draws: int) -> Iterator[Damaged]:
    """Yields the answers of the fastest path that takes an item: kernel, differences, copies."""
    if item.numel() == 0:
        return
    is_left = torch.ones(int(item.max()) + 1, dtype=torch.bool, device=item.device)
    for find in (find_fused, find_follower):
        try:
            path = find(query, part, item, num_draws)
            for chunk in () if path is None else path.damage(query, part, item, num_draws):
                yield Damaged(*chunk)
                is_left[chunk[0]] = False
        except ShortCutEnds:
            pass  # this batch alone; the next path takes the rest
        item = item[is_left[item]]
        if item.numel() == 0:
            return
    if not query.stack.is_complete:
        raise GraphError(
            f"`graphs` must be a batch that can be taken apart (got attributes that belong to no "
            f"node, edge or graph: {sorted(query.stack.lost)}). Pass a list of graphs, or name "
            "what the model reads in `inputs`."
        )
    item = item.repeat_interleave(num_draws)  # [K]
    draw = torch.arange(num_draws, device=item.device).repeat(item.numel() // num_draws)  # [K]
    for some in copy_chunks(query, part.graph_of(query, item)):
        yield Damaged(item[some], draw[some], part.whole(query, item[some], draw[some]))


def copy_chunks(query: Query, graph: Tensor) -> Iterator[slice]:
    """Yields slices of copies of graphs, ``[K]``, with about `chunk_edges` edges each."""
    if query.target.is_batched:
        return chunks_of(query.stack.num_edges[graph].clamp(min=1), query.chunk_edges)
    return (slice(k, k + 1) for k in range(graph.numel()))
