"""Binds an intervention to layers: the only module that touches them.

PyG calls message hooks between message and aggregation; of a layer that `register_layer` knows, the
method that returns its messages is wrapped. Hooks and changed attributes are undone on exit.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from nicegnn.errors import InterventionError
from nicegnn.target.message_layers import message_method

if TYPE_CHECKING:
    from nicegnn.intervention.intervene import Intervention


@contextmanager
def bound(name: str, layer: Any, state: Intervention) -> Iterator[None]:
    """Sends this layer's messages to `state`, and restores the layer afterwards."""
    kind: Any = type(layer)
    method, place, ends = message_method(layer), _edge_type_place(kind), list[Tensor]()
    touched = ("_decomposed_layers", "fuse") if method is None else (method,)
    kept = {key: layer.__dict__[key] for key in touched if key in layer.__dict__}

    def enter(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        state.entered.setdefault(name, []).append(state.fired.get(name, 0))
        if place is not None:
            given = args[place] if len(args) > place else kwargs.get("edge_type")
            state.relations[name] = given if isinstance(given, Tensor) else None

    def leave(*_: Any) -> None:
        if state.fired.get(name, 0) == state.entered[name].pop():
            raise InterventionError(
                f"Layer '{name}' ({type(layer).__name__}) ran without showing its messages: it "
                "fuses them with aggregation, or overrides propagate(). Rewrite it with message() "
                "and aggregate(), or exclude it with `layer.explain = False`."
            )

    def begin(_: nn.Module, inputs: tuple[Any, ...]) -> None:
        edge_index = inputs[0]
        if not isinstance(edge_index, Tensor) or edge_index.layout != torch.strided:
            raise InterventionError(
                f"`edge_index` must be a tensor of shape [2, E] (got a sparse adjacency in layer "
                f"'{name}', whose messages cannot be matched to gates)."
            )
        ends[:] = edge_index[0], edge_index[1]

    hooks = [
        layer.register_forward_pre_hook(enter, with_kwargs=True),
        layer.register_forward_hook(leave),
    ]
    try:
        if method is None:
            # PyG sends messages in parts, or fuses them with their sum; the result is the same
            layer._decomposed_layers, layer.fuse = 1, False
            hooks.append(layer.register_propagate_forward_pre_hook(begin))
            hooks.append(
                layer.register_message_forward_hook(
                    lambda _, inputs, message: state.apply(name, layer, message, *ends)
                )
            )
        else:
            send = getattr(layer, method)
            layer.__dict__[method] = lambda *args, **kwargs: state.apply(
                name, layer, send(*args, **kwargs)
            )
        yield
    finally:
        for hook in hooks:
            hook.remove()
        for key in touched:
            layer.__dict__.pop(key, None)
        layer.__dict__.update(kept)


@cache
def _edge_type_place(kind: type[nn.Module]) -> int | None:
    """Returns the place of ``edge_type`` among the arguments of a layer's ``forward``."""
    names = list(inspect.signature(kind.forward).parameters)[1:]
    return names.index("edge_type") if "edge_type" in names else None
