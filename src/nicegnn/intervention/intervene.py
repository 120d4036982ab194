"""Interventions: every message of a model passes through a mechanism with a gate per edge.

PyG calls message hooks between message and aggregation; of a layer that `register_layer` knows, the
method that returns its messages is wrapped. Hooks and changed attributes are undone on exit.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor, nn

from nicegnn.errors import InterventionError
from nicegnn.intervention.rows import EdgeRows, find_kinds
from nicegnn.target.message_layers import eager, message_layers, message_method, unwrap

if TYPE_CHECKING:
    from nicegnn.intervention.exchange import Prototypes


@dataclass(frozen=True)
class Site:
    """Address of the messages of one propagation: layer, forward pass, noise of each edge."""

    layer: int  # running number of the propagation within one forward pass
    name: str  # name of the module inside the model, for reports and errors
    stream: int  # number of the forward pass; other streams have other noise
    slot: Tensor  # position of each edge inside its own graph, [E]
    draw: Tensor  # number of the noise draw each edge belongs to, [E]
    graph: Tensor | None = None  # graph of each edge, if it was told, [E]
    turn: int = 0  # propagations before this one in the same call of the layer
    kind: Tensor | None = None  # kind of each edge, if there are several, [E]


class Mechanism(Protocol):
    """Changes messages. Implement this one call to add a mechanism.

    It receives the messages of one layer flattened to ``[E, F]`` (all heads of an edge together),
    one gate in [0, 1] per edge ``[E]``, and their :class:`Site`; it returns messages of the same
    shape. A gate of 1 must leave a message unchanged. With the attribute ``anchor = "clean"`` it
    receives the messages of the clean pass instead of those of damaged states.
    """

    def __call__(self, message: Tensor, gate: Tensor, site: Site) -> Tensor: ...


@dataclass(frozen=True)
class CleanMessages:
    r"""Messages :math:`m_e^{(l)}` of one clean forward pass, propagation by propagation."""

    layers: Sequence[Tensor]  # messages of each propagation in call order, [E, F] each
    names: Sequence[str]  # name of the layer behind each propagation
    turns: Sequence[int] = ()  # propagations before each one in the same call of its layer
    counts: Sequence[int] = ()  # edges that sent a message in each propagation


@dataclass
class InterventionReport:
    """Facts about an intervention, filled in while the model runs."""

    layers: list[str] = field(default_factory=list)  # layers whose messages passed, in call order
    clean_loops: dict[str, int] = field(default_factory=dict)  # self-loops that a layer added
    excluded: list[str] = field(default_factory=list)  # layers with PyG's ``explain = False``
    forwards: int = 0  # completed forward passes of the model


@dataclass(eq=False)
class Intervention:
    """State of one active intervention, shared by the hooks of all layers."""

    mechanism: Mechanism
    gate: Tensor  # [E]
    edge_index: Tensor | None  # None: those of the first layer
    origin: Tensor  # edge of the clean messages behind each gate, [E]
    site: dict[str, Tensor]  # slot, draw and, where they were told, graph and kind, [E] each
    stream: int
    report: InterventionReport
    clean: CleanMessages | None
    rows: EdgeRows
    layer: int = 0
    fired: dict[str, int] = field(default_factory=dict)  # propagations of each layer in this pass
    entered: dict[str, list[int]] = field(default_factory=dict)  # when each unfinished call began
    relations: dict[str, Tensor | None] = field(default_factory=dict)  # edge types in this call

    def bind(self, name: str, layer: Any, undo: ExitStack) -> None:
        """Lets a layer's messages pass through `apply`, until `undo` closes."""
        method, ends = message_method(layer), list[Tensor]()
        touched = ("_decomposed_layers", "fuse") if method is None else (method,)
        kept = {key: layer.__dict__[key] for key in touched if key in layer.__dict__}
        names = list(inspect.signature(type(layer).forward).parameters)[1:]
        place = names.index("edge_type") if "edge_type" in names else None

        def restore() -> None:
            for key in touched:
                layer.__dict__.pop(key, None)
            layer.__dict__.update(kept)

        def enter(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            self.entered.setdefault(name, []).append(self.fired.get(name, 0))
            if place is not None:
                given = args[place] if len(args) > place else kwargs.get("edge_type")
                self.relations[name] = given if isinstance(given, Tensor) else None

        def leave(*_: Any) -> None:
            if self.fired.get(name, 0) == self.entered[name].pop():
                raise InterventionError(
                    f"Layer '{name}' ({type(layer).__name__}) ran without showing its messages: it "
                    "fuses them with aggregation, or overrides propagate(). Rewrite it with "
                    "message() and aggregate(), or exclude it with `layer.explain = False`."
                )

        def begin(_: nn.Module, inputs: tuple[Any, ...]) -> None:
            edge_index = inputs[0]
            if not isinstance(edge_index, Tensor) or edge_index.layout != torch.strided:
                raise InterventionError(
                    f"`edge_index` must be a tensor of shape [2, E] (got a sparse adjacency in "
                    f"layer '{name}', whose messages cannot be matched to gates)."
                )
            ends[:] = edge_index[0], edge_index[1]

        def pass_on(_: nn.Module, inputs: Any, message: Any) -> Tensor:
            return self.apply(name, layer, message, ends)

        undo.callback(restore)
        undo.callback(layer.register_forward_pre_hook(enter, with_kwargs=True).remove)
        undo.callback(layer.register_forward_hook(leave).remove)
        if method is None:
            # PyG sends messages in parts, or fuses them with their sum; the result is the same
            layer._decomposed_layers, layer.fuse = 1, False
            undo.callback(layer.register_propagate_forward_pre_hook(begin).remove)
            undo.callback(layer.register_message_forward_hook(pass_on).remove)
        else:
            send = getattr(layer, method)
            layer.__dict__[method] = lambda *a, **kw: self.apply(name, layer, send(*a, **kw))

    def begin(self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Starts a forward pass."""
        self.rows = EdgeRows(self.gate.numel(), self.edge_index, find_kinds(args, kwargs))
        self.layer = 0
        self.fired.clear()
        self.entered.clear()
        if self.report.forwards == 0:
            self.report.layers.clear()  # of a first pass that failed

    def end(self) -> None:
        """Ends a forward pass of the model, in which a message must have passed."""
        if not self.fired:
            why = "No MessagePassing layer ran in this forward pass of the model."
            raise InterventionError(f"{why} Call the layers, and pass the graph as `edge_index`.")
        self.stream += 1
        self.report.forwards += 1

    def apply(self, name: str, layer: Any, message: Any, ends: Sequence[Tensor] = ()) -> Tensor:
        """Sends the messages of one propagation through the mechanism, or their clean messages.

        Without ``ends``, senders and receivers, there is one message per edge, in their order.
        """
        if not isinstance(message, Tensor) or not message.is_floating_point():
            raise InterventionError(
                f"Layer '{name}' must return one floating point tensor from message() (got "
                f"{_describe(message)}). Convert integer features with `x.float()`, or exclude the "
                "layer with `layer.explain = False`."
            )
        turn, match = self.fired.get(name, 0) - self.entered.get(name, [0])[-1], None
        if ends:
            match = self.rows.match(name, layer, ends, self.relations.get(name), turn)
        elif message.dim() == 0 or message.size(0) != self.gate.numel():
            why = f"Layer '{name}' must return one message per edge, {self.gate.numel()} rows"
            raise InterventionError(f"{why} (got {_describe(message)}). See `register_layer`.")
        node_dim: Any = getattr(layer, "node_dim", 0)
        by_edge = message.movedim(node_dim, 0)
        flat = by_edge.flatten(1) if by_edge.dim() > 1 else by_edge.unsqueeze(1)  # [R, F]
        rows, edges = (slice(None), slice(None)) if match is None else match
        sent, gate = flat[rows], self.gate[edges]
        if is_anchored(self.mechanism):
            assert self.clean is not None  # see `intervene`
            check_recorded(self.clean, self.layer, name, sent, "Use anchor='propagated'.")
            clean = self.clean.layers[self.layer][self.origin[edges]]
            # if no node keeps a state of its own, what edges say is all there is: then only damaged
            # edges are anchored, or no damage would ever spread
            keeps = getattr(layer, "keeps_states", True) is True
            sent = clean if keeps else torch.where((gate < 1).unsqueeze(1), clean, sent)
        told = {key: value[edges] for key, value in self.site.items()}
        site = Site(self.layer, name, self.stream, turn=turn, **told)
        out = self.mechanism(sent, gate.to(sent.dtype), site)
        if out.shape != sent.shape:
            raise InterventionError(
                f"Mechanism {type(self.mechanism).__name__} must keep the shape of messages, "
                f"{tuple(sent.shape)} in layer '{name}' (got {tuple(out.shape)})."
            )
        if match is not None:
            out = flat.index_copy(0, match[0], out)
            self.report.clean_loops[name] = flat.size(0) - match[0].numel()
        self.layer += 1
        if self.report.forwards == 0:
            self.report.layers.append(name)
        self.fired[name] = self.fired.get(name, 0) + 1
        return out.view(by_edge.shape).movedim(0, node_dim)


def check_recorded(
    known: CleanMessages | Prototypes, layer: int, name: str, like: Tensor, advice: str
) -> None:
    """Raises `InterventionError` unless a propagation's messages are those that were recorded."""
    is_known = layer < len(known.layers) and known.names[layer] == name
    if not is_known or known.layers[layer].size(1) != like.size(1):
        raise InterventionError(
            f"Layer '{name}' must send the same messages in the same order in every pass (got "
            f"number {layer} with {like.size(1)} values, but {list(known.names)} when messages "
            f"were recorded). {advice}"
        )


def is_anchored(mechanism: Mechanism) -> bool:
    """Whether a mechanism damages the messages of the clean pass."""
    return getattr(mechanism, "anchor", "propagated") == "clean"


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
    clean: CleanMessages | None = None,
    origin: Tensor | None = None,
    graph: Tensor | None = None,
    kind: Tensor | None = None,
) -> Iterator[InterventionReport]:
    r"""Sends every message of `model` through `mechanism` while the context is active.

    .. math:: \tilde m_e^{(l)} = \Psi_{\rho_e}^{(l)}(m_e^{(l)})  \qquad \text{(Eq. 3)}

    Symbols: :math:`\rho_e` -> ``gate``, ``[E]``; :math:`\Psi` -> ``mechanism``;
    :math:`m_e^{(l)}` -> the layer's messages, ``[E, F]``.

    The ``anchor`` of the mechanism chooses :math:`m_e^{(l)}`: the message that damaged states send
    (``"propagated"``), or that of the clean pass (``"clean"``), see `record_messages`. Self-loops
    that a layer adds itself have no gate and stay clean; the yielded report counts them. Nested
    interventions compose, the outer one first. Each forward pass draws new noise. A message that
    cannot be reached raises `InterventionError`. Afterwards the model is exactly as it was.

    Args:
        edge_index: edges of the gates, by default those of the first layer.
        slot: noise coordinate of each edge, by default its position in `gate`.
        draw: noise draw of each edge, by default 0.
        stream: number of the first forward pass; equal streams draw equal noise.
        origin: edge of `clean` behind each gate, by default its position in `gate`.
        graph, kind: of each edge, for mechanisms that treat them differently.

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
    told = {"slot": slot, "draw": draw, "graph": graph, "kind": kind}
    _check_gate(gate, edge_index=edge_index, origin=origin, **told)
    if is_anchored(mechanism) and clean is None:
        raise InterventionError(
            f"`clean` must hold the messages of a clean pass for {mechanism!r} (got None). Pass "
            "record_messages(model, call, edge_index), or use anchor='propagated'."
        )
    excluded = [name for name, layer in layers if getattr(layer, "explain", None) is False]
    report = InterventionReport(excluded=excluded)
    active = [(name, layer) for name, layer in layers if name not in excluded]
    if not active:
        why = "At least one MessagePassing layer must not have `explain = False`."
        raise InterventionError(f"{why} Set it to None on the layers to explain.")
    position = torch.arange(gate.numel(), device=gate.device)
    origin = position if origin is None else origin
    site = {"slot": position, "draw": torch.zeros_like(position)}
    site |= {key: value for key, value in told.items() if value is not None}
    rows = EdgeRows(gate.numel(), edge_index)
    state = Intervention(mechanism, gate, edge_index, origin, site, stream, report, clean, rows)
    with ExitStack() as undo:
        for name, layer in active:
            state.bind(name, layer, undo)
        begin = model.register_forward_pre_hook(state.begin, with_kwargs=True, prepend=True)
        undo.callback(begin.remove)
        undo.callback(model.register_forward_hook(lambda *_: state.end()).remove)
        with eager():
            yield report
        if not report.layers:
            why = "The model did not run inside the `with` block, or not in eager mode."
            raise InterventionError(f"{why} Call it there, in eager mode.")


@torch.no_grad()
def record_messages(model: nn.Module, call: Callable[[], Any], edge_index: Tensor) -> CleanMessages:
    """Returns the messages of every propagation in one clean forward pass, which `call` runs."""
    gates = torch.ones(edge_index.size(1), device=edge_index.device)
    seen: list[tuple[Tensor, str, int, int]] = []

    def record(message: Tensor, gate: Tensor, site: Site) -> Tensor:
        whole = message.new_zeros(len(gates), message.size(1))
        whole = whole.index_copy(0, site.slot, message)
        seen.append((whole, site.name, site.turn, message.size(0)))
        return message

    with intervene(model, record, gates, edge_index=edge_index):
        call()
    return CleanMessages(*map(list, zip(*seen, strict=True)))


def _check_gate(gate: Tensor, **coordinates: Tensor | None) -> None:
    if not isinstance(gate, Tensor) or gate.dim() != 1 or not gate.is_floating_point():
        raise InterventionError(
            f"`gate` must be a floating point tensor of shape [E] (got {_describe(gate)})."
        )
    if not bool(((gate >= 0) & (gate <= 1)).all()):
        low, high = gate.detach().aminmax()
        raise InterventionError(
            f"`gate` must lie in [0, 1] and be finite (got {float(low):.4g} to {float(high):.4g})."
        )
    for name, value in coordinates.items():
        if value is not None and value.size(-1) != gate.numel():
            raise InterventionError(
                f"`{name}` must match the {gate.numel()} gates (got {_describe(value)})."
            )


def _describe(value: object) -> str:
    if isinstance(value, Tensor):
        return f"{value.dtype} of shape {tuple(value.shape)}"
    return type(value).__name__
