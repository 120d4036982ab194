"""Models that are a chain of common layers, brought into one form that kernels can run.

A chain has message-passing layers (GIN, GINE, GCN or SAGE) with linear maps, normalisations in
evaluation mode and ReLUs after each, then a sum or mean over nodes, and a head. Every layer is

.. math:: h' = s \\odot \\phi_2(\\phi_1(a W_1 + h R + b_1) W_2 + b_2) + t, \\qquad
    a_i = \\sum_{e = (j, i)} c_e m_e + r h_i

Symbols: :math:`m_e` -> message of an edge; :math:`c_e` -> its coefficient in the sum;
:math:`\\phi` -> ReLU or nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch_geometric.nn import GCNConv, GINConv, GINEConv, MessagePassing, SAGEConv
from torch_geometric.nn.aggr import MeanAggregation, SumAggregation

from nicegnn.errors import ShortCutEnds
from nicegnn.target.message_layers import eager, message_layers

KINDS = {GINConv: "gin", GINEConv: "gine", GCNConv: "gcn", SAGEConv: "sage"}
_NEUTRAL = ("new_zeros", "new_ones", "new_full", "zeros_like", "ones_like", "expand_as")
_HEAD = ("linear", "relu", "batch_norm", "dropout", "softmax", "log_softmax", "sigmoid")


class CannotFuse(ShortCutEnds):
    """The model or the batch is not one that kernels can run; the text says why."""


@dataclass(frozen=True)
class Map:
    """A linear map of states, in double precision while maps are joined."""

    weight: Tensor  # [in, out]
    shift: Tensor  # [out]
    is_diagonal: bool = False  # as normalisation in evaluation mode is

    def then(self, other: Map) -> Map:
        """Returns both maps as one."""
        weight, shift = self.weight @ other.weight, self.shift @ other.weight + other.shift
        return Map(weight, shift, self.is_diagonal and other.is_diagonal)


Step = Map | None  # None: ReLU


@dataclass(frozen=True)
class Layer:
    """One layer in the form of this module; float32."""

    conv: MessagePassing
    before: Tensor | None  # map before messages are sent (GCN), [in, F]
    root: float  # share of a node's own state in its sum, r
    weight: Tensor | None  # W_1, [F, H]; None: `scale` multiplies instead
    scale: Tensor  # [F]
    own: Tensor | None  # R (SAGE), [in, H]
    shift: Tensor  # b_1, [H]
    floor: float  # 0 for a ReLU, else minus infinity
    second: tuple[Tensor, Tensor, float] | None  # W_2 [H, out], b_2 and its floor
    after: tuple[Tensor, Tensor] | None  # s and t, [out]

    @property
    def message_size(self) -> int:
        """Columns of messages."""
        return self.shift.numel() if self.weight is None else self.weight.size(0)

    @property
    def out_size(self) -> int:
        """Columns of the new states."""
        return (self.shift if self.second is None else self.second[1]).numel()

    def messages(self, state: Tensor) -> Tensor:
        """Returns what nodes of these states send, before anything of an edge, ``[V, F]``."""
        return state if self.before is None else state @ self.before

    def inner(self, state: Tensor, total: Tensor) -> Tensor:
        """Returns what the first ReLU gets, for nodes that received `total`, ``[V, H]``."""
        if self.root:
            total = total + self.root * state
        if self.weight is None:
            out = total * self.scale + self.shift
        else:
            out = torch.addmm(self.shift, total, self.weight)
        return out if self.own is None else torch.addmm(out, state, self.own)

    def finish(self, inner: Tensor) -> Tensor:
        """Returns the new states, from what the first ReLU gets, ``[V, out]``."""
        out = _floored(inner, self.floor)
        if self.second is not None:
            weight, shift, floor = self.second
            out = _floored(torch.addmm(shift, out, weight), floor)
        return out if self.after is None else out * self.after[0] + self.after[1]


@dataclass(frozen=True)
class Chain:
    """A model in the form of this module."""

    kind: str
    layers: list[Layer]
    is_mean: bool  # whether states of nodes are averaged, otherwise added up
    head: list[Callable[[Tensor], Tensor]]
    names: list[str]  # of the layers in their model

    def of(self, model: nn.Module) -> Chain:
        """Returns the chain with the layers of another copy of its model."""
        convs: list[Any] = [model.get_submodule(name) for name in self.names]
        pairs = zip(self.layers, convs, strict=True)
        return replace(self, layers=[replace(layer, conv=conv) for layer, conv in pairs])

    @property
    def width(self) -> int:
        """Columns of the widest state inside the chain; its input is not counted."""
        sizes = []
        for place, layer in enumerate(self.layers):
            maps = [m for m in (layer.before, layer.weight, layer.own) if m is not None]
            sizes += [m.size(1) for m in maps] + [m.size(0) for m in maps if place]
            sizes.append(layer.out_size)
        return max(sizes)

    def answer(self, pooled: Tensor) -> Tensor:
        """Returns the model's output for pooled states, ``[K, C]``."""
        for step in self.head:
            pooled = step(pooled)
        return pooled


