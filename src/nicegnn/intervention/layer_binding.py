"""Binds an intervention to layers: the only module that changes them.

PyG calls ``explain_message`` on a layer whose ``explain`` flag is set, between message and
aggregation, and then uses no fused kernels. We bind that method per layer; of a layer that
`register_layer` knows, the method that returns its messages. Every changed attribute is restored on
exit.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from types import MethodType
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn
from torch_geometric.nn import MessagePassing

from nicegnn.errors import InterventionError
from nicegnn.target.message_layers import message_method

if TYPE_CHECKING:
    from nicegnn.intervention.intervene import Intervention

_TOUCHED = (
    *("_explain", "_user_args", "_fused_user_args", "_decomposed_layers"),
    *("explain_message", "propagate"),
)
_GIVEN = ("edge_index_i", "edge_index_j", "adj_t", "dim_size")  # what PyG passes with messages


@contextmanager
def bound(name: str, layer: nn.Module, state: Intervention) -> Iterator[None]:
    """Sends this layer's messages to `state`, and restores the layer afterwards."""
    method = message_method(layer)
    touched = _TOUCHED if method is None else (method,)
    attributes = {key: layer.__dict__[key] for key in touched if key in layer.__dict__}
    signatures: dict[str, Any] = {}
    if isinstance(layer, MessagePassing):
        signatures = layer.inspector._signature_dict
    signature = signatures.get("explain_message")
    kind: Any = type(layer)
    place = _edge_type_place(kind)

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

    handles = []
    try:
        if method is None:
            _bind(name, layer, state)
        else:
            send = getattr(layer, method)
            layer.__dict__[method] = lambda *args, **kwargs: state.apply(
                name, layer, send(*args, **kwargs)
            )
        handles.append(layer.register_forward_pre_hook(enter, with_kwargs=True))
        handles.append(layer.register_forward_hook(leave))
        yield
    finally:
        for handle in handles:
            handle.remove()
        for key in touched:
            layer.__dict__.pop(key, None)
        layer.__dict__.update(attributes)
        signatures.pop("explain_message", None)
        if signature is not None:
            signatures["explain_message"] = signature


def _bind(name: str, layer: Any, state: Intervention) -> None:
    """Makes PyG send this layer's messages to `state`, after any method that is active already."""
    before = _active_method(name, layer) if layer.explain is True else None

    def explain_message(
        self: MessagePassing,
        inputs: Any,
        edge_index_i: Any,
        edge_index_j: Any,
        adj_t: Any,
        dim_size: Any,
    ) -> Tensor:
        if before is not None:
            given = (edge_index_i, edge_index_j, adj_t, dim_size)
            inputs = before(inputs, dict(zip(_GIVEN, given, strict=True)))
        if adj_t is not None or not isinstance(edge_index_j, Tensor):
            raise InterventionError(
                f"`edge_index` must be a tensor of shape [2, E] (got a sparse adjacency in layer "
                f"'{name}', whose messages cannot be matched to gates)."
            )
        ends = edge_index_j, edge_index_i  # senders and receivers
        return state.apply(
            name, self, inputs, *(ends if self.flow == "source_to_target" else ends[::-1])
        )

    explain_message.__annotations__ = {}  # PyG would evaluate them in the layer's own module
    layer.explain_message = MethodType(explain_message, layer)
    layer._decomposed_layers = 1  # PyG cannot explain decomposed layers; the result is the same
    layer._explain = None  # else the setter below would not inspect our signature
    layer.explain = True
    kinds = type(layer).__mro__
    methods = [vars(kind).get("propagate") for kind in kinds[: kinds.index(MessagePassing)]]
    if all(one is None or one.__module__.endswith("_propagate") for one in methods):
        # PyG may choose a parent's compiled version, which never calls explain_message
        own = vars(MessagePassing)
        layer.propagate = MethodType(own.get("_orig_propagate", own["propagate"]), layer)


@cache
def _edge_type_place(kind: type[nn.Module]) -> int | None:
    """Returns the place of ``edge_type`` among the arguments of a layer's ``forward``."""
    names = list(inspect.signature(kind.forward).parameters)[1:]
    return names.index("edge_type") if "edge_type" in names else None


def _active_method(name: str, layer: MessagePassing) -> Callable[[Any, dict[str, Any]], Any]:
    method = layer.explain_message
    wanted = list(inspect.signature(method).parameters)[1:]
    if not set(wanted) <= set(_GIVEN):
        raise InterventionError(
            f"The custom explain_message() of layer '{name}' must take some of {_GIVEN} (got "
            f"{wanted}). Deactivate it with `layer.explain = None`."
        )
    return lambda inputs, known: method(inputs, **{key: known[key] for key in wanted})
