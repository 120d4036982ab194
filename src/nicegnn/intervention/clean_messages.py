"""Messages that each layer sends without an intervention, recorded once and reused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

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
        is_known = layer < len(self.layers) and self.names[layer] == name
        if not is_known or self.layers[layer].size(1) != like.size(1):
            raise InterventionError(
                f"Layer '{name}' cannot be anchored: every pass must send the same messages in the "
                f"same order (got number {layer} with {like.size(1)} values, but "
                f"{list(self.names)} in the clean pass). Use anchor='propagated'."
            )
        return self.layers[layer][edges]


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
