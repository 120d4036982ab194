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
from nicegnn.graph.case import OWN_KEYS, Case
from nicegnn.graph.minibatches import GraphStack
from nicegnn.intervention.exchange import NUM, Prototypes
from nicegnn.intervention.intervene import CleanMessages, record_messages
from nicegnn.intervention.mixing import mixes_graphs
from nicegnn.seeding import normal_rows
from nicegnn.store import tensors_below
from nicegnn.target.frozen_model import Target, fingerprint

_MOST_GRAPHS = 2000  # that are read, evenly spaced
_MOST_POINTS = 2048  # messages, or atoms, among which prototypes are looked for
_SAMPLE = 64  # edges of a sample
_BATCH = 512  # graphs in one pass
_LAYERS = ("message", "mean", "sample")  # tensors of each layer, in a file
_ROUNDS = 20  # most rounds of reassignment
_EQUAL = 1e-3  # points that are nearer are the same but for rounding; coordinates have spread 1
_ROWS = 128  # of distances that are worked on at a time: they fit into a cache
_SAME = 1e-6  # relative difference of two costs that counts as rounding
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
        moved = {key: value.to(device) for key, value in self.features.items()}
        messages, sample = self.messages.to(device), self.sample.to(device)
        return replace(self, messages=messages, sample=sample, features=moved)

    def tensors(self) -> dict[str, Tensor]:
        """Returns all tensors by name, for a file."""
        by_name = {f"feature.{key}": value for key, value in self.features.items()}
        messages, sample = self.messages, self.sample
        held = zip(_LAYERS, (messages.layers, messages.means, sample.layers), strict=True)
        for name, layers in held:
            by_name |= {f"{name}.{number}": value for number, value in enumerate(layers)}
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
            why = "The tensors of a background must be those of its facts, and finite."
            raise StoreError(f"{why} Record it again.")
        layers, means, drawn = zip(*held, strict=True)
        messages = Prototypes(layers, means, names, facts["num"], kinds)
        sample = Prototypes(drawn, means, names, facts["num_sample"], kinds)
        rest = (str(facts["model"]), int(facts["num_graphs"]), int(facts["num_edges"]))
        return cls(messages, sample, features, *rest)


