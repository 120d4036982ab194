"""Message interventions: the one place that touches PyG's ``MessagePassing``.

While an intervention is active every message-passing layer hands its messages to a mechanism
together with one gate per edge. Afterwards the model is exactly as it was.

How it reaches the messages: PyG calls ``explain_message`` on a layer whose ``explain`` flag is set,
after the message is computed and before it is aggregated, and skips fused kernels while it does.
We bind that method per layer and put every touched attribute back on exit.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import MethodType
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch_geometric.nn import MessagePassing

from nicegnn.errors import InterventionError
from nicegnn.intervention.edge_matching import EdgeRows, find_edge_index
from nicegnn.target.message_layers import eager, message_layers, unwrap

_TOUCHED = (
    "_explain",
    "_user_args",
    "_fused_user_args",
    "_decomposed_layers",
    "explain_message",
    "propagate",
)


@dataclass(frozen=True)
class Site:
    """Where a message is: layer, forward pass, and the noise coordinates of each edge.

    Attributes:
        layer: running number of the propagation within one forward pass of the model.
        name: name of the module inside the model, for reports and errors.
        stream: number that separates independent noise; grows by one with each forward pass.
        slot: position of each edge inside its own graph, ``[E]``.
        draw: number of the noise draw each edge belongs to, ``[E]``.
        num_slots: one more than the largest slot.
        num_draws: one more than the largest draw.
        first_draw: smallest draw.
    """

    layer: int
    name: str
    stream: int
    slot: Tensor
    draw: Tensor
    num_slots: int
    num_draws: int
    first_draw: int = 0


class Mechanism(Protocol):
    """What happens to a message. Implement this one call to add a mechanism.

    It receives the messages of one layer flattened to ``[E, F]`` (all heads of an edge together),
    one gate in [0, 1] per edge ``[E]``, and their :class:`Site`; it returns messages of the same
    shape. A gate of 1 must leave a message unchanged.
    """

    def __call__(self, message: Tensor, gate: Tensor, site: Site) -> Tensor: ...


@dataclass
class InterventionReport:
    """What an intervention saw: filled while the model runs.

    Attributes:
        layers: names of the layers whose messages passed through the mechanism, in call order.
        clean_loops: rows per layer name that the layer added itself (self-loops); they stay clean.
        excluded: layers left alone because the user set ``layer.explain = False`` (PyG's opt-out).
        forwards: completed forward passes of the model.
    """

    layers: list[str] = field(default_factory=list)
    clean_loops: dict[str, int] = field(default_factory=dict)
    excluded: list[str] = field(default_factory=list)
    forwards: int = 0


class _Intervention:
    """State of one active intervention, shared by the methods bound to the layers."""

    def __init__(
        self,
        mechanism: Mechanism,
        gate: Tensor,
        edge_index: Tensor | None,
        slot: Tensor | None,
        draw: Tensor | None,
        stream: int,
        report: InterventionReport,
    ) -> None:
        device = gate.device
        self.mechanism = mechanism
        self.gate = gate
        self.edge_index = edge_index
        self.matched = EdgeRows(gate.numel(), edge_index)
        self.slot = torch.arange(gate.numel(), device=device) if slot is None else slot
        self.draw = torch.zeros_like(self.slot) if draw is None else draw
        self.num_slots = int(self.slot.max()) + 1 if gate.numel() else 0
        self.first_draw = int(self.draw.min()) if gate.numel() else 0
        self.num_draws = int(self.draw.max()) + 1 if gate.numel() else 0
        self.report = report
        self.layer = 0
        self.stream = stream
        self.fired: dict[str, int] = {}
        self.entered: dict[str, list[int]] = {}  # calls of a layer that have not returned yet

    def begin(self, edge_index: Tensor | None) -> None:
        """Starts a forward pass of the model."""
        self.layer = 0
        self.fired.clear()
        if self.report.forwards == 0:
            self.report.layers.clear()  # of a first pass that failed
        self.entered.clear()
        given = edge_index if self.edge_index is None else self.edge_index
        self.matched = EdgeRows(self.gate.numel(), given)

    def end(self) -> None:
        """Ends a forward pass of the model: something must have been reached."""
        if not self.fired:
            raise InterventionError(
                "No message passed through the mechanism in this forward pass of the model: none "
                "of its MessagePassing layers ran. Call the model's layers from its forward(), "
                "and pass the graph as `edge_index`."
            )
        self.stream += 1
        self.report.forwards += 1

    def apply(self, name: str, node_dim: int, message: Any, context: dict[str, Any]) -> Tensor:
        """Sends the messages of one propagation through the mechanism."""
        if not isinstance(message, Tensor) or not message.is_floating_point():
            raise InterventionError(
                f"Layer '{name}' must return one floating point tensor from message() "
                f"(got {_describe(message)}); exclude the layer with `layer.explain = False`."
            )
        found = self.matched.match(name, *_ends(name, context), context["adds_loops"])
        by_edge = message.movedim(node_dim, 0)
        flat = by_edge.flatten(1) if by_edge.dim() > 1 else by_edge.unsqueeze(1)  # [R, F]
        if found.rows is None:
            out = self._call(flat, self.gate, self._site(name, self.slot, self.draw))
        else:
            edges = found.edges
            assert edges is not None
            site = self._site(name, self.slot[edges], self.draw[edges])
            changed = self._call(flat[found.rows], self.gate[edges], site)
            out = flat.index_copy(0, found.rows, changed)
            self.report.clean_loops[name] = flat.size(0) - found.rows.numel()
        self.layer += 1
        if self.report.forwards == 0:
            self.report.layers.append(name)
        self.fired[name] = self.fired.get(name, 0) + 1
        return out.view(by_edge.shape).movedim(0, node_dim)

    def _site(self, name: str, slot: Tensor, draw: Tensor) -> Site:
        return Site(
            self.layer,
            name,
            self.stream,
            slot,
            draw,
            self.num_slots,
            self.num_draws,
            self.first_draw,
        )

    def _call(self, message: Tensor, gate: Tensor, site: Site) -> Tensor:
        out = self.mechanism(message, gate.to(message.dtype), site)
        if out.shape != message.shape:
            raise InterventionError(
                f"Mechanism {type(self.mechanism).__name__} returned shape {tuple(out.shape)} for "
                f"messages of shape {tuple(message.shape)} in layer '{site.name}'; a mechanism "
                "must keep the shape."
            )
        return out


@contextmanager
def intervene(
    model: nn.Module,
    mechanism: Mechanism,
    gate: Tensor,
    *,
    edge_index: Tensor | None = None,
    slot: Tensor | None = None,
    draw: Tensor | None = None,
    stream: int = 0,
) -> Iterator[InterventionReport]:
    r"""Sends every message of `model` through `mechanism` while the context is active.

    .. math:: \tilde m_e^{(l)} = \Psi_{\rho_e}^{(l)}(m_e^{(l)})  \qquad \text{(Eq. 3)}

    Symbols: :math:`\rho_e` -> ``gate``, ``[E]``; :math:`\Psi` -> ``mechanism``;
    :math:`m_e^{(l)}` -> the layer's messages, ``[E, F]``.

    Self-loops that a layer adds itself carry no gate and stay clean; the yielded report counts
    them. Nested interventions compose, the outer one first. Each forward pass is a new draw.
    Models wrapped by ``torch.compile`` run eagerly inside the context.

    Args:
        edge_index: the edges the gates belong to; by default the ``edge_index`` that the model is
            called with.
        slot: noise coordinate of each edge, by default its position in `gate`.
        draw: noise draw of each edge, by default 0.
        stream: number of the first forward pass; equal streams draw equal noise.

    Raises:
        InterventionError: if messages cannot be reached; never skips them silently.

    Example:
        >>> import torch
        >>> from torch_geometric.nn import GCNConv
        >>> conv = GCNConv(4, 2)
        >>> x, edge_index = torch.ones(3, 4), torch.tensor([[0, 1], [1, 2]])
        >>> with intervene(conv, lambda m, gate, site: m * gate[:, None], torch.ones(2)) as report:
        ...     out = conv(x, edge_index)
        >>> report.clean_loops  # GCN adds one self-loop per node
        {'': 3}
    """
    model = unwrap(model)
    layers = message_layers(model)
    _check_gate(gate, edge_index, slot, draw)
    report = InterventionReport(excluded=[n for n, m in layers if m.explain is False])
    active = [(name, layer) for name, layer in layers if layer.explain is not False]
    if not active:
        raise InterventionError(
            "Every MessagePassing layer of the model has `explain = False`; set it to None on the "
            "layers that shall be explained."
        )
    state = _Intervention(mechanism, gate, edge_index, slot, draw, stream, report)
    saved: list[tuple[MessagePassing, dict[str, Any], Any]] = []
    handles: list[torch.utils.hooks.RemovableHandle] = []
    try:
        for name, layer in active:
            saved.append(_snapshot(layer))
            _bind(name, layer, state)
            handles.append(layer.register_forward_pre_hook(_remember_count(name, state)))
            handles.append(layer.register_forward_hook(_check_fired(name, state)))
        handles.append(
            model.register_forward_pre_hook(
                lambda module, args, kwargs: state.begin(
                    find_edge_index(module, args, kwargs, gate.numel())
                ),
                with_kwargs=True,
                prepend=True,
            )
        )
        handles.append(model.register_forward_hook(lambda *_: state.end()))
        with eager():
            yield report
        if not report.layers:
            raise InterventionError(
                "The model did not run, or ran out of reach, while the intervention was active: no "
                "message was seen. Call it inside the `with` block, in eager mode."
            )
    finally:
        for handle in reversed(handles):
            handle.remove()
        for layer, attributes, signature in reversed(saved):
            _restore(layer, attributes, signature)


def _bind(name: str, layer: MessagePassing, state: _Intervention) -> None:
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


def _snapshot(layer: MessagePassing) -> tuple[MessagePassing, dict[str, Any], Any]:
    attributes = {key: layer.__dict__[key] for key in _TOUCHED if key in layer.__dict__}
    return layer, attributes, layer.inspector._signature_dict.get("explain_message")


def _restore(layer: MessagePassing, attributes: dict[str, Any], signature: Any) -> None:
    for key in _TOUCHED:
        layer.__dict__.pop(key, None)
    layer.__dict__.update(attributes)
    layer.inspector.remove_signature("explain_message")
    if signature is not None:
        layer.inspector._signature_dict["explain_message"] = signature


def _remember_count(name: str, state: _Intervention) -> Callable[..., None]:
    def before_forward(*_: Any) -> None:
        state.entered.setdefault(name, []).append(state.fired.get(name, 0))

    return before_forward


def _check_fired(name: str, state: _Intervention) -> Callable[..., None]:
    def after_forward(layer: nn.Module, *_: Any) -> None:
        before = state.entered[name].pop()
        if state.fired.get(name, 0) == before:
            raise InterventionError(
                f"Layer '{name}' ({type(layer).__name__}) ran without showing its messages: it "
                "fuses message and aggregation, or overrides propagate(). Rewrite it with "
                "message() and aggregate(), or set `layer.explain = False` to leave it clean."
            )

    return after_forward


def _ends(name: str, context: dict[str, Any]) -> tuple[Tensor, Tensor]:
    """Returns sender and receiver of each message."""
    i, j = context["edge_index_i"], context["edge_index_j"]
    if context["adj_t"] is not None or not isinstance(j, Tensor):
        raise InterventionError(
            f"Layer '{name}' received a sparse adjacency: its messages are fused or reordered and "
            "cannot be matched to the gates. Pass a plain `edge_index` of shape [2, E]."
        )
    return (j, i) if context["flow"] == "source_to_target" else (i, j)


def _check_gate(gate: Tensor, *coordinates: Tensor | None) -> None:
    if not isinstance(gate, Tensor) or gate.dim() != 1 or not gate.is_floating_point():
        raise InterventionError(
            f"`gate` must be a floating point tensor of shape [E] (got {_describe(gate)})."
        )
    if gate.numel() and not bool(((gate.detach() >= 0) & (gate.detach() <= 1)).all()):
        raise InterventionError(
            f"`gate` must lie in [0, 1] and be finite (got values from {float(gate.min()):.4g} to "
            f"{float(gate.max()):.4g})."
        )
    for name, value in zip(("edge_index", "slot", "draw"), coordinates, strict=True):
        if value is not None and value.size(-1) != gate.numel():
            raise InterventionError(
                f"`{name}` must match the {gate.numel()} gates (got shape {tuple(value.shape)})."
            )


def _describe(value: object) -> str:
    if isinstance(value, Tensor):
        return f"{value.dtype} of shape {tuple(value.shape)}"
    return type(value).__name__
