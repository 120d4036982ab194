"""Answers of the target with one bond damaged, or one atom replaced, for every bond or atom."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from nicegnn.errors import ShortCutEnds
from nicegnn.intervention.fused import in_kernels
from nicegnn.intervention.neighbourhoods import in_pieces
from nicegnn.intervention.parts import AtomReplacement, BondDamage, Damaged, PartDamage, in_copies
from nicegnn.intervention.query import Query

#: Ways to the answers, the fastest first. Each takes what it can and leaves the rest to the next.
PATHS = (in_kernels, in_pieces, in_copies)


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
    """Yields the answers for all atoms and prototypes, see `AtomReplacement`, chunk by chunk."""
    atom = torch.arange(row.size(0), device=row.device)
    yield from _damage_each(query, AtomReplacement(kinds, row), atom, row.size(1))


def _damage_each(query: Query, part: PartDamage, item: Tensor, num_draws: int) -> Iterator[Damaged]:
    for path in PATHS:
        if item.numel() == 0:
            return
        is_left = torch.ones(int(item.max()) + 1, dtype=torch.bool, device=item.device)
        try:
            for damaged in path(query, part, item, num_draws):
                yield damaged
                is_left[damaged.item] = False
        except ShortCutEnds:
            pass  # the next path takes the rest
        item = item[is_left[item]]
