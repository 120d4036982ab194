"""Clean messages: what each layer sends when nothing intervenes, recorded once and used again."""

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

    def of(self, layer: int, name: str, edges: Tensor, like: Tensor) -> Tensor:
        """Returns the clean messages of some edges in one propagation, ``[K, F]``.

        ``layer`` and ``name`` are those of the propagation in the damaged pass, ``like`` the
        messages that it sends now, ``[K, F]``.
        """
        if layer >= len(self.layers) or self.names[layer] != name:
            raise InterventionError(
                f"Layer '{name}' cannot be anchored: it is propagation {layer} of this pass, but "
                f"the clean pass had the layers {list(self.names)}. A model must run the same "
                "layers in the same order in every pass; use anchor='propagated' for one that does "
                "not."
            )
        clean = self.layers[layer]
        if clean.size(1) != like.size(1):
            raise InterventionError(
                f"Layer '{name}' cannot be anchored: its messages have {like.size(1)} values now "
                f"and had {clean.size(1)} in the clean pass. Use anchor='propagated'."
            )
        return clean[edges]


def join_graphs(parts: Sequence[CleanMessages], edges: Sequence[Tensor]) -> CleanMessages:
    """Joins the messages of single graphs, whose ``edges`` have these places in a batch."""
    order = torch.cat(list(edges)).argsort()
    layers = zip(*(part.layers for part in parts), strict=True)
    return CleanMessages([torch.cat(layer)[order] for layer in layers], parts[0].names)


@dataclass
class MessageRecorder:
    """A mechanism that changes nothing and keeps what it sees; slots must be edge numbers."""

    num_edges: int
    layers: list[Tensor] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    is_random = False

    def __call__(self, message: Tensor, gate: Tensor, site: Site) -> Tensor:
        whole = message.new_zeros(self.num_edges, message.size(1))
        self.layers.append(whole.index_copy(0, site.slot, message.detach()))
        self.names.append(site.name)
        return message


class SameInputs:
    """Remembers the inputs of a call, to tell whether a later call has the same ones."""

    def __init__(self) -> None:
        self._seen: list[tuple[Any, int]] | None = None

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Returns whether inputs are those of the last call, the same objects unchanged."""
        now = list(_values((*args, *kwargs.values())))
        before, self._seen = self._seen, now
        return (
            before is not None
            and len(before) == len(now)
            and all(a is b and v == w for (a, v), (b, w) in zip(before, now, strict=True))
        )


def _values(inputs: Iterable[Any]) -> Iterable[tuple[Any, int]]:
    """Yields each input with its version; the tensors of a graph instead of the graph."""
    for value in inputs:
        if isinstance(value, Tensor):
            yield value, value._version
        elif hasattr(value, "to_dict"):  # a torch_geometric Data
            yield from _values(value.to_dict().values())
        else:
            yield value, 0
