"""Binds an intervention to layers: the only module that changes them.

PyG calls ``explain_message`` on a layer whose ``explain`` flag is set, between message and
aggregation, and then uses no fused kernels. We bind that method per layer; of a layer that
`register_layer` knows, the method that returns its messages. Every changed attribute is restored on
exit. Messages and gates are matched edge by edge.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from types import MethodType
from typing import TYPE_CHECKING, Any

import torch
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


class EdgeRows:
    """Matches the message rows of each layer with the edges that have a gate.

    A layer may replace the graph's self-loops by its own, one per node; those rows have no gate. A
    layer that takes ``edge_type`` may send the messages of one relation at a time, or sorted by
    relation. Any other difference from the graph's edges is an error. Unknown edges are those of
    the first layer.
    """

    def __init__(self, num_edges: int, edge_index: Tensor | None) -> None:
        self.num_edges = num_edges
        self.edge_index = edge_index
        self._matches: dict[tuple[int, int, int, bool], tuple[Any, ...]] = {}

    def match(
        self,
        name: str,
        sender: Tensor,
        receiver: Tensor,
        adds_loops: bool,
        relation: Tensor | None = None,
        turn: int = 0,
        is_cached: bool = False,
    ) -> tuple[Tensor, Tensor] | None:
        """Returns the rows with a gate and the edge of each, ``[K]``; None if row k is edge k.

        Self-loops of a layer that ``adds_loops`` are its own. ``relation`` is the type of each
        edge, ``[E]``; ``turn`` counts the propagations of one call of the layer.
        """
        key = (sender.data_ptr(), receiver.data_ptr(), sender.numel(), adds_loops)
        if key not in self._matches:
            matched = self._of_relation(sender, receiver, relation, turn)
            if matched is None:
                matched = self._search(name, sender, receiver, adds_loops, is_cached)
            if self.edge_index is None:
                rows = slice(None) if matched is None else matched[0]
                self.edge_index = torch.stack([sender[rows], receiver[rows]])
            # keep the tensors: their addresses must not be used again
            self._matches[key] = (matched, sender, receiver)
        return self._matches[key][0]

    def _of_relation(
        self, sender: Tensor, receiver: Tensor, relation: Tensor | None, turn: int
    ) -> tuple[Tensor, Tensor] | None:
        """Matches the edges of one relation, or all edges sorted by relation."""
        reference = self.edge_index
        if relation is None or reference is None or relation.shape != reference.shape[1:]:
            return None
        if sender.numel() == self.num_edges:
            if _same(reference, sender, receiver):
                return None
            tried = [relation.argsort(stable=True)]
        else:  # where several relations have the same edges, they come in order
            kinds = sorted(set(relation.tolist()), key=lambda kind: (kind != turn, kind))
            tried = [(relation == kind).nonzero().view(-1) for kind in kinds]
            tried.append(tried[0][:0])  # a relation without edges
        for edges in tried:
            if edges.numel() == sender.numel() and _same(reference[:, edges], sender, receiver):
                return torch.arange(edges.numel(), device=edges.device), edges
        return None

    def _search(
        self, name: str, sender: Tensor, receiver: Tensor, adds_loops: bool, is_cached: bool
    ) -> tuple[Tensor, Tensor] | None:
        """Matches all edges in their order, with self-loops of the layer's own left out."""
        reference = self.edge_index
        own_loops = adds_loops and bool((sender == receiver).any())
        is_all = sender.numel() == self.num_edges and not own_loops
        if is_all and (reference is None or _same(reference, sender, receiver)):
            return None
        if is_all and reference is not None and _same(reference, receiver, sender):
            return None  # a layer that walks the edges backwards
        rows = (sender != receiver).nonzero().view(-1)  # the layer's rows that are no self-loops
        edges = torch.arange(self.num_edges, device=rows.device)
        if reference is not None:
            edges = (reference[0] != reference[1]).nonzero().view(-1)
        if rows.numel() == edges.numel() and (
            reference is None or _same(reference[:, edges], sender[rows], receiver[rows])
        ):
            return rows, edges
        if is_cached:
            raise InterventionError(
                f"Layer '{name}' must send messages along the edges of this graph (got those of "
                "an earlier one, because of cached=True). Set `layer.cached = False`."
            )
        raise InterventionError(
            f"Layer '{name}' passes {sender.numel()} messages along other edges than the "
            f"{self.num_edges} with a gate, because of pooling, rewiring or dropped edges. Explain "
            "the part before that, or set `layer.explain = False` on later layers."
        )


def find_edge_index(
    model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], num_edges: int
) -> Tensor | None:
    """Finds the graph among a model's inputs: by name, in a Data object, or by shape."""
    try:
        named = inspect.signature(model.forward).bind(*args, **kwargs).arguments
    except (TypeError, ValueError):  # wrong arguments: the model itself raises
        named = dict(kwargs)
    values = [*args, *kwargs.values()]
    held = (getattr(v, "edge_index", None) for v in values if not isinstance(v, Tensor))
    edge_index = named.get("edge_index")
    if edge_index is None:
        edge_index = next((one for one in held if one is not None), None)
    if edge_index is None:
        return next((v for v in values if _is_edge_index(v) and v.size(1) == num_edges), None)
    if not _is_edge_index(edge_index):
        return None  # sparse or malformed: the layers raise
    if edge_index.size(1) != num_edges:
        raise InterventionError(
            f"`gate` must hold one value per edge (got {num_edges} gates, "
            f"{edge_index.size(1)} edges)."
        )
    return edge_index


def _is_edge_index(value: Any) -> bool:
    if not isinstance(value, Tensor) or value.layout != torch.strided:
        return False
    return value.dtype == torch.long and value.dim() == 2 and value.size(0) == 2


def _same(edge_index: Tensor, sender: Tensor, receiver: Tensor) -> bool:
    return torch.equal(edge_index[0], sender) and torch.equal(edge_index[1], receiver)
