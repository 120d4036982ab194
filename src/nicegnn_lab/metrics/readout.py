"""The representation of a graph that a model reads out before its head."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from nicegnn.errors import TargetError
from nicegnn.target.message_layers import hooked, message_layers, unwrap


class Readout:
    """Holds the graph representation that the last forward pass of a model read out, ``[B, F]``."""

    def __init__(self, num_graphs: int) -> None:
        self.num_graphs = num_graphs
        self.candidate: Tensor | None = None

    @property
    def value(self) -> Tensor:
        if self.candidate is None:
            raise TargetError(
                "The model calls no module on one row per graph "
                f"({self.num_graphs}) after its last message-passing layer. Read the graph out "
                "before the head, as the models of nicegnn.target.zoo do."
            )
        return self.candidate


@contextmanager
def capture_readout(model: nn.Module, num_graphs: int) -> Iterator[Readout]:
    """Yields a holder of the graph representation :math:`h(G)` in the model's last forward pass.

    It is the input of the first module that receives one row per graph after the last
    message-passing layer.
    """
    readout = Readout(num_graphs)
    inner = unwrap(model)
    leaves = [module for module in inner.modules() if not list(module.children())]

    def see(_: nn.Module, args: tuple[Any, ...]) -> None:
        value = args[0] if args and isinstance(args[0], Tensor) else None
        is_right = value is not None and value.dim() == 2 and value.size(0) == num_graphs
        if readout.candidate is None and is_right:
            readout.candidate = value

    def forget(*_: Any) -> None:
        readout.candidate = None

    handles = [leaf.register_forward_pre_hook(see) for leaf in leaves]
    handles += [layer.register_forward_hook(forget) for _, layer in message_layers(model)]
    with hooked(handles):
        yield readout
