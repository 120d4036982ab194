r"""Reference models in the one form that kernels run, and what all damaged passes have in common.

GIN, GINE, GCN and SAGE of `nicegnn.target.zoo` have a sum or mean over nodes, a head, and layers

.. math:: h' = \phi\big(\phi(a W_1 + h R + b_1)\, W_2 + b_2\big), \qquad
    a_i = \sum_{e = (j, i)} c_e m_e + r h_i

Symbols: :math:`m_e` -> message of an edge; :math:`c_e` -> its coefficient in the sum;
:math:`\phi` -> ReLU; normalisations are joined with the linear map before them. GIN and GINE have
no :math:`R`, SAGE and GCN no :math:`W_2`; a GCN maps states before it sends them, and not again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch_geometric.nn.conv.gcn_conv import gcn_norm

from nicegnn.errors import ShortCutEnds
from nicegnn.target.zoo import GCN, GIN, GINE, READOUTS, SAGE

KINDS: dict[type, str] = {GIN: "gin", GINE: "gine", GCN: "gcn", SAGE: "sage"}


class Layer(NamedTuple):
    """One layer in the form of this module."""

    shift: Tensor  # b_1, [H]
    before: Tensor | None = None  # map before messages are sent (GCN), [in, H]
    scale: Tensor | None = None  # of a GCN's messages, which is part of `before` here, [H]
    weight: Tensor | None = None  # W_1, [F, H]
    own: Tensor | None = None  # R (SAGE), [in, H]
    second: tuple[Tensor, Tensor] | None = None  # W_2, [H, out], and b_2
    root: float = 0.0  # share of a node's own state in its sum, r
    edge: nn.Module | None = None  # map of bond features that messages gain (GINE)

    def sent(self, state: Tensor) -> Tensor:
        """Returns what nodes of these states send, before anything of an edge, ``[V, F]``."""
        return state if self.before is None else state @ self.before

    def mapped(self, total: Tensor) -> Tensor:
        """Returns what becomes of messages, or their sums, before the first ReLU, ``[R, H]``."""
        return total if self.weight is None else total @ self.weight

    def inner(self, state: Tensor, total: Tensor) -> Tensor:
        """Returns what the first ReLU gets, for nodes that received `total`, ``[V, H]``."""
        out = self.mapped(total + self.root * state if self.root else total) + self.shift
        return out if self.own is None else torch.addmm(out, state, self.own)

    def finish(self, inner: Tensor) -> Tensor:
        """Returns the new states, from what the first ReLU gets, ``[V, out]``."""
        out = inner.relu()
        if self.second is None:
            return out
        return torch.addmm(self.second[1], out, self.second[0]).relu()


class Chain(NamedTuple):
    """A model in the form of this module."""

    kind: str
    layers: list[Layer]
    is_mean: bool  # whether states of nodes are averaged, otherwise added up
    head: Callable[[Tensor], Tensor]  # pooled states, [K, H], to the output
    names: tuple[str, ...]  # of the layers in their model

    @property
    def width(self) -> int:
        """Columns of the states inside the chain; its input is not counted."""
        return max(layer.shift.numel() for layer in self.layers)


@torch.no_grad()
def read_chain(target: Any) -> Chain | None:
    """Returns the chain that a reference model is, if the target calls it in the usual way.

    Whether it was changed is seen later, see `fused.Fused`.
    """
    kind, model = KINDS.get(type(target.model)), target.model
    is_usual = target.level == "graph" and target.inputs is None and target.is_batched
    if kind is None or not is_usual or model.readout is READOUTS["max"]:
        return None
    try:
        layers = [_layer(kind, *pair) for pair in zip(model.convs, model.acts, strict=True)]
    except (AttributeError, TypeError, ValueError):
        return None
    names = tuple(f"convs.{number}" for number in range(len(layers)))
    return Chain(kind, layers, model.readout is READOUTS["mean"], model.head, names)


def _layer(kind: str, conv: Any, act: Any) -> Layer:
    if conv.explain is not None:
        raise ValueError("A layer is left out, or explained in a way of its own.")
    if kind == "gcn":
        scale, shift, before = _normed(act[0], conv.bias, conv.lin.weight)
        return Layer(shift, before=before, scale=scale)
    if kind == "sage":
        _, shift, *maps = _normed(act[0], conv.lin_l.bias, conv.lin_l.weight, conv.lin_r.weight)
        return Layer(shift, weight=maps[0], own=maps[1])
    first, norm, _, last = conv.nn
    _, shift, weight = _normed(norm, first.bias, first.weight)
    second = last.weight.t().contiguous(), last.bias.clone()
    edge = conv.lin if kind == "gine" else None
    return Layer(shift, weight=weight, second=second, root=1.0 + float(conv.eps), edge=edge)


def _normed(norm: Any, bias: Tensor, *weights: Tensor) -> list[Tensor]:
    """Joins linear maps with the normalisation of their sum: its scale, their shift, the maps."""
    scale = norm.weight.double() / (norm.running_var.double() + norm.eps).sqrt()
    shift = (bias.double() - norm.running_mean.double()) * scale + norm.bias.double()
    maps = [(weight.double().t() * scale).float().contiguous() for weight in weights]
    return [scale.float(), shift.float(), *maps]


class Damage(NamedTuple):
    """Bonds to damage, or atoms to replace, each alone and in N draws."""

    graph: Tensor  # graph of each bond or atom, [J]
    edges: Tensor  # its directed edges; -1 where there is only one, or none of an atom, [J, 2]
    atom: Tensor  # the atom; -1 of a bond, [J]
    row: Tensor  # row of what comes in its place in each draw, [J, N]
    values: list[Tensor]  # what bonds can say in each layer, L x [R, F]
    x: Tensor  # what atoms can be for the first layer, [R, F]


class Stage(NamedTuple):
    """What happens in one layer of a clean pass."""

    sent: Tensor  # what nodes send, [V, F]
    message: Tensor  # messages without coefficients, [E, F]
    inner: Tensor  # what the first ReLU gets, [V, H]
    state: Tensor  # new states, [V, out]


class CleanPass(NamedTuple):
    """A batch as the layers of a chain see it."""

    chain: Chain
    x: Tensor  # [V, F]
    edge_index: Tensor  # [2, E]
    batch: Tensor  # graph of each node, [V]
    num_graphs: int
    coefficient: Tensor  # of each edge's message in the sum of its receiver, [E]
    outer: Tensor  # the same, where a message holds its own coefficient (GCN) already, [E]
    loop: Tensor | None  # of each node's own message, where layers add self-loops (GCN), [V]
    terms: list[Tensor | None]  # what each layer adds to messages before a ReLU (GINE), [E, F]
    ptr: Tensor  # first node of each graph, [B + 1]
    stages: list[Stage]  # what happens in each layer

    def output(self) -> Tensor:
        """Returns the raw output of the model, ``[B, C]``."""
        state = self.stages[-1].state
        pooled = state.new_zeros(self.num_graphs, state.size(1)).index_add(0, self.batch, state)
        if self.chain.is_mean:
            pooled = pooled / torch.bincount(self.batch).clamp(min=1).unsqueeze(1)
        return self.chain.head(pooled)

    def padded_terms(self, width: int) -> Tensor:
        """Returns what all layers but the first add to messages, ``[L, E, W]``."""
        later = [term for term in self.terms[1:] if term is not None]
        wide = [nn.functional.pad(term, (0, width - term.size(1))) for term in later]
        return torch.stack([self.x.new_zeros(self.edge_index.size(1), width), *wide])


@torch.no_grad()
def clean_pass(chain: Chain, batch: Any) -> CleanPass:
    """Returns the clean pass over a batch, or raises `ShortCutEnds`."""
    x, edge_index, edge_attr = batch.x, batch.edge_index, batch.get("edge_attr")
    (sender, receiver), num_nodes = edge_index, x.size(0)
    if x.dtype != torch.float32:
        raise ShortCutEnds(f"Kernels calculate in float32 (got {x.dtype}).")
    coefficient = outer = x.new_ones(receiver.numel())
    loop = None
    if chain.kind == "gcn":
        if bool((sender == receiver).any()):
            raise ShortCutEnds("A graph has self-loops of its own.")
        weight = gcn_norm(edge_index, None, num_nodes, dtype=x.dtype)[1]
        coefficient, loop = weight[: receiver.numel()], weight[receiver.numel() :]
    elif chain.kind == "sage":
        count = torch.bincount(receiver, minlength=num_nodes).clamp(min=1)
        coefficient = outer = count.to(x.dtype).reciprocal()[receiver]
    terms = [None if layer.edge is None else layer.edge(edge_attr) for layer in chain.layers]
    state, stages = x, list[Stage]()
    for layer, term in zip(chain.layers, terms, strict=True):
        sent = layer.sent(state)
        message = sent[sender] if term is None else (sent[sender] + term).relu()
        weighted = coefficient.unsqueeze(1) * message
        total = torch.zeros_like(sent).index_add(0, receiver, weighted)
        if loop is not None:
            total = total + loop.unsqueeze(1) * sent
        inner = layer.inner(state, total)
        state = layer.finish(inner)
        stages.append(Stage(sent, message, inner, state))
    graphs = chain, x, edge_index, batch.batch, int(batch.num_graphs)
    return CleanPass(*graphs, coefficient, outer, loop, terms, batch.ptr, stages)


class PackedChain:
    """Weights of all layers as kernels read them, padded with zeros to one width, W."""

    def __init__(self, chain: Chain, width: int, device: torch.device) -> None:
        self.chain, self.width, layers = chain, width, chain.layers

        def stacked(values: Sequence[Tensor | None], *shape: int) -> Tensor:
            """Returns a value of each layer in the corner of a larger tensor, ``[L, ...]``."""
            store = torch.zeros(len(layers), *shape)
            for corner, value in zip(store, values, strict=True):
                if value is not None:
                    corner[tuple(slice(size) for size in value.shape)] = value.cpu()
            return store.to(device)

        later, both = layers[1:], [layer.second or (None, None) for layer in layers]
        self.before = stacked([None, *(layer.before for layer in later)], width, width)
        self.weight = stacked([None, *(layer.weight for layer in later)], width, width)
        self.own = stacked([None, *(layer.own for layer in later)], width, width)
        self.shift = stacked([layer.shift for layer in layers], width)
        self.second = stacked([weight for weight, _ in both], width, width)
        self.second_shift = stacked([shift for _, shift in both], width)
        self.root = torch.tensor([layer.root for layer in layers], device=device)
        names = "before", "weight", "own", "second"
        self.has = {name: getattr(layers[0], name) is not None for name in names}

    def mapped_first(self, message: Tensor) -> Tensor:
        """Returns messages of the first layer after its first map, ``[R, W]``."""
        return self._padded(self.chain.layers[0].mapped(message))

    def of_atoms(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Returns what atoms add to their neighbours and themselves before the first ReLU."""
        first = self.chain.layers[0]
        sent = first.sent(x)
        return self.mapped_first(sent), self._padded(first.inner(x, torch.zeros_like(sent)))

    def given(self, values: Sequence[Tensor]) -> Tensor:
        """Returns rows of messages, ``L x [R, F]``, as kernels add them up, ``[L, R, W]``."""
        pairs = zip(values, self.chain.layers, strict=True)
        scaled = [v if layer.scale is None else v * layer.scale for v, layer in pairs]
        return torch.stack([self.mapped_first(scaled[0]), *map(self._padded, scaled[1:])])

    def _padded(self, value: Tensor) -> Tensor:
        return nn.functional.pad(value, (0, self.width - value.size(1)))
