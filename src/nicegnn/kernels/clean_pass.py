"""One clean pass of a chain over a batch: what all its damaged passes have in common."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.nn.conv.gcn_conv import gcn_norm

from nicegnn.errors import ShortCutEnds
from nicegnn.kernels.chain import CannotFuse, Chain


@dataclass(frozen=True)
class CleanPass:
    """A batch as the layers of a chain see it."""

    chain: Chain
    x: Tensor  # what the first layer gets, [V, F]
    edge_index: Tensor  # [2, E]
    batch: Tensor  # graph of each node, [V]
    num_graphs: int
    coefficient: Tensor  # of each edge's message in the sum of its receiver, [E]
    outer: Tensor  # the same, where a message holds its own coefficient (GCN) already, [E]
    loop: Tensor | None  # of each node's own message, where a layer adds self-loops, [V]
    edge_terms: list[Tensor | None]  # what each layer adds to messages before a ReLU, [E, F]

    @cached_property
    def first_message(self) -> Tensor:
        """Messages of the first layer, without coefficients, ``[E, F]``."""
        return self.messages(0, self.chain.layers[0].messages(self.x))

    @cached_property
    def first_inner(self) -> Tensor:
        """What the first layer's first ReLU gets, ``[V, H]``."""
        layer = self.chain.layers[0]
        return self._inner(0, self.x, layer.messages(self.x), self.first_message)

    @cached_property
    def layers(self) -> list[tuple[Tensor, Tensor, Tensor]]:
        """What nodes of each layer send, what its first ReLU gets, and its states, ``[V, F]``."""
        stages, state = [], self.x
        for number, layer in enumerate(self.chain.layers):
            sent = layer.messages(state)
            inner = self.first_inner
            if number:
                message = self.messages(number, sent)
                inner = self._inner(number, state, sent, message)
            state = layer.finish(inner)
            stages.append((sent, inner, state))
        return stages

    def messages(self, number: int, sent: Tensor) -> Tensor:
        """Returns the messages of a layer's edges, without coefficients, ``[E, F]``."""
        message, term = sent.index_select(0, self.edge_index[0]), self.edge_terms[number]
        return message if term is None else (message + term).relu()

    def padded_terms(self, width: int) -> Tensor:
        """Returns what all layers but the first add to messages, ``[L, E, W]``."""
        terms = self.x.new_zeros(len(self.edge_terms), self.edge_index.size(1), width)
        for number, term in enumerate(self.edge_terms):
            if number and term is not None:
                terms[number, :, : term.size(1)] = term
        return terms

    def _inner(self, number: int, state: Tensor, sent: Tensor, message: Tensor) -> Tensor:
        total = sent.new_zeros(self.x.size(0), sent.size(1))
        total = total.index_add(0, self.edge_index[1], self.coefficient.unsqueeze(1) * message)
        if self.loop is not None:
            total = total + self.loop.unsqueeze(1) * sent
        return self.chain.layers[number].inner(state, total)


@dataclass(frozen=True)
class Damage:
    """Bonds to damage, or atoms to replace, each alone and in N draws."""

    graph: Tensor  # graph of each bond or atom, [J]
    edges: Tensor  # its directed edges; -1 where there is only one, or none of an atom, [J, 2]
    atom: Tensor  # the atom; -1 of a bond, [J]
    row: Tensor  # row of what comes in its place in each draw, [J, N]
    values: list[Tensor]  # what bonds can say in each layer, L x [R, F]
    x: Tensor  # what atoms can be for the first layer, [R, F]


class _Seen(ShortCutEnds):
    """All that a pass must show has been seen."""


@torch.no_grad()
def clean_pass(chain: Chain, call: Callable[[], Any], batch: Any) -> CleanPass:
    """Returns the clean pass over a batch; `call` runs the model on it.

    Raises:
        CannotFuse: if kernels do not know how layers see this batch.
    """
    edge_index = batch.edge_index
    x, attributes = _inputs(chain, call, edge_index)
    num_nodes, receiver = x.size(0), edge_index[1]
    kind, conv = chain.kind, chain.layers[0].conv
    coefficient, loop = x.new_ones(receiver.numel()), None
    if kind == "gcn":
        if len({(layer.conv.improved, layer.conv.add_self_loops) for layer in chain.layers}) > 1:
            raise CannotFuse("Layers normalise in several ways.")
        if conv.add_self_loops and bool((edge_index[0] == receiver).any()):
            raise CannotFuse("A graph has self-loops of its own.")
        weight = gcn_norm(
            *(edge_index, None, num_nodes, conv.improved, conv.add_self_loops, conv.flow, x.dtype)
        )[1]
        coefficient = weight[: receiver.numel()]
        loop = weight[receiver.numel() :] if conv.add_self_loops else None
    elif kind == "sage":
        averages = {type(layer.conv.aggr_module).__name__ for layer in chain.layers}
        if len(averages) > 1:
            raise CannotFuse("Layers add up in several ways.")
        if averages == {"MeanAggregation"}:
            count = torch.bincount(receiver, minlength=num_nodes).clamp(min=1)
            coefficient = count.to(x.dtype).reciprocal()[receiver]
    terms = []
    for layer, attribute in zip(chain.layers, attributes, strict=True):
        lin = getattr(layer.conv, "lin", None) if kind == "gine" else None
        terms.append(attribute if lin is None else lin(attribute))
    outer = torch.ones_like(coefficient) if kind == "gcn" else coefficient
    graphs = chain, x, edge_index, batch.batch, int(batch.num_graphs)
    return CleanPass(*graphs, coefficient, outer, loop, terms)


def _inputs(
    chain: Chain, call: Callable[[], Any], edge_index: Tensor
) -> tuple[Tensor, list[Tensor | None]]:
    """Returns what the first layer gets, and the edge attributes that each layer reads."""
    states: list[Tensor] = []
    attributes: list[Tensor | None] = []

    def see(conv: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        name = {"gcn": "edge_weight", "gine": "edge_attr"}.get(chain.kind, "size")
        arguments = dict(zip(("x", "edge_index", name), args, strict=False)) | kwargs
        state, extra = arguments["x"], arguments.get(name)
        if not isinstance(state, Tensor) or arguments["edge_index"] is not edge_index:
            raise CannotFuse("A layer is not called with states and the edges of the batch.")
        if (extra is None) == (chain.kind == "gine") or state.dtype != torch.float32:
            raise CannotFuse("A layer is called with weights of edges, or not in float32.")
        states.append(state)
        attributes.append(extra)
        if chain.kind != "gine" or len(attributes) == len(chain.layers):
            raise _Seen

    handles = [
        layer.conv.register_forward_pre_hook(see, with_kwargs=True) for layer in chain.layers
    ]
    try:
        call()
    except _Seen:
        pass
    finally:
        for handle in handles:
            handle.remove()
    if not states:
        raise CannotFuse("The layers of the model did not run.")
    attributes += [None] * (len(chain.layers) - len(attributes))
    return states[0], attributes
