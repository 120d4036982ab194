"""A background: a few real messages and atoms that stand for what a model sees."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Batch, Data

from nicegnn.errors import GraphError, StoreError
from nicegnn.graph.batch import collate, stackable
from nicegnn.graph.case import OWN_KEYS
from nicegnn.graph.minibatches import GraphStack
from nicegnn.intervention.exchange import NUM, Prototypes
from nicegnn.intervention.intervene import CleanMessages, join_messages, record_messages
from nicegnn.intervention.medoids import k_medoids, spread_rows
from nicegnn.intervention.mixing import mixes_graphs
from nicegnn.store import tensors_below
from nicegnn.target.frozen_model import Target, fingerprint

_MOST_GRAPHS = 2000  # that are read, evenly spaced
_MOST_POINTS = 2048  # messages, or atoms, among which prototypes are looked for
_SAMPLE = 64  # edges of a sample
_BATCH = 512  # graphs in one pass
_LAYERS = ("message", "mean", "sample")  # tensors of each layer, in a file
# X_d of Chemprop describes molecules, also where each of them has one atom
_NOT_FEATURES = ("batch", "ptr", "edge_index", "pos", "num_nodes", "node_type", "X_d", *OWN_KEYS)


@dataclass(frozen=True)
class Background:
    """What damaged bonds and atoms say instead of what they are: a fixed part of an explanation."""

    messages: Prototypes  # of prototype edges
    sample: Prototypes  # of edges as frequent as they are, for damage to many edges at once
    features: Mapping[str, Tensor]  # what prototype atoms bring along, [K, ...] each
    model: str  # fingerprint of the model that sent the messages
    num_graphs: int  # graphs that were read
    num_edges: int  # directed edges in them

    def to(self, device: torch.device) -> Background:
        """Returns the same background on a device."""
        moved = {key: value.to(device) for key, value in self.features.items()}
        messages, sample = self.messages.to(device), self.sample.to(device)
        return replace(self, messages=messages, sample=sample, features=moved)

    def tensors(self) -> dict[str, Tensor]:
        """Returns all tensors by name, for a file."""
        by_name = {f"feature.{key}": value for key, value in self.features.items()}
        layers = zip(self.messages.layers, self.messages.means, self.sample.layers, strict=True)
        for number, values in enumerate(layers):
            by_name |= {f"{k}.{number}": v for k, v in zip(_LAYERS, values, strict=True)}
        return {key: value.cpu().contiguous() for key, value in by_name.items()}

    def facts(self) -> dict[str, Any]:
        """Returns what tensors do not say, as plain values."""
        return {
            "layers": list(self.messages.names),
            "num": self.messages.num,
            "kinds": self.messages.kinds,
            "num_sample": self.sample.num,
            "model": self.model,
            "num_graphs": self.num_graphs,
            "num_edges": self.num_edges,
        }

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> Background:
        """Builds a background from `tensors` and `facts`, which a file held."""
        names, features = tuple(facts["layers"]), tensors_below(tensors, "feature")
        kinds = int(facts.get("kinds", 1))  # of edges
        rows = kinds * torch.tensor([facts["num"], 1, facts["num_sample"]])
        none = torch.empty(0)
        held = [[tensors.get(f"{k}.{n}", none) for k in _LAYERS] for n in range(len(names))]
        is_right = len(tensors) == len(features) + len(_LAYERS) * len(names)
        for value in tensors.values():
            is_right &= value.dim() > 0 and len(value) > 0 and bool(value.isfinite().all())
        for values in held:
            width = values[1].shape[1:]
            is_right &= [v.shape for v in values] == [(int(row), *width) for row in rows]
            is_right &= len({v.dtype for v in values}) == 1 and values[0].is_floating_point()
        if not is_right:
            raise StoreError(
                "The tensors of a background must be those of its facts, and finite. Record it "
                "again."
            )
        layers, means, drawn = zip(*held, strict=True)
        messages = Prototypes(layers, means, names, facts["num"], kinds)
        sample = Prototypes(drawn, means, names, facts["num_sample"], kinds)
        rest = (str(facts["model"]), int(facts["num_graphs"]), int(facts["num_edges"]))
        return cls(messages, sample, features, *rest)


@torch.no_grad()
def record_background(target: Target, graphs: Iterable[Any], num: int = NUM) -> Background:
    """Returns the background of a model: `num` prototype edges and atoms of some graphs.

    Of at most 2,000 graphs, evenly spaced in the list, all clean messages are recorded; see
    `prototype_points` for the choice among them, and `spread_rows` for the sample. Labels are not
    read.
    """
    listed: Sequence[Data] = list(stackable(graphs))
    read = min(len(listed), _MOST_GRAPHS)
    chosen = [listed[place * len(listed) // read] for place in range(read)]
    work = target.private()
    size, like = _batch_size(work, chosen), next(work.model.parameters(), torch.zeros(1))
    recorded, batches = [], []
    kind = torch.zeros(0, dtype=torch.long, device=target.device)  # of edges
    for first in range(0, read, size):
        batch = collate(chosen[first : first + size])
        if batch.edge_index.device != target.device:  # PyG's `to` walks through lists of words
            batch = batch.to(target.device)
        batches.append(batch)
        if batch.edge_index.numel():
            gate = like.new_ones(batch.edge_index.size(1))
            call = partial(work.call, batch)
            recorded.append(record_messages(work.model, call, gate, batch.edge_index))
            own = work.edge_kind(batch)
            kind = torch.cat([kind, batch.edge_index.new_zeros(len(gate)) if own is None else own])
    if not recorded:
        raise GraphError(
            f"`background` must hold graphs with edges (got none in {read} graphs). Pass graphs "
            "like those that the model was trained on."
        )
    clean = join_messages(recorded)
    layers = _whole_calls(clean)
    if not all(bool(torch.isfinite(layer).all()) for layer in layers):
        raise GraphError(
            "`background` must hold graphs for which the model sends finite messages (got NaN or "
            "infinite ones). Leave such graphs out."
        )
    kinds = max(int(kind.max()) + 1, target.num_kinds[1])
    points = prototype_points(layers, kind, kinds)
    medoids = k_medoids(points, kind, kinds, num, _MOST_POINTS)  # [T, K]
    turn, sample = torch.arange(_SAMPLE, device=kind.device), kind.new_zeros(kinds, _SAMPLE)
    for one in torch.unique(kind).tolist():
        own = (kind == one).nonzero().view(-1)
        rows = own[spread_rows(points[own], _SAMPLE)]
        sample[one] = rows[turn % rows.numel()]
    messages, drawn = (_taken(clean.names, layers, kind, r, kinds) for r in (medoids, sample))
    features, weights = _prototype_features(work, batches, num), fingerprint(target.model)
    return Background(messages, drawn, features, weights, read, kind.numel())


@torch.no_grad()
def _batch_size(target: Target, graphs: Sequence[Data]) -> int:
    """Returns how many graphs a pass can have; one if the model mixes them."""
    if not target.is_batched:
        return 1
    few = [graph for graph in graphs if graph.edge_index.numel()][:3]
    if not few:
        return _BATCH
    batch = collate(few).to(target.device)
    stack = GraphStack(batch, target.device, wanted=target.may_read)
    return 1 if mixes_graphs(target, stack, target.call(batch)) else _BATCH


def own_prototypes(
    clean: CleanMessages,
    edge_batch: Tensor,
    num_graphs: int,
    kind: Tensor | None = None,
    num_kinds: int = 1,
    *,
    num: int = NUM,
) -> Prototypes:
    """Returns prototypes of each graph among its own edges, from the clean messages of a batch.

    Edges of a ``kind``, ``[E]``, have those of their kind.
    """
    layers = _whole_calls(clean)
    home = edge_batch * num_kinds + (0 if kind is None else kind)
    num_sets = num_graphs * num_kinds
    rows = prototype_rows(layers, home, num_sets, num)
    return _taken(clean.names, layers, home, rows, num_kinds)


def _taken(
    names: Sequence[str], layers: Sequence[Tensor], home: Tensor, rows: Tensor, kinds: int
) -> Prototypes:
    """Returns the messages of some edges of each set, ``[S, K]``, as prototypes.

    Where a set has no edges (-1), they say what the first edge of all says.
    """
    num_sets, num = rows.shape
    size = torch.bincount(home, minlength=num_sets).clamp(min=1).unsqueeze(1)
    taken, means = [], []
    for layer in layers:
        of_set = layer.new_zeros(num_sets, layer.size(1))
        means.append(of_set.index_add(0, home, layer) / size)
        some = rows.view(-1).clamp(min=0)
        taken.append(layer[some] if layer.size(0) else of_set.repeat_interleave(num, 0))
    return Prototypes(tuple(taken), tuple(means), tuple(names), num, kinds)


def prototype_points(values: Sequence[Tensor], home: Tensor, num_sets: int) -> Tensor:
    r"""Returns the points whose k-medoids are the prototypes of each set, ``[E, D]``.

    .. math:: z_e = \big[\, (m_e^{(l)} - \mu^{(l)}) / (\sigma^{(l)} \sqrt{F_l}) \,\big]_{l}

    Symbols: :math:`m_e^{(l)}` -> ``values``, ``[E, F_l]`` each; :math:`\mu, \sigma` -> mean and
    spread of a column over the edges of a set (``home``, ``[E]``); :math:`F_l` -> columns. Every
    layer has the same weight.
    """
    size = torch.bincount(home, minlength=num_sets).clamp(min=1).unsqueeze(1).double()
    parts = []
    for value in values:
        wide = value.reshape(value.size(0), math.prod(value.shape[1:])).double()
        zeros = wide.new_zeros(num_sets, wide.size(1))
        mean = zeros.index_add(0, home, wide) / size
        centred = wide - mean[home]
        spread = (zeros.index_add(0, home, centred.square()) / size).sqrt()
        level = (mean.square() + spread.square()).mean(1, keepdim=True).sqrt()
        floor = 1e-3 * level + 1e-12  # a column that is constant but for rounding says nothing
        scale = torch.where(spread > floor, spread.clamp(min=1e-12).reciprocal(), 0.0)
        parts.append(centred * scale[home] / wide.size(1) ** 0.5)
    return torch.cat(parts, dim=1)


def atom_kinds(target: Target, batch: Batch) -> dict[str, Tensor]:
    """Returns what atoms bring along: attributes of nodes that the model may read, ``[V, ...]``."""
    return {
        key: value
        for key, value in batch.to_dict().items()
        if isinstance(value, Tensor)
        and key not in _NOT_FEATURES
        and batch.is_node_attr(key)
        and target.may_read(key)
    }


def _whole_calls(clean: CleanMessages) -> list[Tensor]:
    """Adds up the messages of a layer that sends those of one relation at a time.

    An edge has one relation, so it sends once in such a call; in its place, whatever the relation
    is, a prototype's one message is sent.
    """
    layers, first = list(clean.layers), 0
    while first < len(layers):
        end, same = first + 1, clean.names[first]
        while end < len(layers) and clean.turns[end] > 0 and clean.names[end] == same:
            end += 1
        if end > first + 1 and sum(clean.counts[first:end]) <= layers[0].size(0):
            layers[first:end] = [torch.stack(layers[first:end]).sum(0)] * (end - first)
        first = end
    return layers


def _prototype_features(target: Target, batches: Sequence[Batch], num: int) -> dict[str, Tensor]:
    features = [atom_kinds(target, batch) for batch in batches]
    joined = {key: torch.cat([one[key] for one in features]) for key in features[0]}
    if not joined:
        return {}
    values = list(joined.values())
    home = torch.zeros(values[0].size(0), dtype=torch.long, device=values[0].device)
    if target.kinds is not None:
        home = torch.cat([batch.node_type for batch in batches])
    rows = prototype_rows(values, home, target.num_kinds[0], num).view(-1).clamp(min=0)
    return {key: value[rows] for key, value in joined.items()}


def prototype_rows(values: Sequence[Tensor], home: Tensor, num_sets: int, num: int) -> Tensor:
    """Returns the rows of ``values`` that are the prototypes of each set, ``[S, K]``."""
    points = prototype_points(values, home, num_sets)
    return k_medoids(points, home, num_sets, num, _MOST_POINTS)
