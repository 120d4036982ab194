"""Answers of the target with one atom replaced by another real one, for every atom."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch_geometric.data import Batch

from nicegnn.intervention.neighbourhoods import CannotFollow, find_follower
from nicegnn.intervention.query import Query


@dataclass(frozen=True)
class Replaced:
    """Answers for some copies of graphs, each with one atom replaced."""

    atom: Tensor  # the replaced atom of each copy, [K]
    draw: Tensor  # number of the prototype, from 0, [K]
    output: Tensor  # the model's raw output for the copy's graph, [K, C]


@dataclass(frozen=True)
class PrototypeAtoms:
    """What atoms bring along instead of their own: attributes of prototype atoms."""

    kinds: Mapping[str, Tensor]  # attributes of all candidates, by name
    row: Tensor  # row of each atom's prototypes among them, [V, K]

    def put(self, copies: Batch, place: Tensor, atom: Tensor, draw: Tensor) -> None:
        """Gives rows of a batch the attributes that atoms get in draws, ``[K]`` each."""
        for key, value in self.kinds.items():
            copies[key] = copies[key].index_copy(0, place, value[self.row[atom, draw]])


@torch.no_grad()
def replace_each_atom(query: Query, prototypes: PrototypeAtoms) -> Iterator[Replaced]:
    """Yields the answers for all atoms and prototypes, a chunk of copies at a time.

    Only what an atom reaches is run where differences can be sent through the model, else whole
    copies of its graph.
    """
    device, num_draws = query.clean.device, prototypes.row.size(1)
    left = torch.arange(prototypes.row.size(0), device=device)
    follower = find_follower(query, "atom", prototypes.put)
    if follower is not None:
        done = torch.zeros_like(left, dtype=torch.bool)
        try:
            for some in follower.replace(query, left, num_draws, prototypes.put):
                yield Replaced(*some)
                done[some[0]] = True
        except CannotFollow:  # this batch alone
            left = left[~done]
        else:
            return
    atom = left.repeat_interleave(num_draws)
    draw = torch.arange(num_draws, device=device).repeat(left.numel())
    for part in _chunks(query, query.case.batch.batch[atom]):
        output = query.with_one_replaced(atom[part], draw[part], prototypes.put)
        yield Replaced(atom[part], draw[part], output)


def _chunks(query: Query, graph: Tensor) -> Iterator[slice]:
    """Yields slices of copies of graphs, ``[K]``, with about `chunk_edges` edges each."""
    if not query.target.is_batched:
        yield from (slice(k, k + 1) for k in range(graph.numel()))
        return
    size = query.stack.num_edges[graph].clamp(min=1)
    chunk = (size.cumsum(0) - size) // query.chunk_edges
    first = 0
    for count in torch.unique_consecutive(chunk, return_counts=True)[1].tolist():
        yield slice(first, first + count)
        first += count
