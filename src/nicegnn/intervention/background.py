"""A background: a few real messages and atoms that stand for what a model sees."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Batch, Data

from nicegnn.errors import GraphError, StoreError
from nicegnn.graph.batch import collate, stackable
from nicegnn.graph.case import OWN_KEYS
from nicegnn.intervention.clean_messages import CleanMessages
from nicegnn.intervention.exchange import NUM, Prototypes
from nicegnn.intervention.intervene import record_messages
from nicegnn.intervention.medoids import k_medoids, spread_rows
from nicegnn.store import tensors_below
from nicegnn.target.frozen_model import Target, fingerprint

_MOST_GRAPHS = 2000  # that are read, evenly spaced
_MOST_POINTS = 2048  # messages, or atoms, among which prototypes are looked for
_SAMPLE = 64  # edges of a sample
_BATCH = 512  # graphs in one pass
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
        parts = self.messages.to(device), self.sample.to(device), moved, self.model
        return Background(*parts, self.num_graphs, self.num_edges)

    def tensors(self) -> dict[str, Tensor]:
        """Returns all tensors by name, for a file."""
        by_name = {f"feature.{key}": value for key, value in self.features.items()}
        kept = {
            "message": self.messages.layers,
            "mean": self.messages.means,
            "sample": self.sample.layers,
        }
        for kind, layers in kept.items():
            by_name |= {f"{kind}.{number}": layer for number, layer in enumerate(layers)}
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
        rows = {"message": facts["num"], "mean": 1, "sample": facts["num_sample"]}
        none = torch.empty(0)
        held = {k: [tensors.get(f"{k}.{n}", none) for n in range(len(names))] for k in rows}
        is_right = len(tensors) == len(features) + len(rows) * len(names)
        for value in tensors.values():
            is_right &= value.dim() > 0 and len(value) > 0 and bool(value.isfinite().all())
        for kind, num in rows.items():
            for value, mean in zip(held[kind], held["mean"], strict=True):
                is_right &= value.shape == (kinds * num, mean.size(-1))
                is_right &= value.dtype == mean.dtype and value.is_floating_point()
        if not is_right:
            raise StoreError(
                "The tensors of a background must be those of its facts, and finite. Record it "
                "again."
            )
        layers, means, drawn = (tuple(values) for values in held.values())
        messages = Prototypes(layers, means, names, rows["message"], kinds)
        sample = Prototypes(drawn, means, names, rows["sample"], kinds)
        rest = (str(facts["model"]), int(facts["num_graphs"]), int(facts["num_edges"]))
        return cls(messages, sample, features, *rest)


@torch.no_grad()
def record_background(target: Target, graphs: Iterable[Any], num: int = NUM) -> Background:
    """Returns the background of a model: `num` prototype edges and atoms of some graphs.

    Of at most 2,000 graphs, evenly spaced in the list, all clean messages are recorded; see
    `prototype_rows` for the choice among them, and `spread_rows` for the sample. Labels are not
    read.
    """
    listed: Sequence[Data] = list(stackable(graphs))
    read = min(len(listed), _MOST_GRAPHS)
    chosen = [listed[place * len(listed) // read] for place in range(read)]
    work = target.private()
    size, like = _BATCH if work.is_batched else 1, next(work.model.parameters(), torch.zeros(1))
    recorded, batches, of_edges = [], [], []
    for first in range(0, read, size):
        batch = collate(chosen[first : first + size])
        if batch.edge_index.device != target.device:  # PyG's `to` walks through lists of words
            batch = batch.to(target.device)
        if batch.edge_index.numel():
            gate = like.new_ones(batch.edge_index.size(1))
            call = partial(work.call, batch)
            recorded.append(record_messages(work.model, call, gate, batch.edge_index))
            of_edges.append(work.edge_kind(batch))
        batches.append(batch)
    if not recorded:
        raise GraphError(
            f"`background` must hold graphs with edges (got none in {read} graphs). Pass graphs "
            "like those that the model was trained on."
        )
    layers = [torch.cat(parts) for parts in zip(*(one.layers for one in recorded), strict=True)]
    counts = [sum(of_layer) for of_layer in zip(*(one.counts for one in recorded), strict=True)]
    layers = _whole_calls(layers, recorded[0], counts)
    if not all(bool(torch.isfinite(layer).all()) for layer in layers):
        raise GraphError(
            "`background` must hold graphs for which the model sends finite messages (got NaN or "
            "infinite ones). Leave such graphs out."
        )
    kind = torch.zeros(layers[0].size(0), dtype=torch.long, device=target.device)
    if of_edges[0] is not None:
        kind = torch.cat([one for one in of_edges if one is not None])
    kinds = max(int(kind.max()) + 1, target.num_edge_kinds)
    names = tuple(recorded[0].names)
    points, means = standardised(layers, kind, kinds), _means(layers, kind, kinds)
    medoids = k_medoids(points, kind, kinds, num, _MOST_POINTS)  # [T, K]
    spread = [spread_rows(points[kind == one], _SAMPLE) for one in range(kinds)]
    most = max(rows.numel() for rows in spread)
    places = [(kind == one).nonzero().view(-1)[rows] for one, rows in enumerate(spread)]
    drawn = torch.stack([_repeated(rows, most) for rows in places])
    # edges of a kind that the background lacks say what edges of the first kind say
    messages, sample = (
        Prototypes(tuple(layer[rows.view(-1)] for layer in layers), means, names, number, kinds)
        for rows, number in ((medoids.clamp(min=0), num), (drawn, most))
    )
    features = _prototype_features(work, batches, num)
    weights = fingerprint(target.model)
    return Background(messages, sample, features, weights, read, layers[0].size(0))


def own_prototypes(
    clean: CleanMessages,
    edge_batch: Tensor,
    num_graphs: int,
    num: int = NUM,
    *,
    kind: Tensor | None = None,
    num_kinds: int = 1,
) -> Prototypes:
    """Returns prototypes of each graph among its own edges, from the clean messages of a batch.

    Edges of a ``kind``, ``[E]``, have those of their kind.
    """
    layers = _whole_calls(list(clean.layers), clean, list(clean.counts))
    home, num_sets = edge_batch * num_kinds, num_graphs * num_kinds
    home = home if kind is None else home + kind
    rows = prototype_rows(layers, home, num_sets, num).view(-1).clamp(min=0)
    rows_of_layers = tuple(
        layer[rows] if layer.size(0) else layer.new_zeros(rows.numel(), layer.size(1))
        for layer in layers
    )
    return Prototypes(
        rows_of_layers, _means(layers, home, num_sets), tuple(clean.names), num, num_kinds
    )


def _means(layers: Sequence[Tensor], home: Tensor, num_sets: int) -> tuple[Tensor, ...]:
    """Returns the mean message of each set of edges in each layer, ``[S, F]`` each."""
    size = torch.bincount(home, minlength=num_sets).clamp(min=1).unsqueeze(1)
    zeros = (layer.new_zeros(num_sets, layer.size(1)) for layer in layers)
    return tuple(z.index_add(0, home, v) / size for z, v in zip(zeros, layers, strict=True))


def _repeated(rows: Tensor, most: int) -> Tensor:
    """Returns rows, in turn, until there are `most` of them; the first row where there are none."""
    place = torch.arange(most, device=rows.device)
    return rows[place % rows.numel()] if rows.numel() else torch.zeros_like(place)


def prototype_rows(layers: Sequence[Tensor], home: Tensor, num_sets: int, num: int) -> Tensor:
    r"""Returns the edges whose messages are the prototypes of each set, ``[B, K]``.

    They are the k-medoids of

    .. math:: z_e = \big[\, (m_e^{(l)} - \mu^{(l)}) / (\sigma^{(l)} \sqrt{F_l}) \,\big]_{l}

    Symbols: :math:`m_e^{(l)}` -> ``layers``, ``[E, F_l]`` each; :math:`\mu, \sigma` -> mean and
    spread of a column over the edges of a set (``home``, ``[E]``); :math:`F_l` -> columns. Every
    layer has the same weight.
    """
    return k_medoids(standardised(layers, home, num_sets), home, num_sets, num, _MOST_POINTS)


def standardised(values: Sequence[Tensor], home: Tensor, num_sets: int) -> Tensor:
    """Returns values side by side, each column with mean 0 and spread 1 in its set, ``[n, D]``."""
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


def _whole_calls(layers: list[Tensor], clean: CleanMessages, counts: list[int]) -> list[Tensor]:
    """Adds up the messages of a layer that sends those of one relation at a time.

    An edge has one relation, so it sends once in such a call; in its place, whatever the relation
    is, a prototype's one message is sent.
    """
    num_edges, first = layers[0].size(0), 0
    while first < len(layers):
        end = first + 1
        while end < len(layers) and clean.turns[end] > 0 and clean.names[end] == clean.names[first]:
            end += 1
        if end > first + 1 and sum(counts[first:end]) <= num_edges:
            total = torch.stack(layers[first:end]).sum(0)
            layers[first:end] = [total] * (end - first)
        first = end
    return layers


def _prototype_features(target: Target, batches: Sequence[Batch], num: int) -> dict[str, Tensor]:
    features = [atom_kinds(target, batch) for batch in batches]
    joined = {key: torch.cat([one[key] for one in features]) for key in features[0]}
    if not joined:
        return {}
    values = list(joined.values())
    home = torch.zeros(values[0].size(0), dtype=torch.long, device=values[0].device)
    kinds = [target.node_kind(batch) for batch in batches]
    if target.kinds is not None:
        home = torch.cat([kind for kind in kinds if kind is not None])
    rows = prototype_rows(values, home, target.num_node_kinds, num).view(-1).clamp(min=0)
    return {key: value[rows] for key, value in joined.items()}
