"""Attribution one by one: what the prediction loses when one bond, or one atom, is another one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch_geometric.data import Batch

from nicegnn.attribution.joint_path import standard_error
from nicegnn.boundary.srb import check_answers
from nicegnn.errors import GraphError
from nicegnn.graph.case import merge_equal, rank_within
from nicegnn.intervention.background import Background, atom_kinds, prototype_rows
from nicegnn.intervention.one_part import damage_each_bond, replace_each_atom
from nicegnn.intervention.parts import AtomReplacement, copy_chunks
from nicegnn.intervention.query import Query
from nicegnn.seeding import mix
from nicegnn.target.losses import log_odds, value_fall

_SHARE = 0.5  # of the best atom's loss: what an atom of a place has at least
_SURE = 2.2  # log-odds of a class that is predicted with 0.9: near 0 any atom turns it


@dataclass(frozen=True)
class BondAttribution:
    """Losses of a batch, bond by bond, ``[M]`` each; see the same names of `Explanation`."""

    bond_loss: Tensor
    bond_change: Tensor
    bond_stderr: Tensor


@torch.no_grad()
def bond_wise_loss(query: Query, num_draws: int, seed: int) -> BondAttribution:
    r"""Returns what the prediction loses when one bond is damaged and all others stay clean.

    .. math:: s_e = \frac1K \sum_k \big[ m(G) - m(G; e \leftarrow b_k) \big]_+
        \;\text{(classes)}, \qquad
        s_e = \frac1K \sum_k f(G) - f(G; e \leftarrow b_k) \;\text{(values)}

    Symbols: :math:`m` -> log-odds of the explained class; :math:`f` -> the value;
    :math:`e \leftarrow b_k` -> the messages of bond e in all layers, as the query's mechanism
    changes them with gate 0 in draw k: those of prototype k, noise (``num_draws`` times), or
    nothing. Losses that differ by rounding alone are made equal, see `merge_equal`.

    Note:
        The paper moves all bonds together from full corruption to the boundary. Here completeness
        is lost: an effect that needs several bonds counts for each of them, or for none.
    """
    query, bonds = query.losing("signed-margin"), query.case.bonds
    num_draws, is_value = query.draws(num_draws), query.target.mode == "regression"
    change = query.clean.new_zeros(num_draws, bonds.batch.numel())  # of each draw, [N, M]
    for part in damage_each_bond(query, num_draws, mix(seed, "bonds")):
        change[part.draw, part.item] = lost_of(query, part.output, bonds.batch[part.item])
    share = change if is_value else change.clamp(min=0)
    score = share.mean(0)
    check_answers(query, score)
    is_spread = num_draws > 1 or query.is_random
    stderr = standard_error(share) if is_spread else torch.zeros_like(score)
    size = query.clean.abs().amax(1)  # of numbers that were subtracted from each other, [B]
    merged = (merge_equal(one, bonds.batch, size) for one in (score, change.mean(0), stderr))
    return BondAttribution(*merged)


def lost_of(query: Query, output: Tensor, graph: Tensor) -> Tensor:
    """Returns what each graph, ``[K]``, loses in raw output ``[K, C]``; of values, their fall."""
    if query.target.mode != "regression":
        return query.loss_of(output, graph)
    answer = query.target.read(output).unsqueeze(0)
    return value_fall(query.clean[graph], answer, query.explained[graph])[0]


@dataclass(frozen=True)
class AtomAttribution:
    """Losses of a batch, atom by atom, ``[V]`` each; see the same names of `Explanation`."""

    atom_loss: Tensor
    atom_stderr: Tensor
    atom_place: Tensor


@torch.no_grad()
def atom_wise_loss(query: Query, background: Background | None, num: int) -> AtomAttribution:
    r"""Returns what the prediction loses when one atom is replaced by prototype atoms.

    .. math:: s_v = \frac1K \sum_k f(G) - f(G; x_v \leftarrow x_{b_k}) \;\text{(values)}, \qquad
        s_v = \pm \frac1K \sum_k \big[ \pm (m(G) - m(G; x_v \leftarrow x_{b_k})) \big]_+
        \;\text{(classes)}

    For classes falls and gains of the log-odds are averaged apart, and the side that outweighs the
    other counts.

    Symbols: :math:`x_v` -> attributes of atom v that the model reads; :math:`x_{b_k}` -> those of
    prototype k, of the ``background`` or, without one, among the ``num`` of the graph itself;
    :math:`m, f` -> log-odds or value.
    """
    query, batch = query.losing("signed-margin"), query.case.batch
    features = atom_kinds(query.target, batch)
    if not features:
        unknown = query.clean.new_full((int(batch.num_nodes),), torch.nan)
        return AtomAttribution(unknown, unknown, torch.zeros_like(batch.batch))
    kinds, row = atom_prototypes(query, features, background, num)
    share, size = lost_without(query, kinds, row), query.clean.abs().amax(1)
    loss, stderr = (
        merge_equal(one, batch.batch, size) for one in (_over(query, share), standard_error(share))
    )
    return AtomAttribution(loss, stderr, two_places(query, kinds, row, loss))


@torch.no_grad()
def attribute_wise_loss(query: Query, background: Background | None, num: int) -> Tensor:
    r"""Returns what the prediction loses when one attribute of an atom is replaced, ``[V, F]``.

    It is `atom_wise_loss` with :math:`x_{vf} \leftarrow x_{b_k f}` for a single column f of ``x``.
    """
    query = query.losing("signed-margin")
    features = atom_kinds(query.target, query.case.batch)
    x = features.get("x")
    if x is None or x.dim() != 2:
        got = sorted(features)
        raise GraphError(f"`atoms='attributes'` needs graphs with `x` of shape [V, F] (got {got}).")
    kinds, row = atom_prototypes(query, features, background, num)
    donor = kinds["x"][row]  # [V, K, F]
    own = torch.arange(row.numel(), device=row.device).view_as(row)
    loss = query.clean.new_zeros(x.shape)
    for column in (donor != x.unsqueeze(1)).any(0).any(0).nonzero().view(-1).tolist():
        changed = x.unsqueeze(1).repeat(1, row.size(1), 1)
        changed[..., column] = donor[..., column]
        loss[:, column] = _over(query, lost_without(query, {"x": changed.flatten(0, 1)}, own))
    return loss


def lost_without(query: Query, kinds: Mapping[str, Tensor], row: Tensor) -> Tensor:
    """Returns what is lost when each atom becomes each of its prototypes, ``[K, V]``.

    ``kinds`` are attributes by name, ``row`` the rows of each atom's prototypes, ``[V, K]``.
    """
    share = query.clean.new_zeros(*row.t().shape)
    for part in replace_each_atom(query, kinds, row):
        graph = query.case.batch.batch[part.item]
        share[part.draw, part.item] = lost_of(query, part.output, graph)
    return share


def outweighing(share: Tensor) -> Tensor:
    """Returns the mean fall over draws, or minus the mean gain if it is more, ``[K, V]`` to [V].

    >>> outweighing(torch.tensor([[4.0, 1.0], [-2.0, -3.0]]))
    tensor([ 2.0000, -1.5000])
    """
    falls, gains = share.clamp(min=0).mean(0), (-share).clamp(min=0).mean(0)
    return torch.where(gains > falls, -gains, falls)


def _over(query: Query, share: Tensor) -> Tensor:
    return share.mean(0) if query.target.mode == "regression" else outweighing(share)


def atom_prototypes(
    query: Query, features: Mapping[str, Tensor], background: Background | None, num: int
) -> tuple[Mapping[str, Tensor], Tensor]:
    """Returns prototypes of a background with the same attributes, or of each graph.

    They are attributes by name, and the rows among them of each atom, of its kind, ``[V, K]``.
    """
    batch, (num_kinds, _) = query.case.batch, query.target.num_kinds
    number = torch.zeros_like(batch.batch) if query.target.kinds is None else batch.node_type
    if background is None or background.features.keys() != features.keys():
        home, num_sets = batch.batch * num_kinds + number, batch.num_graphs * num_kinds
        return features, prototype_rows(list(features.values()), home, num_sets, num)[home]
    kinds = background.features
    for key, value in kinds.items():
        wanted, got = ((one.dtype, tuple(one.shape[1:])) for one in (value, features[key]))
        if wanted != got:
            raise GraphError(
                f"`{key}` must be of the type and width that it has in the background, "
                f"{wanted} (got {got}). Explain graphs like those of the background."
            )
    size = next(iter(kinds.values())).size(0) // num_kinds
    return kinds, torch.arange(size, device=number.device) + size * number.unsqueeze(1)


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
        Two copies that a maximum pools are seldom found: one hides the other from single losses.
    """
    batch, is_other = query.case.batch, query.target.mode in ("regression", "multilabel")
    if is_other or query.target.level != "graph" or not query.stack.is_complete:
        return torch.zeros_like(row[:, 0])
    first = _place(batch, loss)
    near = first.clone()
    for one, other in (batch.edge_index, batch.edge_index.flip(0)):
        near[other[first[one]]] = True
    rest = loss.masked_fill(near, 0.0)
    second = _place(batch, rest)
    is_two = torch.zeros_like(query.explained).index_add(0, batch.batch, second.long()) > 0
    is_two &= log_odds(query.clean.unsqueeze(0), query.explained)[0] > _SURE
    best = rest.new_zeros(is_two.numel()).scatter_reduce(0, batch.batch, rest, "amax")
    is_rival = (rest == best[batch.batch]) & (rest > 0) & ~second  # a third place, as good
    is_two &= torch.zeros_like(query.explained).index_add(0, batch.batch, is_rival.long()) == 0
    kept, other_kept = (
        _kept_without(query, kinds, row, place, is_two) for place in (first, second)
    )
    together = _kept_without(query, kinds, row, first | second, kept & other_kept)
    sign = (kept & other_kept & ~together).long() - (is_two & ~kept & ~other_kept).long()  # [B]
    return (first.long() + 2 * second.long()) * sign[batch.batch]


