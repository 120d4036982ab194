"""Messages that each layer sends without an intervention, recorded once and reused."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from nicegnn.errors import InterventionError

if TYPE_CHECKING:
    from nicegnn.intervention.intervene import Site


@dataclass(frozen=True)
class CleanMessages:
    r"""Messages :math:`m_e^{(l)}` of one clean forward pass, propagation by propagation."""

    layers: Sequence[Tensor]  # messages of each propagation in call order, [E, F] each
    names: Sequence[str]  # name of the layer behind each propagation
    turns: Sequence[int] = ()  # propagations before each one in the same call of its layer
    counts: Sequence[int] = ()  # edges that sent a message in each propagation

    def of(self, layer: int, name: str, edges: Tensor, like: Tensor) -> Tensor:
        """Returns the clean messages of some edges in one propagation, ``[K, F]``.

        ``layer`` and ``name`` identify the propagation in the damaged pass, which sends ``like``,
        ``[K, F]``.
        """
        if layer >= len(self.layers) or self.names[layer] != name:
            raise InterventionError(
                f"Layer '{name}' cannot be anchored: every pass must run the same layers in the "
                f"same order (got it as number {layer}, but {list(self.names)} in the clean pass). "
                "Use anchor='propagated'."
            )
        clean = self.layers[layer]
        if clean.size(1) != like.size(1):
            raise InterventionError(
                f"Layer '{name}' cannot be anchored: its messages must have {clean.size(1)} values "
                f"as in the clean pass (got {like.size(1)}). Use anchor='propagated'."
            )
        return clean[edges]


def join_graphs(parts: Sequence[CleanMessages], edges: Sequence[Tensor]) -> CleanMessages:
    """Joins the messages of single graphs; ``edges`` are the places of their edges in a batch."""
    order = torch.cat(list(edges)).argsort()
    layers = zip(*(part.layers for part in parts), strict=True)
    counts = [sum(of_layer) for of_layer in zip(*(part.counts for part in parts), strict=True)]
    joined = [torch.cat(layer)[order] for layer in layers]
    return CleanMessages(joined, parts[0].names, parts[0].turns, counts)


@dataclass
class MessageRecorder:
    """A mechanism that stores messages and leaves them alone; slots must be edge numbers."""

    num_edges: int
    layers: list[Tensor] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    turns: list[int] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    is_random = False

    def __call__(self, message: Tensor, gate: Tensor, site: Site) -> Tensor:
        whole = message.new_zeros(self.num_edges, message.size(1))
        self.layers.append(whole.index_copy(0, site.slot, message.detach()))
        self.names.append(site.name)
        self.turns.append(site.turn)
        self.counts.append(message.size(0))
        return message


class SameInputs:
    """Tells whether a call has the same inputs as the call before it."""

    def __init__(self) -> None:
        self._seen: list[tuple[Any, int]] | None = None

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Returns whether the inputs are the same objects as last time, unchanged."""
        now = list(_values((*args, *kwargs.values())))
        before, self._seen = self._seen, now
        return (
            before is not None
            and len(before) == len(now)
            and all(a is b and v == w for (a, v), (b, w) in zip(before, now, strict=True))
        )


def _values(inputs: Iterable[Any]) -> Iterable[tuple[Any, int]]:
    """Yields each input with its version; a graph yields its tensors."""
    for value in inputs:
        if isinstance(value, Tensor):
            yield value, value._version
        elif hasattr(value, "to_dict"):  # a torch_geometric Data
            yield from _values(value.to_dict().values())
        else:
            yield value, 0
