"""Atom-wise attribution: the loss of the prediction when one atom becomes another real one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from nicegnn.attribution.bond_by_bond import fall_of
from nicegnn.attribution.joint_path import standard_error
from nicegnn.graph.case import edge_slots, merge_equal
from nicegnn.intervention.background import Background, atom_kinds, prototype_rows
from nicegnn.intervention.query import Query


@dataclass(frozen=True)
class AtomAttribution:
    """Losses of a batch, atom by atom."""

    loss: Tensor  # mean over prototypes of what is lost; for classes gains count as 0, [V]
    change: Tensor  # the same, gains are negative, [V]
    stderr: Tensor  # standard error of `change` over prototypes, [V]


@torch.no_grad()
def atom_wise_loss(query: Query, background: Background | None, num: int) -> AtomAttribution:
    r"""Returns what the prediction loses when one atom is replaced by prototype atoms.

    .. math:: s_v = \frac1K \sum_k \big[ m(G) - m(G; x_v \leftarrow x_{b_k}) \big]_+
        \;\text{(classes)}, \qquad
        s_v = \frac1K \sum_k f(G) - f(G; x_v \leftarrow x_{b_k}) \;\text{(values)}

    Symbols: :math:`x_v` -> attributes of atom v that the model reads; :math:`x_{b_k}` -> those of
    prototype k, of the ``background`` or, without one, among the ``num`` of the graph itself;
    :math:`m, f` -> log-odds or value. Everything else runs on, so the atom's messages follow.

    It is not the sum over the atom's bonds: these also carry what the neighbours send. Scores are
    nan if the batch cannot be cut into its graphs.
    """
    query = query.losing("signed-margin")
    batch, stack = query.case.batch, query.stack
    num_atoms = int(batch.num_nodes)
    own = atom_kinds(query.target, batch)
    if not own or not stack.is_complete or "edge_index" in stack.lost:
        unknown = query.clean.new_full((num_atoms,), torch.nan)
        return AtomAttribution(unknown, unknown, unknown)
    if background is not None and background.features.keys() == own.keys():
        kinds, rows = dict(background.features), torch.arange(num, device=unknown_device(query))
        rows = rows[: next(iter(kinds.values())).size(0)].expand(num_atoms, -1)  # [V, K]
    else:
        kinds = own
        rows = prototype_rows(list(own.values()), batch.batch, batch.num_graphs, num)[batch.batch]
    num_draws = rows.size(1)
    share = query.clean.new_zeros(num_draws, num_atoms)  # loss of each prototype, [K, V]
    atom = torch.arange(num_atoms, device=rows.device).repeat_interleave(num_draws)
    draw = torch.arange(num_draws, device=rows.device).repeat(num_atoms)
    place = edge_slots(batch.batch, batch.num_graphs)  # of each atom in its graph, [V]
    is_value = query.target.mode == "regression"
    for part in _chunks(query, batch.batch[atom]):
        some, k = atom[part], draw[part]
        graph = batch.batch[some]
        copies = stack.take(graph)
        row = copies.ptr[:-1] + place[some]
        for key, value in kinds.items():
            copies[key] = copies[key].index_copy(0, row, value[rows[some, k]])
        output = query.target.call(copies)
        if query.target.level == "node":
            output = output[query.case.rows[graph] - batch.ptr[graph] + copies.ptr[:-1]]
        told = fall_of(query, output, graph) if is_value else query.loss_of(output, graph)
        share[k, some] = told
    size = query.clean.abs().amax(1)
    falls = share if is_value else share.clamp(min=0)
    loss, change = (merge_equal(v.mean(0), batch.batch, size) for v in (falls, share))
    stderr = merge_equal(standard_error(share, paired=False), batch.batch, size)
    return AtomAttribution(loss, change, stderr)


def unknown_device(query: Query) -> torch.device:
    return query.clean.device


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