@torch.no_grad()
def record_background(target: Target, graphs: Iterable[Any], num: int = NUM) -> Background:
    """Returns the background of a model: `num` prototype edges and atoms of some graphs.

    Of at most 2,000 graphs, evenly spaced in the list, all clean messages are recorded; see
    `prototype_points` for the choice among them. Labels are not read.
    """
    listed: Sequence[Data] = list(stackable(graphs))
    read = min(len(listed), _MOST_GRAPHS)
    chosen = [listed[place * len(listed) // read] for place in range(read)]
    work = target.private()
    size = _batch_size(work, chosen)
    batches = [collate(chosen[first : first + size]) for first in range(0, read, size)]
    if batches[0].edge_index.device != target.device:  # PyG's `to` walks through lists of words
        batches = [batch.to(target.device) for batch in batches]
    joined = [batch for batch in batches if batch.edge_index.numel()]
    if not joined:
        why = f"`background` must hold graphs with edges (got none in {read} graphs)."
        raise GraphError(f"{why} Pass graphs like those that the model was trained on.")
    clean = record_batches(work, joined)
    found = [(work.edge_kind(batch), batch.edge_index[0]) for batch in joined]
    kind = torch.cat([torch.zeros_like(ends) if own is None else own for own, ends in found])
    layers = _whole_calls(clean)
    if not all(bool(torch.isfinite(layer).all()) for layer in layers):
        why = "`background` must hold graphs for which the model sends finite messages"
        raise GraphError(f"{why} (got NaN or infinite ones). Leave such graphs out.")
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
    few = [graph for graph in graphs if graph.edge_index.numel()][:3]
    if not target.is_batched or not few:
        return _BATCH if target.is_batched else 1
    batch = collate(few).to(target.device)
    stack = GraphStack(batch, target.device, wanted=target.may_read)
    return 1 if mixes_graphs(target, stack, target.call(batch)) else _BATCH


def record_batches(target: Target, batches: Sequence[Batch]) -> CleanMessages:
    """Returns the clean messages of some batches, side by side."""
    calls = [(partial(target.call, batch), batch.edge_index) for batch in batches]
    parts = [record_messages(target.model, *call) for call in calls]
    layers = [torch.cat(layer) for layer in zip(*(one.layers for one in parts), strict=True)]
    counts = [sum(of_layer) for of_layer in zip(*(one.counts for one in parts), strict=True)]
    return CleanMessages(layers, parts[0].names, parts[0].turns, counts)


def own_prototypes(clean: CleanMessages, case: Case, num: int = NUM) -> Prototypes:
    """Returns prototypes of each graph, and kind, among its own edges."""
    layers = _whole_calls(clean)
    home = case.edge_batch * case.num_kinds + (0 if case.kind is None else case.kind)
    rows = prototype_rows(layers, home, case.num_graphs * case.num_kinds, num)
    return _taken(clean.names, layers, home, rows, case.num_kinds)


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
    held = {k: v for k, v in batch.to_dict().items() if isinstance(v, Tensor)}
    kept = [key for key in held if key not in _NOT_FEATURES and batch.is_node_attr(key)]
    return {key: held[key] for key in kept if target.may_read(key)}


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


def k_medoids(points: Tensor, home: Tensor, num_sets: int, num: int, most: int = 512) -> Tensor:
    r"""Returns ``num`` central points of each set, as numbers of points, ``[B, K]``.

    .. math:: \min_{b_1 \dots b_K} \sum_i \min_k \| z_i - z_{b_k} \|_2

    Symbols: :math:`z` -> ``points``, ``[n, D]``, with coordinates of about spread 1; set of each
    point -> ``home``, ``[n]``; :math:`b` -> the result.

    Medoids are added one by one, each where it lowers the sum most (BUILD of Kaufman and
    Rousseeuw); then points go to their nearest medoid, and medoids to the middle of their points,
    until nothing changes. A projection of the points breaks ties, so that their order does not
    matter; of a set of more than ``most`` points, evenly spaced ones along it are looked at. A set
    with fewer different points than ``num`` repeats them in turn; an empty one has the number -1.
    """
    key = points.double() @ _direction(points)  # [n]
    member, present = _thinned(key, home, num_sets, most)  # [B, S] each
    if member.size(1) == 0:
        return home.new_full((num_sets, num), -1)
    z, key = points.double()[member], key[member]
    distance = torch.cdist(z, z)  # [B, S, S]
    distance.masked_fill_(distance < _EQUAL, 0.0)
    distance.masked_fill_(~present.unsqueeze(1), 0.0)  # what is no point costs nothing
    medoid, number = _build(distance, present, key, num)
    medoid = _alternate(distance, present, key, medoid)
    turn = torch.arange(num, device=home.device).expand_as(medoid)
    medoid = medoid.gather(1, turn % number.unsqueeze(1).clamp(min=1))
    row = member.gather(1, medoid)
    return torch.where((number > 0).unsqueeze(1), row, -1)


def spread_rows(points: Tensor, num: int) -> Tensor:
    """Returns rows that are evenly spaced along a projection of the points, ``[num]`` at most."""
    key = points.double() @ _direction(points)
    num = min(num, key.numel())
    place = (2 * torch.arange(num, device=key.device) + 1) * key.numel() // (2 * num)
    return key.argsort(stable=True)[place]


def _direction(points: Tensor) -> Tensor:
    """Returns a fixed direction, ``[D]``."""
    zero = torch.zeros(1, dtype=torch.long)
    return normal_rows(0, zero, zero, points.size(1))[0].double().to(points.device)


def _thinned(key: Tensor, home: Tensor, num_sets: int, most: int) -> tuple[Tensor, Tensor]:
    """Returns the points of each set that are looked at, in order of their keys, and a mask."""
    order = key.argsort(stable=True)
    order = order[home[order].argsort(stable=True)]  # by set, then by key
    size = torch.bincount(home, minlength=num_sets)
    start = size.cumsum(0) - size
    taken = size.clamp(max=most)
    column = torch.arange(int(taken.max()) if num_sets else 0, device=home.device)
    present = column < taken.unsqueeze(1)
    step = column * size.unsqueeze(1) // taken.unsqueeze(1).clamp(min=1)
    place = (start.unsqueeze(1) + step).clamp(max=max(0, order.numel() - 1))
    return torch.where(present, order[place], 0) if order.numel() else place, present


def _cheapest(cost: Tensor, allowed: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the allowed point of least cost in each row, and that cost; key breaks ties."""
    cost = cost.masked_fill(~allowed, torch.inf)
    least = cost.amin(-1, keepdim=True)
    is_least = cost <= least + _SAME * least.abs() + 1e-12
    return key.masked_fill(~is_least, -torch.inf).argmax(-1), least.squeeze(-1)


def _build(distance: Tensor, present: Tensor, key: Tensor, num: int) -> tuple[Tensor, Tensor]:
    """Returns the first medoids of each set, ``[B, K]``, and how many of them differ, ``[B]``."""
    chosen: list[Tensor] = []
    nearest = distance.new_full(present.shape, torch.inf).masked_fill(~present, 0.0)  # [B, S]
    number = torch.zeros_like(present[:, 0], dtype=torch.long)
    before = distance.new_full((present.size(0),), torch.inf)
    for _ in range(num):
        rows, limit = torch.split(distance, _ROWS, dim=1), nearest.unsqueeze(1)
        cost = torch.cat([torch.minimum(block, limit).sum(2) for block in rows], dim=1)  # [B, S]
        best, least = _cheapest(cost, present, key)
        number += (least < before * (1 - _SAME) - 1e-12) & present[:, 0]
        row = distance.gather(1, best.view(-1, 1, 1).expand(-1, 1, distance.size(2))).squeeze(1)
        nearest, before = torch.minimum(nearest, row), least
        chosen.append(best)
    return torch.stack(chosen, dim=1), number


def _alternate(distance: Tensor, present: Tensor, key: Tensor, medoid: Tensor) -> Tensor:
    """Moves medoids to the middle of their points until nothing changes, ``[B, K]``."""
    for _ in range(_ROUNDS):
        to_medoid = distance.gather(2, medoid.unsqueeze(1).expand(-1, distance.size(1), -1))
        is_near = to_medoid <= to_medoid.amin(2, keepdim=True) * (1 + _SAME) + 1e-12
        cluster = is_near.to(torch.uint8).argmax(2)  # the first of equally near ones, [B, S]
        is_in = torch.nn.functional.one_hot(cluster, medoid.size(1)).bool() & present.unsqueeze(2)
        cost = (distance @ is_in.to(distance)).transpose(1, 2)  # of each point, [B, K, S]
        moved, least = _cheapest(cost, is_in.transpose(1, 2), key.unsqueeze(1).expand_as(cost))
        moved = torch.where(least.isinf(), medoid, moved)  # a repeated medoid has no points
        if torch.equal(moved, medoid):
            break
        medoid = moved
    return medoid
