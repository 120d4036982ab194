"""Reading a model's inner states while it runs: node states per layer, and the graph readout."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from nicegnn.errors import TargetError
from nicegnn.target.message_layers import eager, message_layers, unwrap


@contextmanager
def capture_states(model: nn.Module) -> Iterator[list[Tensor]]:
    """Yields a list that collects the node states each message-passing layer returns, ``[V, F]``.

    The list is emptied when a forward pass of the model begins.
    """
    states: list[Tensor] = []

    def record(_: nn.Module, __: Any, output: Any) -> None:
        state = output[0] if isinstance(output, tuple) else output
        states.append(state.detach().flatten(1))

    handles = [layer.register_forward_hook(record) for _, layer in message_layers(model)]
    handles.append(unwrap(model).register_forward_pre_hook(lambda *_: states.clear(), prepend=True))
    with _hooked(handles):
        yield states


class Readout:
    """Holds the graph representation that the last forward pass of a model read out, ``[B, F]``."""

    def __init__(self, num_graphs: int) -> None:
        self.num_graphs = num_graphs
        self._candidate: Tensor | None = None

    @property
    def value(self) -> Tensor:
        if self._candidate is None:
            raise TargetError(
                "No graph representation was found: after its last message-passing layer the model "
                f"calls no module on {self.num_graphs} rows, one per graph. Name the module whose "
                "input is the representation with representation='module.name'."
            )
        return self._candidate

    def see(self, args: tuple[Any, ...]) -> None:
        """Keeps the first two-dimensional input with one row per graph."""
        if self._candidate is None and args and isinstance(args[0], Tensor):
            value = args[0]
            if value.dim() == 2 and value.size(0) == self.num_graphs:
                self._candidate = value

    def forget(self) -> None:
        self._candidate = None


@contextmanager
def capture_readout(
    model: nn.Module, num_graphs: int, representation: str | None = None
) -> Iterator[Readout]:
    """Yields a holder of the graph representation :math:`h(G)` of the model's last forward pass.

    It is the input of the module named ``representation``; by default of the first module that is
    called with one row per graph after the last message-passing layer.
    """
    readout = Readout(num_graphs)
    inner = unwrap(model)
    if representation is None:
        leaves = [m for m in inner.modules() if not list(m.children())]
    else:
        try:
            leaves = [inner.get_submodule(representation)]
        except AttributeError as error:
            known = [name for name, _ in inner.named_modules() if name]
            raise TargetError(
                f"`representation` must name a module of the model (got {representation!r}; known "
                f"are {known})."
            ) from error
    layers = [layer for _, layer in message_layers(model)]
    handles = [leaf.register_forward_pre_hook(lambda _, args: readout.see(args)) for leaf in leaves]
    handles += [layer.register_forward_hook(lambda *_: readout.forget()) for layer in layers]
    with _hooked(handles):
        yield readout


@contextmanager
def _hooked(handles: list[RemovableHandle]) -> Iterator[None]:
    """Runs the model eagerly, so that hooks are called, and removes them at the end."""
    try:
        with eager():
            yield
    finally:
        for handle in reversed(handles):
            handle.remove()
