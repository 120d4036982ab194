"""The seam to models: which layers send messages, and reading their states while they run.

PyG's layers show their messages by themselves. A layer written by hand names the method that
returns them (`register_layer`). A model of another library has an `Adapter`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle
from torch_geometric.nn import MessagePassing

from nicegnn.errors import InterventionError
from nicegnn.target.output import Mode


@runtime_checkable
class Adapter(Protocol):
    """A module around a model of another library, such as `ChempropModel`.

    It takes PyG's attributes by their names, and its layers are PyG's or registered ones.
    """

    mode: Mode  # of its output

    def read_graphs(self, molecules: Any) -> Any:
        """Returns PyG graphs of what the library's users have: one, or a list."""


_METHODS: dict[type[nn.Module], str] = {}  # of hand-written layers, see `register_layer`


def register_layer(kind: type[nn.Module], method: str = "message") -> None:
    """Lets bonds be explained in a layer that is not PyG's.

    ``method`` returns the messages of a call, one row per edge in the order of the graph's
    ``edge_index``, ``[E, F]``; what it returns is exchanged. It may be called several times in
    ``forward``, which returns the states of nodes, ``[V, F]`` (see docs/howto/own-model.md).
    """
    is_layer = isinstance(kind, type) and issubclass(kind, nn.Module)
    if not is_layer or not callable(getattr(kind, str(method), None)):
        raise InterventionError(
            "`register_layer` takes a class of torch.nn.Module and the name of its method that "
            f"returns messages (got {kind!r} and {method!r}). Split that method off forward()."
        )
    _METHODS[kind] = method


def message_method(layer: nn.Module) -> str | None:
    """Returns the method that returns a hand-written layer's messages; None for other modules."""
    return next((_METHODS[kind] for kind in type(layer).__mro__ if kind in _METHODS), None)


def message_layers(model: nn.Module) -> list[tuple[str, Any]]:
    """Returns the message-passing layers of `model` with their names; none is an error."""
    if isinstance(model, nn.DataParallel | nn.parallel.DistributedDataParallel):
        kind = type(model).__name__
        raise InterventionError(f"`model` must not be a {kind}. Pass `model.module`, without it.")
    layers = []
    for name, module in unwrap(model).named_modules():
        if isinstance(module, torch.jit.ScriptModule) and hasattr(module, "propagate"):
            raise InterventionError(f"Layer '{name}' must not be scripted. Use the Python layer.")
        if isinstance(module, MessagePassing) or message_method(module) is not None:
            layers.append((name, module))
    if not layers:
        raise InterventionError(
            f"{type(model).__name__} has no torch_geometric MessagePassing layer. Name the method "
            "of your own that returns messages: nicegnn.target.message_layers.register_layer()."
        )
    return layers


def unwrap(model: nn.Module) -> nn.Module:
    """Returns the Python model inside a model of ``torch.compile``."""
    inner = getattr(model, "_orig_mod", model)
    return inner if isinstance(inner, nn.Module) else model


_LOCK = Lock()
_STANCES: list[Any] = []  # PyTorch's one stance for all threads, as often as it is needed


@contextmanager
def eager() -> Iterator[None]:
    """Makes compiled models of all threads run eagerly, so that hooks are not skipped."""
    with _LOCK:
        _STANCES.append(_STANCES[0] if _STANCES else torch.compiler.set_stance("force_eager"))
    try:
        yield
    finally:
        with _LOCK:
            stance = _STANCES.pop()
            if not _STANCES:
                stance.__exit__(None, None, None)


@contextmanager
def capture_states(model: nn.Module) -> Iterator[list[Tensor]]:
    """Yields the node states that the layers returned in the last forward pass, ``[V, F]`` each."""
    states: list[Tensor] = []

    def record(_: nn.Module, __: Any, output: Any) -> None:
        if isinstance(output, dict):  # of several kinds of nodes
            output = tuple(state for state in output.values() if state is not None)
        state = output[0] if isinstance(output, tuple) else output
        states.append(state.detach().flatten(1))

    handles = [layer.register_forward_hook(record) for _, layer in message_layers(model)]
    handles.append(unwrap(model).register_forward_pre_hook(lambda *_: states.clear(), prepend=True))
    with hooked(handles):
        yield states


@contextmanager
def hooked(handles: list[RemovableHandle]) -> Iterator[None]:
    """Runs the model eagerly, so that hooks are called, and removes them at the end."""
    try:
        with eager():
            yield
    finally:
        for handle in reversed(handles):
            handle.remove()
