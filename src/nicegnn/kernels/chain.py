"""Models that are a chain of common layers, brought into one form that kernels can run.

A chain has message-passing layers (GIN, GINE, GCN or SAGE) with linear maps, normalisations in
evaluation mode and ReLUs after each, then a sum or mean over nodes, and a head. Every layer is

.. math:: h' = s \\odot \\phi_2(\\phi_1(a W_1 + h R + b_1) W_2 + b_2) + t, \\qquad
    a_i = \\sum_{e = (j, i)} c_e m_e + r h_i

Symbols: :math:`m_e` -> message of an edge; :math:`c_e` -> its coefficient in the sum;
:math:`\\phi` -> ReLU or nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch_geometric.nn import GCNConv, GINConv, GINEConv, MessagePassing, SAGEConv
from torch_geometric.nn.aggr import MeanAggregation, SumAggregation

from nicegnn.target.message_layers import eager, message_layers

KINDS = {GINConv: "gin", GINEConv: "gine", GCNConv: "gcn", SAGEConv: "sage"}
_NEUTRAL = ("new_zeros", "new_ones", "new_full", "zeros_like", "ones_like", "expand_as")
_HEAD = ("linear", "relu", "batch_norm", "dropout", "softmax", "log_softmax", "sigmoid")


class CannotFuse(Exception):
    """The model or the batch is not one that kernels can run; the text says why."""


@dataclass
class Step:
    """A linear map (``weight``), an affine one by columns (``scale``), or else a ReLU."""

    weight: Tensor | None = None  # [in, out]
    scale: Tensor | None = None  # [F]
    shift: Tensor | None = None  # [out]


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
        out = total * self.scale if self.weight is None else total @ self.weight
        return out + self.shift if self.own is None else out + self.shift + state @ self.own

    def finish(self, inner: Tensor) -> Tensor:
        """Returns the new states, from what the first ReLU gets, ``[V, out]``."""
        out = inner.clamp(min=self.floor)
        if self.second is not None:
            weight, shift, floor = self.second
            out = (out @ weight + shift).clamp(min=floor)
        return out if self.after is None else out * self.after[0] + self.after[1]


@dataclass(frozen=True)
class Chain:
    """A model in the form of this module."""

    kind: str
    layers: list[Layer]
    is_mean: bool  # whether states of nodes are averaged, otherwise added up
    head: list[Callable[[Tensor], Tensor]]

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

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
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
    return Chain(kinds.pop(), layers, trace.is_mean, trace.head)


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
        return Step()
    if name == "linear":
        names = ("input", "weight", "bias")
        known = dict(zip(names, args, strict=False)) | dict(kwargs)
        weight, bias = known["weight"].detach().double().t(), known.get("bias")
        shift = weight.new_zeros(weight.size(1)) if bias is None else bias.detach().double()
        return Step(weight=weight, shift=shift)
    names = ("input", "mean", "var", "weight", "bias", "training", "momentum", "eps")
    known = dict(zip(names, args, strict=False)) | dict(kwargs)
    mean, var = known.get("running_mean", known.get("mean")), known.get("var")
    var = known.get("running_var", var)
    if known.get("training") or mean is None or var is None:
        raise CannotFuse("A normalisation depends on the other nodes.")
    scale = (var.double() + known.get("eps", 1e-5)).rsqrt()
    if known.get("weight") is not None:
        scale = scale * known["weight"].detach().double()
    shift = -mean.double() * scale
    if known.get("bias") is not None:
        shift = shift + known["bias"].detach().double()
    return Step(scale=scale, shift=shift)


def _layer(conv: MessagePassing, steps: list[Step]) -> Layer:
    """Brings one layer into the form of this module."""
    kind, before, own, root = KINDS[type(conv)], None, None, 0.0
    if kind == "gcn":
        before = conv.lin.weight.detach().t().contiguous().float()
        size = before.size(1)
        bias = before.new_zeros(size) if conv.bias is None else conv.bias.detach()
        steps = [Step(scale=torch.ones_like(bias).double(), shift=bias.double()), *steps]
    elif kind == "sage":
        steps = [_step("linear", (None, conv.lin_l.weight, conv.lin_l.bias), {}), *steps]
        own = conv.lin_r.weight.detach().double().t() if conv.root_weight else None
    else:
        root = 1.0 + float(conv.eps)
    if not steps or (steps[0].weight is None and kind != "gcn"):
        raise CannotFuse("The network inside a layer does not begin with a linear map.")
    found: list[Step] = []  # each a map, whose floor is in the list below
    floors: list[float] = []
    after: Step | None = None
    for step in steps:
        if step.weight is None and step.scale is None:  # ReLU
            if after is not None:
                raise CannotFuse("Normalisations between two ReLUs are not known to kernels.")
            floors[-1] = 0.0
        elif step.weight is not None:
            if after is not None:
                assert after.scale is not None and after.shift is not None
                weight, shift = after.scale.unsqueeze(1) * step.weight, after.shift @ step.weight
                step, after = Step(weight=weight, shift=step.shift + shift), None
            found.append(step)
            floors.append(-torch.inf)
        elif not found:
            found.append(step)  # of GCN, which adds up what is mapped already
            floors.append(-torch.inf)
        elif floors[-1] == 0.0:
            scale, shift = step.scale, step.shift
            if after is not None:
                scale, shift = scale * after.scale, shift + scale * after.shift
            after = Step(scale=scale, shift=shift)
        else:
            last = found[-1]
            if len(found) == 1 and own is not None:
                own = own * step.scale
            found[-1] = Step(
                weight=None if last.weight is None else last.weight * step.scale,
                scale=None if last.scale is None else last.scale * step.scale,
                shift=last.shift * step.scale + step.shift,
            )
    if len(found) > 2:
        raise CannotFuse("A layer has more than two linear maps.")
    first, second = found[0], found[1] if len(found) == 2 else None
    return Layer(
        conv,
        before,
        root,
        weight=_float(first.weight),
        scale=torch.ones(0) if first.scale is None else first.scale.float(),
        own=_float(own),
        shift=first.shift.float(),
        floor=floors[0],
        second=None if second is None else (_float(second.weight), second.shift.float(), floors[1]),
        after=None if after is None else (after.scale.float(), after.shift.float()),
    )


def _float(value: Tensor | None) -> Tensor | None:
    return None if value is None else value.float().contiguous()