def _place(batch: Batch, loss: Tensor) -> Tensor:
    """Returns the best atom of each graph and what is joined to it by half of its loss, ``[V]``."""
    best = loss.new_zeros(batch.num_graphs).scatter_reduce(0, batch.batch, loss, "amax")
    is_in = (loss >= _SHARE * best[batch.batch]) & (loss > 0)
    wider = is_in & (rank_within(loss, batch.batch, batch.num_graphs) == 0)
    u, v = batch.edge_index[:, is_in[batch.edge_index].all(0)]
    place = torch.zeros_like(wider)
    while not torch.equal(wider, place):
        place, wider = wider, wider.clone()
        wider[v[place[u]]] = True
        wider[u[place[v]]] = True
    return place


def _kept_without(
    query: Query, kinds: Mapping[str, Tensor], row: Tensor, place: Tensor, is_asked: Tensor
) -> Tensor:
    """Returns whether the class survives without a place, False for graphs not asked, ``[B]``."""
    graph, num = is_asked.nonzero().view(-1), row.size(1)
    copy_of = graph.repeat_interleave(num)  # [K]
    draw = torch.arange(num, device=graph.device).repeat(graph.numel())  # [K]
    odds, replacement = query.clean.new_zeros(copy_of.numel()), AtomReplacement(kinds, row)
    for some in copy_chunks(query, copy_of):
        copies, nodes = query.stack.take(copy_of[some]), query.stack.nodes_of(copy_of[some])
        spot = place[nodes].nonzero().view(-1)
        replacement.put(copies, spot, nodes[spot], draw[some][copies.batch[spot]])
        answer = query.target.read(query.target.call(copies))
        odds[some] = log_odds(answer.unsqueeze(0), query.explained[copy_of[some]])[0]
    kept = torch.zeros_like(is_asked)
    kept[graph] = odds.view(-1, num).mean(1) > 0
    return kept
