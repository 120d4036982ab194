"""Two places that a class rests on together: either of them suffices, or both are needed."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor
from torch_geometric.data import Batch

from nicegnn.graph.case import rank_within
from nicegnn.intervention.mechanisms import ElementMask
from nicegnn.intervention.query import Query
from nicegnn.target.losses import log_odds

_SHARE = 0.5  # of the best atom's loss: what an atom of a place has at least
_SURE = 2.2  # log-odds of a class that is predicted with 0.9: near 0 any atom turns it


@torch.no_grad()
def two_places(query: Query, kinds: Mapping[str, Tensor], row: Tensor, loss: Tensor) -> Tensor:
    r"""Returns the atoms of two places of each graph and what the class needs of them, ``[V]``.

    1 and 2 are the places where either suffices, -1 and -2 those that are both needed, 0 is any
    other atom:

    .. math:: m(P) > 0,\; m(Q) > 0,\; m(P \cup Q) < 0 \;\text{(either)}, \qquad
        m(P) < 0,\; m(Q) < 0 \;\text{(both)}, \qquad
        m(S) = \frac1K \sum_k \mathrm{logodds}(G; S \leftarrow b_k)

    Symbols: :math:`P` -> the best atom by ``loss``, ``[V]``, and the atoms joined to it that have
    half of its loss; :math:`Q` -> the same among atoms that are neither in P nor next to it;
    :math:`b_k` -> prototype k of an atom, ``kinds`` and ``row`` as for `lost_without`. It is 0
    throughout where the explained class has a probability below 0.9, where a third place is as good
    as Q, and for values. Of two equal places either may have the number 1.

    Note:
        It costs three passes of the batch for each prototype. Two copies that a maximum pools are
        seldom found: one of them hides the other from the losses of single atoms.
    """
    batch, none = query.case.batch, torch.zeros_like(row[:, 0])
    if query.target.mode in ("regression", "multilabel") or query.target.level != "graph":
        return none
    first = _place(batch, loss)
    near = first.clone()
    for one, other in (batch.edge_index, batch.edge_index.flip(0)):
        near[other[first[one]]] = True
    rest = loss.masked_fill(near, 0.0)
    second = _place(batch, rest)

    def margin(place: Tensor) -> Tensor:
        left = [_exchanged(query, kinds, prototype, place) for prototype in row.t()]
        return torch.stack([log_odds(one.unsqueeze(0), query.explained)[0] for one in left]).mean(0)

    is_two = torch.zeros_like(query.explained).index_add(0, batch.batch, second.long()) > 0
    is_two &= log_odds(query.clean.unsqueeze(0), query.explained)[0] > _SURE
    best = rest.new_zeros(is_two.numel()).scatter_reduce(0, batch.batch, rest, "amax")
    is_rival = (rest == best[batch.batch]) & (rest > 0) & ~second  # a third place, as good
    is_two &= torch.zeros_like(query.explained).index_add(0, batch.batch, is_rival.long()) == 0
    if not bool(is_two.any()):
        return none
    kept, other_kept, together = margin(first) > 0, margin(second) > 0, margin(first | second) > 0
    sign = (kept & other_kept & ~together).long() - (~kept & ~other_kept).long()  # [B]
    return (first.long() + 2 * second.long()) * (sign * is_two)[batch.batch]


def _place(batch: Batch, loss: Tensor) -> Tensor:
    """Returns the best atom of each graph and what is joined to it by half of its loss, ``[V]``."""
    best = loss.new_zeros(batch.num_graphs).scatter_reduce(0, batch.batch, loss, "amax")
    is_in = (loss >= _SHARE * best[batch.batch]) & (loss > 0)
    place = is_in & (rank_within(loss, batch.batch, batch.num_graphs) == 0)
    u, v = batch.edge_index[:, is_in[batch.edge_index].all(0)]
    while True:
        wider = place.clone()
        wider[v[place[u]]] = True
        wider[u[place[v]]] = True
        if torch.equal(wider, place):
            return place
        place = wider


def _exchanged(
    query: Query, kinds: Mapping[str, Tensor], prototype: Tensor, place: Tensor
) -> Tensor:
    """Returns the answers, ``[B, C]``, with all atoms of a place as their prototype, ``[V]``."""
    batch = copy.copy(query.case.batch)
    for key, value in kinds.items():
        is_in = place.view(-1, *[1] * (value.dim() - 1))
        batch[key] = torch.where(is_in, value[prototype], batch[key])
    case = replace(query.case, batch=batch)
    return Query(query.target, case, ElementMask(), explained=query.explained).clean