@dataclass
class _Trace(TorchFunctionMode):
    """Watches the states of nodes pass through a model, and writes down what happens to them."""

    batch: Tensor  # graph of each node
    layers: list[tuple[MessagePassing, list[Step]]] = field(default_factory=list)
    head: list[Callable[[Tensor], Tensor]] = field(default_factory=list)
    is_pooled: bool = False
    is_mean: bool = False
    is_inside: bool = False  # a layer is at work
    current: Tensor | None = None

    def __post_init__(self) -> None:
        super().__init__()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        if self.is_inside or self.current is None or not self._is_used(args, kwargs):
            return out
        name = getattr(func, "__name__", "").strip("_")
        if name != "relu" and (not isinstance(out, Tensor) or out is self.current):
            return out  # a size, or nothing happened
        if name not in _NEUTRAL:
            self._note(name, func, args, kwargs)
            self.current = out
        return out

    def _is_used(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
        values = [*args, *kwargs.values()]
        for value in list(values):
            values += value if isinstance(value, list | tuple) else []
        return any(value is self.current for value in values)

    def _note(
        self, name: str, func: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> None:
        if self.is_pooled:
            if name in ("truediv", "div") and not self.head:
                self.is_mean = True
            elif name in _HEAD and args and args[0] is self.current:
                rest = args[1:]
                self.head.append(lambda value: func(value, *rest, **kwargs))
            else:
                raise CannotFuse(f"The head of the model uses `{name}`.")
        elif name in ("scatter_add", "index_add") and len(args) == 4:
            if args[2].untyped_storage().data_ptr() != self.batch.untyped_storage().data_ptr():
                raise CannotFuse("States are added up otherwise than by graph.")
            self.is_pooled = True
        elif name == "dropout":
            pass  # in evaluation mode, it does nothing
        elif name in ("relu", "linear", "batch_norm"):
            self.layers[-1][1].append(_step(name, args, kwargs))
        else:
            raise CannotFuse(f"The model uses `{name}` between its layers.")

    @contextmanager
    def watching(self, model: nn.Module) -> Iterator[None]:
        """Watches while the model runs."""
        handles = []
        for _, conv in message_layers(model):
            kind = KINDS.get(type(conv))
            if kind is None:
                raise CannotFuse(f"Kernels do not know {type(conv).__name__}.")
            _check_layer(conv, kind)
            handles.append(conv.register_forward_pre_hook(self._enter, with_kwargs=True))
            if kind in ("gin", "gine"):
                handles.append(conv.nn.register_forward_pre_hook(self._aggregated))
            handles.append(conv.register_forward_hook(self._leave))
        try:
            with eager(), self:
                yield
        finally:
            for handle in handles:
                handle.remove()

    def _enter(self, conv: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        state = args[0] if args else kwargs.get("x")
        if self.is_pooled or (self.current is not None and state is not self.current):
            raise CannotFuse("Layers do not follow one another.")
        self.is_inside = True
        self.layers.append((conv, []))

    def _aggregated(self, _: nn.Module, args: tuple[Any, ...]) -> None:
        self.is_inside, self.current = False, args[0]

    def _leave(self, conv: nn.Module, _: Any, out: Any) -> None:
        if not self.is_inside and out is not self.current:
            raise CannotFuse("The network inside a layer is not a chain.")
        self.is_inside, self.current = False, out


def read_chain(model: nn.Module, call: Callable[[], Any], batch: Tensor) -> Chain:
    """Returns the chain that a model is, from one pass over some graphs, which `call` runs.

    ``batch`` is the graph of each node in that pass, ``[V]``.

    Raises:
        CannotFuse: if it is not one, or has layers that kernels do not know.
    """
    trace = _Trace(batch)
    with torch.no_grad(), trace.watching(model):
        out = call()
    if not trace.is_pooled or not trace.layers or out is not trace.current:
        raise CannotFuse("The model does not end with a sum or mean over nodes and a head.")
    kinds = {KINDS[type(conv)] for conv, _ in trace.layers}
    if len(kinds) > 1:
        raise CannotFuse("The model has layers of several kinds.")
    layers = [_layer(conv, steps) for conv, steps in trace.layers]
    if len({layer.weight is None for layer in layers}) > 1:
        raise CannotFuse("Some layers begin with a linear map and others do not.")
    name_of = {id(module): name for name, module in model.named_modules()}
    names = [name_of[id(layer.conv)] for layer in layers]
    return Chain(kinds.pop(), layers, trace.is_mean, trace.head, names)


def _check_layer(conv: MessagePassing, kind: str) -> None:
    wanted = (MeanAggregation, SumAggregation) if kind == "sage" else (SumAggregation,)
    plain = conv.flow == "source_to_target" and type(conv.aggr_module) in wanted
    if kind == "sage":
        plain = plain and not conv.normalize and not conv.project
    if kind == "gcn":
        plain = plain and conv.normalize and not conv.cached
    if not plain or conv.explain is not None or conv.decomposed_layers != 1:
        raise CannotFuse(f"Kernels do not know the settings of {conv}.")


def _step(name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Step:
    if name == "relu":
        return None
    if name == "linear":
        arguments = dict(zip(("input", "weight", "bias"), args, strict=False)) | dict(kwargs)
        return _linear(arguments["weight"], arguments.get("bias"))
    names = ("input", "running_mean", "running_var", "weight", "bias", "training", "momentum")
    arguments = dict(zip((*names, "eps"), args, strict=False)) | dict(kwargs)
    mean, var = arguments.get("running_mean"), arguments.get("running_var")
    if arguments.get("training") or mean is None or var is None:
        raise CannotFuse("A normalisation depends on the other nodes.")
    scale = (var.double() + arguments.get("eps", 1e-5)).rsqrt()
    if arguments.get("weight") is not None:
        scale = scale * arguments["weight"].detach().double()
    shift = -mean.double() * scale
    if arguments.get("bias") is not None:
        shift = shift + arguments["bias"].detach().double()
    return Map(scale.diag(), shift, True)


def _linear(weight: Tensor, bias: Tensor | None) -> Map:
    weight = weight.detach().double().t()
    return Map(weight, weight.new_zeros(weight.size(1)) if bias is None else bias.detach().double())


def _layer(conv: MessagePassing, steps: list[Step]) -> Layer:
    """Brings one layer into the form of this module: maps with ReLUs between them are joined."""
    kind, before, own, root = KINDS[type(conv)], None, None, 0.0
    if kind == "gcn":
        before = conv.lin.weight.detach().t().contiguous()
        size = before.size(1)
        shift = before.new_zeros(size) if conv.bias is None else conv.bias.detach()
        steps = [Map(torch.eye(size).to(shift).double(), shift.double(), True), *steps]
    elif kind == "sage":
        first = _linear(conv.lin_l.weight, conv.lin_l.bias)
        if conv.root_weight:  # of sums and own states, one below the other
            own = conv.lin_r.weight.detach().double().t()
            first = Map(torch.cat([first.weight, own]), first.shift)
        steps = [first, *steps]
    else:
        root = 1.0 + float(conv.eps)
    if not steps or steps[0] is None:
        raise CannotFuse("The network inside a layer does not begin with a linear map.")
    maps, floors = list[Map](), list[float]()
    for step in steps:
        if step is None:
            floors[-1:] = [0.0]
        elif not maps or floors[-1] == 0:
            maps.append(step)
            floors.append(-torch.inf)
        else:
            maps[-1] = maps[-1].then(step)
    after = maps.pop() if len(maps) > 1 and floors[-1] != 0 and maps[-1].is_diagonal else None
    if not 1 <= len(maps) <= 2 or (kind != "gcn" and maps[0].is_diagonal):
        raise CannotFuse("The network inside a layer is not one or two linear maps.")
    first, is_scale = maps[0], maps[0].is_diagonal
    weight, own = first.weight, None if own is None else first.weight[-own.size(0) :]
    if own is not None:
        weight = weight[: -own.size(0)]
    second = None
    if len(maps) == 2:
        second = _float(maps[1].weight), _float(maps[1].shift), floors[1]
    return Layer(
        conv,
        before,
        root,
        weight=None if is_scale else _float(weight),
        scale=_float(weight.diagonal()) if is_scale else torch.ones(0),
        own=None if own is None else _float(own),
        shift=_float(first.shift),
        floor=floors[0],
        second=second,
        after=None if after is None else (_float(after.weight.diagonal()), _float(after.shift)),
    )


def _floored(value: Tensor, floor: float) -> Tensor:
    return value if floor == -torch.inf else value.relu()


def _float(value: Tensor) -> Tensor:
    return value.float().contiguous()


class PackedChain:
    """Weights of all layers as kernels read them, padded with zeros to one width, W.

    What the first layer does before its first ReLU is done once per batch, by `mapped_first`.
    """

    def __init__(self, chain: Chain, width: int, device: torch.device) -> None:
        self.chain, self.width, layers = chain, width, chain.layers
        self.has_before, self.has_map = (
            value is not None for value in (layers[0].before, layers[0].weight)
        )
        self.has_own = any(layer.own is not None for layer in layers)
        self.has_second = any(layer.second is not None for layer in layers)
        seconds, afters = [layer.second for layer in layers], [layer.after for layer in layers]
        eye = torch.eye(width)  # nothing, where a layer has no second map

        def stacked(values: Sequence[Tensor | None], *shape: int, fill: float = 0.0) -> Tensor:
            """Returns a value of each layer in the corner of a larger tensor, ``[L, ...]``."""
            store = torch.full((len(layers), *shape), fill)
            for corner, value in zip(store, values, strict=True):
                if value is not None:
                    corner[tuple(slice(size) for size in value.shape)] = value.cpu()
            return store.to(device)

        later = layers[1:]  # the first layer's maps are done once per batch
        self.before = stacked([None, *(layer.before for layer in later)], width, width)
        self.weight = stacked([None, *(layer.weight for layer in later)], width, width)
        self.own = stacked([None, *(layer.own for layer in later)], width, width)
        self.scale = stacked([layer.scale for layer in layers], width, fill=1.0)
        self.shift = stacked([layer.shift for layer in layers], width)
        self.second = stacked([eye if one is None else one[0] for one in seconds], width, width)
        self.second_shift = stacked([one and one[1] for one in seconds], width)
        self.after_scale = stacked([one and one[0] for one in afters], width, fill=1.0)
        self.after_shift = stacked([one and one[1] for one in afters], width)
        #: Share of the own state, floor and second floor of each layer, ``[L, 3]``.
        self.numbers = torch.tensor(
            [[one.root, one.floor, one.second[2] if one.second else -torch.inf] for one in layers]
        ).to(device)

    def mapped_first(self, message: Tensor) -> Tensor:
        """Returns messages of the first layer after its first map, ``[R, W]``."""
        first = self.chain.layers[0]
        mapped = message * first.scale if first.weight is None else message @ first.weight
        return nn.functional.pad(mapped, (0, self.width - mapped.size(1)))

    def of_atoms(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Returns what atoms add to their neighbours, and to themselves, before the first ReLU.

        Atoms are ``[R, F]``, both results ``[R, W]``; nothing of an edge is in them.
        """
        first = self.chain.layers[0]
        sent = first.messages(x)
        inner = first.inner(x, torch.zeros_like(sent))
        return self.mapped_first(sent), nn.functional.pad(inner, (0, self.width - inner.size(1)))

    def given(self, values: Sequence[Tensor]) -> Tensor:
        """Returns rows of messages, ``L x [R, F]``, as kernels add them up, ``[L, R, W]``."""
        later = [nn.functional.pad(v, (0, self.width - v.size(1))) for v in values[1:]]
        return torch.stack([self.mapped_first(values[0]), *later])
