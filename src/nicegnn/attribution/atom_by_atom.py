"""Atom-wise attribution: the loss of the prediction when one atom alone is damaged."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch_geometric.data import Batch

from nicegnn.attribution.joint_path import standard_error
from nicegnn.boundary.objective import restoration_risk
from nicegnn.config import AttributionConfig
from nicegnn.graph.case import edge_slots
from nicegnn.intervention.intervene import Mechanism, Site
from nicegnn.intervention.query import Query
from nicegnn.seeding import mix
from nicegnn.target.frozen_model import value_fall
from nicegnn.target.message_layers import message_flow, unwrap

_FEATURES = -1  # number of the first "layer" of noise for what an atom brings with it


@dataclass(frozen=True)
class AtomAttribution:
    """Losses of a batch, atom by atom."""

    score: Tensor  # loss when the atom is damaged, negative for a gain, [V]
    fall: Tensor  # the same; for regression the fall of the value, which has a direction, [V]
    stderr: Tensor  # standard error of `fall` over noise draws, 0 without noise, [V]
    reaches_features: bool  # whether features were damaged, and not only messages


@torch.no_grad()
def atom_wise_loss(query: Query, config: AttributionConfig, seed: int) -> AtomAttribution:
    r"""Returns what the prediction loses when one atom is damaged and all others stay clean.

    .. math:: s_v = R(x_v \to \Psi_0(x_v),\; m_{v \to u}^{(l)} \to \Psi_0(m_{v \to u}^{(l)})
        \;\forall u, l) - R(G)

    Symbols: :math:`x_v` -> the atom's input features; :math:`m_{v \to u}` -> messages that it sends
    in every layer; :math:`\Psi_0` -> the query's mechanism with gate 0: noise of the same norm, or
    nothing; :math:`R` -> risk over ``config.num_draws`` draws of the loss ``config.degradation``.

    For regression :math:`R` is a squared change, without a direction; ``fall`` has it:
    :math:`f(G) - f(\cdot)`, mean over draws.

    It is not the sum over the atom's bonds: these also carry what the neighbours send, and each is
    damaged while the others are clean. Noise is addressed by the atom's position in its graph, so a
    graph has the same scores in every batch.

    Note:
        Whole numbers, such as atom types, cannot be turned into noise. If an ``nn.Embedding`` reads
        them, what it returns for the atom is damaged instead. If the model does neither read
        floating point ``x`` nor embed whole numbers of nodes, only messages are damaged, and
        ``reaches_features`` is False. Scores are nan if the batch cannot be cut into its graphs.
    """
    query = query.losing(config.degradation)
    batch, stack = query.case.batch, query.stack
    num_atoms, num_draws = int(batch.num_nodes), query.draws(config.num_draws)
    share = query.clean.new_full((num_draws, num_atoms), torch.nan)  # loss of each draw, [N, V]
    if not stack.is_complete or "edge_index" in stack.lost:
        return AtomAttribution(share[0], share[0], share[0], reaches_features=True)
    falls = share.clone() if query.target.mode == "regression" else share
    graph = batch.batch.repeat_interleave(num_draws)  # [K], of each copy
    atom = torch.arange(num_atoms, device=graph.device).repeat_interleave(num_draws)  # [K]
    draw = torch.arange(num_draws, device=graph.device).repeat(num_atoms)  # [K]
    place = edge_slots(batch.batch, batch.num_graphs)[atom]  # in its own graph, [K]
    stream, reached = mix(seed, "atoms"), True
    sends = 0 if message_flow(query.target.model) == "source_to_target" else 1
    for part in _chunks(query, graph):
        own, some = graph[part], draw[part]
        edges, home = stack.edges_of(own)
        copies = stack.take(own)
        row = copies.ptr[:-1] + place[part]  # the damaged atom in each copy, [K]
        site = Site(
            _FEATURES, "features", stream, place[part], some, int(place.max()) + 1, num_draws
        )
        with _damaged_features(query, copies, row, site) as is_damaged:
            sender = copies.edge_index[sends]
            gate = (sender != row[home]).to(query.clean.dtype)
            output = query.damaged(copies, edges, gate, some[home], stream)
        reached &= is_damaged.seen
        if query.target.level == "node":
            output = output[query.case.rows[own] - batch.ptr[own] + copies.ptr[:-1]]
        share[some, atom[part]] = query.loss_of(output, own)
        if falls is not share:
            answer, clean = query.target.read(output).unsqueeze(0), query.clean[own]
            falls[some, atom[part]] = value_fall(clean, answer, query.explained[own])[0]
    score = restoration_risk(share, config.beta) - restoration_risk(share[:, :1] * 0, config.beta)
    if bool(falls.isnan().any()):  # several outputs together have no direction
        falls = share
    fall = score if falls is share else falls.mean(0)
    stderr = torch.zeros_like(score)
    if query.is_random:
        stderr = standard_error(falls, paired=config.antithetic)
    return AtomAttribution(score, fall, stderr, reached)


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


@dataclass
class _Seen:
    """Whether features of the damaged atoms were reached."""

    seen: bool = False


@contextmanager
def _damaged_features(query: Query, copies: Batch, row: Tensor, site: Site) -> Iterator[_Seen]:
    """Damages the features of one atom per copy: ``x`` itself, and what embeddings return."""
    found, mechanism, x = _Seen(), query.mechanism, copies.get("x")
    if isinstance(x, Tensor) and x.is_floating_point() and query.target.may_read("x"):
        copies.x, found.seen = _damaged_rows(mechanism, x, row, site), True
    whole = {  # where whole numbers of nodes lie
        value.untyped_storage().data_ptr()
        for key, value in copies.to_dict().items()
        if isinstance(value, Tensor)
        and not value.is_floating_point()
        and key not in ("batch", "ptr", "edge_index")
        and copies.is_node_attr(key)
    }
    calls = 0

    def damage(_: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> Tensor | None:
        nonlocal calls
        if not args or args[0].untyped_storage().data_ptr() not in whole:
            return None  # an embedding of edges, or of something else
        if output.size(0) != copies.num_nodes:
            return None
        calls, found.seen = calls + 1, True
        return _damaged_rows(mechanism, output, row, replace(site, layer=_FEATURES - calls))

    modules = unwrap(query.target.model).modules() if whole else ()
    embeddings = [module for module in modules if isinstance(module, nn.Embedding)]
    handles = [module.register_forward_hook(damage) for module in embeddings]
    try:
        yield found
    finally:
        for handle in handles:
            handle.remove()


def _damaged_rows(mechanism: Mechanism, value: Tensor, row: Tensor, site: Site) -> Tensor:
    """Returns a value whose chosen rows, ``[K]``, went through the mechanism with gate 0."""
    rows = value[row]  # [K, ...]
    flat = rows.reshape(row.numel(), -1)
    damaged = mechanism(flat, flat.new_zeros(row.numel()), site)
    return value.index_copy(0, row, damaged.view_as(rows))
