"""Atom-wise attribution: the loss of the prediction when one atom becomes another real one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from nicegnn.attribution.bond_by_bond import lost_of
from nicegnn.attribution.joint_path import standard_error
from nicegnn.attribution.places import two_places
from nicegnn.errors import GraphError
from nicegnn.graph.case import merge_equal
from nicegnn.intervention.background import Background, atom_kinds, prototype_rows
from nicegnn.intervention.one_part import replace_each_atom
from nicegnn.intervention.query import Query


@dataclass(frozen=True)
class AtomAttribution:
    """Losses of a batch, atom by atom."""

    loss: Tensor  # what the prediction loses without the atom, negative if it gains, [V]
    stderr: Tensor  # standard error of the mean change over prototypes, [V]
    place: Tensor  # two places that the class rests on together, see `two_places`, [V]


@torch.no_grad()
def atom_wise_loss(query: Query, background: Background | None, num: int) -> AtomAttribution:
    r"""Returns what the prediction loses when one atom is replaced by prototype atoms.

    .. math:: s_v = \frac1K \sum_k f(G) - f(G; x_v \leftarrow x_{b_k}) \;\text{(values)}

    For classes falls and gains of the log-odds are averaged apart, and the side that outweighs the
    other counts:

    .. math:: s_v = \pm \frac1K \sum_k \big[ \pm (m(G) - m(G; x_v \leftarrow x_{b_k})) \big]_+

    Symbols: :math:`x_v` -> attributes of atom v that the model reads; :math:`x_{b_k}` -> those of
    prototype k, of the ``background`` or, without one, among the ``num`` of the graph itself;
    :math:`m, f` -> log-odds or value. Everything else runs on, so the atom's messages follow. It is
    not the sum over the atom's bonds: these also carry what the neighbours send.
    """
    query = query.losing("signed-margin")
    batch = query.case.batch
    features = atom_kinds(query.target, batch)
    if not features:
        unknown = query.clean.new_full((int(batch.num_nodes),), torch.nan)
        return AtomAttribution(unknown, unknown, torch.zeros_like(batch.batch))
    kinds, row = _prototypes(query, features, background, num)
    share = lost_without(query, kinds, row)
    size = query.clean.abs().amax(1)
    loss, stderr = (
        merge_equal(one, batch.batch, size) for one in (_over(query, share), standard_error(share))
    )
    return AtomAttribution(loss, stderr, two_places(query, kinds, row, loss))


def lost_without(query: Query, kinds: Mapping[str, Tensor], row: Tensor) -> Tensor:
    """Returns what is lost when each atom becomes each of its prototypes, ``[K, V]``.

    ``kinds`` are attributes of atoms by name, ``row`` the rows of each atom's prototypes,
    ``[V, K]``.
    """
    share = query.clean.new_zeros(*row.t().shape)
    for part in replace_each_atom(query, kinds, row):
        graph = query.case.batch.batch[part.item]
        share[part.draw, part.item] = lost_of(query, part.output, graph)
    return share


@torch.no_grad()
def attribute_wise_loss(query: Query, background: Background | None, num: int) -> Tensor:
    r"""Returns what the prediction loses when one attribute of an atom is replaced, ``[V, F]``.

    It is `atom_wise_loss` with :math:`x_{vf} \leftarrow x_{b_k f}` for a single column f of ``x``:
    F times as many passes. Columns in which atom and prototypes agree lose nothing.
    """
    query = query.losing("signed-margin")
    batch = query.case.batch
    features = atom_kinds(query.target, batch)
    x = features.get("x")
    if x is None or x.dim() != 2:
        raise GraphError(
            "`atoms='attributes'` must have graphs with `x` of shape [V, F] (got "
            f"{sorted(features)}). Use atoms=True."
        )
    kinds, row = _prototypes(query, features, background, num)
    donor = kinds["x"][row]  # [V, K, F]
    own = torch.arange(row.numel(), device=row.device).view_as(row)
    loss = query.clean.new_zeros(x.shape)
    for column in (donor != x.unsqueeze(1)).any(0).any(0).nonzero().view(-1).tolist():
        changed = x.unsqueeze(1).repeat(1, row.size(1), 1)
        changed[..., column] = donor[..., column]
        loss[:, column] = _over(query, lost_without(query, {"x": changed.flatten(0, 1)}, own))
    return loss


def _over(query: Query, share: Tensor) -> Tensor:
    """Returns the loss over all prototypes, ``[K, V]`` to [V]: of values, the mean."""
    return share.mean(0) if query.target.mode == "regression" else outweighing(share)


def outweighing(share: Tensor) -> Tensor:
    """Returns the mean fall over draws, or minus the mean gain if it is more, ``[K, V]`` to [V].

    >>> outweighing(torch.tensor([[4.0, 1.0], [-2.0, -3.0]]))
    tensor([ 2.0000, -1.5000])
    """
    falls, gains = share.clamp(min=0).mean(0), (-share).clamp(min=0).mean(0)
    return torch.where(gains > falls, -gains, falls)


def _prototypes(
    query: Query, features: Mapping[str, Tensor], background: Background | None, num: int
) -> tuple[Mapping[str, Tensor], Tensor]:
    """Returns prototypes of a background with the same attributes, or of each graph.

    They are attributes by name, and the rows of each atom's prototypes among them, ``[V, K]``.
    Where there are several kinds of nodes, an atom gets prototypes of its kind.
    """
    batch, kind = query.case.batch, query.target.node_kind(query.case.batch)
    number = torch.zeros_like(batch.batch) if kind is None else kind
    num_kinds = query.target.num_node_kinds
    if background is not None and background.features.keys() == features.keys():
        kinds = background.features
        for key, value in kinds.items():
            wanted, got = ((one.dtype, tuple(one.shape[1:])) for one in (value, features[key]))
            if wanted != got:
                raise GraphError(
                    f"`{key}` must be of the type and width that it has in the background, "
                    f"{wanted} (got {got}). Explain graphs like those of the background."
                )
        size = next(iter(kinds.values())).size(0) // num_kinds
        row = torch.arange(size, device=batch.batch.device)
        return kinds, row + size * number.unsqueeze(1)
    home, num_sets = batch.batch * num_kinds + number, batch.num_graphs * num_kinds
    return features, prototype_rows(list(features.values()), home, num_sets, num)[home]
