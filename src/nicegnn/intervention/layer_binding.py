"""Binding an intervention to PyG's layers: the one place that touches ``MessagePassing``.

PyG calls ``explain_message`` on a layer whose ``explain`` flag is set, after the message is
computed and before it is aggregated, and skips fused kernels while it does. We bind that method per
layer and put every touched attribute back on exit.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import MethodType
from typing import Any, Protocol

from torch import Tensor, nn
from torch_geometric.nn import MessagePassing

from nicegnn.errors import InterventionError

_TOUCHED = (
    "_explain",
    "_user_args",
    "_fused_user_args",
    "_decomposed_layers",
    "explain_message",
    "propagate",
)


class Intervention(Protocol):
    """What a bound layer needs of an active intervention."""

    fired: dict[str, int]
    entered: dict[str, list[int]]

    def apply(self, name: str, node_dim: int, message: Any, context: dict[str, Any]) -> Tensor: ...


def bind(name: str, layer: MessagePassing, state: Intervention) -> None:
    """Makes PyG hand this layer's messages to `state`, behind whatever was active before."""
    before = _active_method(name, layer) if layer.explain is True else None

    def explain_message(
        self: MessagePassing,
        inputs: Any,
        edge_index_i: Any,
        edge_index_j: Any,
        adj_t: Any,
        dim_size: Any,
    ) -> Tensor:
        context = {
            "edge_index_i": edge_index_i,
            "edge_index_j": edge_index_j,
            "adj_t": adj_t,
            "dim_size": dim_size,
        }
        if before is not None:
            inputs = before(inputs, context)
        context |= {"flow": self.flow, "adds_loops": getattr(self, "add_self_loops", False) is True}
        return state.apply(name, self.node_dim, inputs, context)

    explain_message.__annotations__ = {}  # PyG would evaluate them in the layer's own module
    layer.explain_message = MethodType(explain_message, layer)
    layer._decomposed_layers = 1  # PyG cannot explain decomposed layers; the result is the same
    layer._explain = None  # so that the setter below inspects our signature
    layer.explain = True
    if not _overrides_propagate(type(layer)):
        # PyG's own choice may be a parent's compiled version, which never shows its messages
        layer.propagate = MethodType(_plain_propagate(), layer)


def _plain_propagate() -> Callable[..., Any]:
    """Returns PyG's uncompiled propagate(), the one that calls explain_message()."""
    own = vars(MessagePassing)
    return own.get("_orig_propagate", own["propagate"])


def _overrides_propagate(kind: type[MessagePassing]) -> bool:
    """Whether a layer class, or a parent, brings a propagate() of its own."""
    for parent in kind.__mro__[: kind.__mro__.index(MessagePassing)]:
        own = vars(parent).get("propagate")
        if own is not None and not own.__module__.endswith("_propagate"):  # PyG's compiled ones do
            return True
    return False


def _active_method(name: str, layer: MessagePassing) -> Callable[[Any, dict[str, Any]], Any]:
    method = layer.explain_message
    wanted = list(inspect.signature(method).parameters)[1:]
    known = {"edge_index_i", "edge_index_j", "adj_t", "dim_size"}
    if not set(wanted) <= known:
        raise InterventionError(
            f"Layer '{name}' has a custom explain_message() with arguments {wanted}, which cannot "
            "be combined with an intervention; deactivate it first (`layer.explain = None`)."
        )
    return lambda inputs, context: method(inputs, **{key: context[key] for key in wanted})


def snapshot(layer: MessagePassing) -> tuple[MessagePassing, dict[str, Any], Any]:
    attributes = {key: layer.__dict__[key] for key in _TOUCHED if key in layer.__dict__}
    return layer, attributes, layer.inspector._signature_dict.get("explain_message")


def restore(layer: MessagePassing, attributes: dict[str, Any], signature: Any) -> None:
    for key in _TOUCHED:
        layer.__dict__.pop(key, None)
    layer.__dict__.update(attributes)
    layer.inspector.remove_signature("explain_message")
    if signature is not None:
        layer.inspector._signature_dict["explain_message"] = signature


def remember_count(name: str, state: Intervention) -> Callable[..., None]:
    def before_forward(*_: Any) -> None:
        state.entered.setdefault(name, []).append(state.fired.get(name, 0))

    return before_forward


def check_fired(name: str, state: Intervention) -> Callable[..., None]:
    def after_forward(layer: nn.Module, *_: Any) -> None:
        before = state.entered[name].pop()
        if state.fired.get(name, 0) == before:
            raise InterventionError(
                f"Layer '{name}' ({type(layer).__name__}) ran without showing its messages: it "
                "fuses message and aggregation, or overrides propagate(). Rewrite it with "
                "message() and aggregate(), or set `layer.explain = False` to leave it clean."
            )

    return after_forward


def ends_of(name: str, context: dict[str, Any]) -> tuple[Tensor, Tensor]:
    """Returns sender and receiver of each message."""
    i, j = context["edge_index_i"], context["edge_index_j"]
    if context["adj_t"] is not None or not isinstance(j, Tensor):
        raise InterventionError(
            f"Layer '{name}' received a sparse adjacency: its messages are fused or reordered and "
            "cannot be matched to the gates. Pass a plain `edge_index` of shape [2, E]."
        )
    return (j, i) if context["flow"] == "source_to_target" else (i, j)
