"""Exchange: a damaged edge says what another real edge says."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import get_args

import torch
from torch import Tensor

from nicegnn.config import Anchor, check_choice
from nicegnn.errors import InterventionError
from nicegnn.intervention.intervene import Site, check_recorded
from nicegnn.seeding import mix, whole_numbers

NUM = 8  # prototypes; four to sixteen are as good, see docs/wide-bench.md


@dataclass(frozen=True)
class Prototypes:
    r"""Messages of a few real edges, in every propagation of a model.

    All graphs share the K prototypes of a background, or each of G graphs has its own. Edges of
    different kinds (relations) have different ones. Rows of a graph and kind lie side by side.
    """

    layers: tuple[Tensor, ...]  # b_k of each propagation in call order, [G * T * K, F] each
    means: tuple[Tensor, ...]  # mean message of each propagation, [G * T, F] each
    names: tuple[str, ...]  # name of the layer behind each propagation
    num: int  # prototypes of a graph and a kind of edge, K
    kinds: int = 1  # kinds of edges with prototypes of their own, T

    def row(self, graph: Tensor | None, number: Tensor, kind: Tensor | None = None) -> Tensor:
        """Returns the rows of numbered prototypes, ``[E]``; numbers beyond K begin again."""
        row = number % self.num
        if kind is not None and self.kinds > 1:
            row = row + kind * self.num
        is_shared = self.means[0].size(0) == self.kinds  # by all graphs
        return row if is_shared or graph is None else row + graph * self.kinds * self.num

    def to(self, device: torch.device) -> Prototypes:
        layers, means = (tuple(v.to(device) for v in part) for part in (self.layers, self.means))
        return replace(self, layers=layers, means=means)


class Exchange:
    r"""Exchange: turns each message into that of another real edge.

    .. math:: \Psi_{X,\rho_e}(m_e) = \mu + \sqrt{\rho_e}\,(m_e - \mu) + \sqrt{1-\rho_e}\,(b - \mu)

    Symbols: :math:`m_e` -> ``message``, ``[E, F]``; :math:`\rho_e` -> ``gate``, ``[E]``; :math:`b`
    -> the messages of one prototype in all layers, ``prototypes``; :math:`\mu` -> mean message of
    the layer. Gates of 1 and 0 give :math:`m_e` and :math:`b` to the last bit.

    By default nothing is random: draw k exchanges with prototype k, for all edges alike. With
    ``each="edge"`` every edge and draw has a prototype of its own, drawn by the seed, the same in
    all layers. Without ``prototypes`` a query takes ``num`` of them from each graph itself. Between
    the ends, means and covariances of a layer's messages are kept, see `docs/method.md`.
    """

    def __init__(
        self,
        prototypes: Prototypes | None = None,
        num: int = NUM,
        each: str = "graph",
        seed: int = 0,
        anchor: Anchor = "propagated",
    ) -> None:
        check_choice("each", each, ("graph", "edge"))
        check_choice("anchor", anchor, get_args(Anchor))
        self.prototypes, self.num, self.each = prototypes, num, each
        self.seed, self.anchor = seed, anchor

    @property
    def is_random(self) -> bool:
        return self.each == "edge"

    @property
    def num_draws(self) -> int | None:
        """How many draws there are; None: as many as one likes."""
        return None if self.is_random or self.prototypes is None else self.prototypes.num

    def having(self, prototypes: Prototypes) -> Exchange:
        """Returns the same exchange with prototypes."""
        return Exchange(prototypes, prototypes.num, self.each, self.seed, self.anchor)

    def __call__(self, message: Tensor, gate: Tensor, site: Site) -> Tensor:
        if self.prototypes is None:
            why = "Exchange must have prototypes (got none). Record them"
            raise InterventionError(f"{why}: Exchange(record_background(model, graphs).messages).")
        known, layer = self.prototypes, site.layer
        check_recorded(known, layer, site.name, message, "Record a background with this model.")
        prototypes, mean, number = known.layers[layer].to(message), known.means[layer], site.draw
        if self.is_random:
            seed = mix(self.seed, "exchange", site.stream)
            number = whole_numbers(seed, site.draw, site.slot, known.num)
        row = known.row(site.graph, number, site.kind)
        if not gate.requires_grad:
            damaged = (gate < 1).nonzero().view(-1)
            if not bool(gate.any()) or bool((gate[damaged] == 0).all()):  # nothing is mixed
                return message.index_copy(0, damaged, prototypes[row[damaged]])
        donor, rho = prototypes[row], gate.unsqueeze(1)
        mean = mean.to(message)[row // known.num]
        mixed = mean + safe_sqrt(rho) * (message - mean) + safe_sqrt(1 - rho) * (donor - mean)
        slope = mixed - mixed.detach()  # 0, with the gradient of the mixture
        out = torch.where(rho >= 1, message + slope, mixed)
        return torch.where(rho <= 0, donor + slope, out)

    def __repr__(self) -> str:
        each = "" if self.each == "graph" else f"each='edge', seed={self.seed}"
        anchor = "" if self.anchor == "propagated" else "anchor='clean'"
        return f"Exchange({', '.join(filter(None, (each, anchor)))})"


def safe_sqrt(value: Tensor) -> Tensor:
    """Square root with slope 0 instead of infinity at 0."""
    positive = value > 0
    return torch.where(positive, torch.where(positive, value, 1.0).sqrt(), 0.0)
