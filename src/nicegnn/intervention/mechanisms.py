"""Mechanisms that damage messages by values of no edge: masking (EM) and noise (NC)."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace
from functools import partial
from threading import Lock
from typing import Any, get_args

import torch
from torch import Tensor

from nicegnn.config import Anchor, check_choice
from nicegnn.errors import ConfigError
from nicegnn.intervention.exchange import Exchange, safe_sqrt
from nicegnn.intervention.intervene import Mechanism, Site
from nicegnn.seeding import mix, normal_rows

_SLOTS = 64  # tables of directions have a multiple of so many slots
_KEPT_BYTES = 256 * 2**20


class ElementMask:
    r"""Element-wise masking: multiplies each message toward zero.

    .. math:: \Psi_{EM,\rho_e}(m_e) = \rho_e m_e  \qquad \text{(Eq. 4)}

    Symbols: :math:`m_e` -> ``message``, ``[E, F]``; :math:`\rho_e` -> ``gate``, ``[E]``. The
    ``anchor`` says which message is :math:`m_e`, see `NoiseCorruption`.
    """

    is_random = False

    def __init__(self, *, anchor: Anchor = "propagated") -> None:
        check_choice("anchor", anchor, get_args(Anchor))
        self.anchor = anchor

    def __call__(self, message: Tensor, gate: Tensor, site: Site) -> Tensor:
        return gate.unsqueeze(1) * message

    def __repr__(self) -> str:
        return "ElementMask()" if self.anchor == "propagated" else "ElementMask(anchor='clean')"


class NoiseCorruption:
    r"""Noise corruption: turns each message into a random direction of the same norm.

    .. math:: \Psi_{NC,\rho_e}(m_e) = \sqrt{\rho_e}\, m_e + \sqrt{1-\rho_e}\, \epsilon_e,
        \qquad \epsilon_e \sim \mathrm{Unif}\{z : \|z\|_2 = \|m_e\|_2\}  \qquad \text{(Eq. 8, 9)}

    Symbols: :math:`m_e` -> ``message``, ``[E, F]``; :math:`\rho_e` -> ``gate``, ``[E]``;
    :math:`\epsilon_e` -> ``norm * direction``, ``[E, F]``.

    Each edge, layer and draw has its own noise. Gradients also flow through the norm of the
    message. Messages that are exactly zero stay zero.

    Note:
        The square roots have infinite slopes at gates of exactly 0 and 1; there we return slope 0.

    Args:
        antithetic: draws 2k and 2k+1 use opposite directions.
        anchor: which message is :math:`m_e`. ``"clean"`` takes that of the clean pass, as the
            paper's notation table says: every layer then has its clean scale in expectation.
            ``"propagated"`` takes the message that damaged states send, so noise accumulates.
    """

    is_random = True

    def __init__(
        self, seed: int = 0, *, antithetic: bool = False, anchor: Anchor = "propagated"
    ) -> None:
        check_choice("anchor", anchor, get_args(Anchor))
        self.seed, self.antithetic, self.anchor = seed, antithetic, anchor
        self.directions = DirectionTable(seed, antithetic=antithetic)

    def __call__(self, message: Tensor, gate: Tensor, site: Site) -> Tensor:
        if not gate.requires_grad:
            damaged = (gate < 1).nonzero().view(-1)
            if 2 * damaged.numel() < gate.numel():  # clean messages need no noise
                where = site.slot[damaged], site.draw[damaged]
                part = replace(site, slot=where[0], draw=where[1])
                changed = self._damage(message[damaged], gate[damaged], part)
                return message.index_copy(0, damaged, changed)
        return self._damage(message, gate, site)

    def _damage(self, message: Tensor, gate: Tensor, site: Site) -> Tensor:
        direction = self.directions(site, message)
        rho = gate.unsqueeze(1)
        norm = torch.linalg.vector_norm(message, dim=1, keepdim=True)
        return safe_sqrt(rho) * message + (safe_sqrt(1 - rho) * norm) * direction

    def __repr__(self) -> str:
        anchor = "" if self.anchor == "propagated" else ", anchor='clean'"
        return f"NoiseCorruption(seed={self.seed}, antithetic={self.antithetic}{anchor})"


def get_mechanism(
    name: str, *, antithetic: bool = False, anchor: Anchor = "propagated"
) -> Mechanism:
    """Returns a mechanism by its short name: ``exchange``, ``nc`` or ``em``.

    An exchange has no prototypes yet: a query takes them from the graphs themselves.
    """
    if name == "exchange":
        return Exchange(anchor=anchor)
    if name == "nc":
        return NoiseCorruption(antithetic=antithetic, anchor=anchor)
    if name == "em":
        return ElementMask(anchor=anchor)
    raise ConfigError(
        f"`mechanism` must be 'exchange', 'nc', 'em' or a Mechanism object (got {name!r})."
    )


class DirectionTable:
    r"""Unit vectors uniform on the sphere, addressed by seed, stream, layer, draw and slot.

    .. math:: \epsilon = g / \|g\|_2, \qquad g \sim N(0, I_F)

    The slot is an edge's position in its own graph, so a graph has the same noise in every batch,
    and all graphs share one small table. Numbers come from their address alone (`normal_rows`), so
    results do not depend on the device, the number of draws or the largest graph of a batch.
    Antithetic draws 2k and 2k+1 are opposite directions. Threads may share a table.
    """

    def __init__(self, seed: int, *, antithetic: bool = False) -> None:
        self.seed = seed
        self.antithetic = antithetic
        self._tables: OrderedDict[tuple[object, ...], Tensor] = OrderedDict()
        self._bytes = 0
        self._lock = Lock()

    def __call__(self, site: Site, like: Tensor) -> Tensor:
        """Returns one direction per message of `like`, ``[E, F]``, on its device."""
        if like.size(0) == 0:
            return torch.zeros_like(like)
        half = 2 if self.antithetic else 1
        first, last = site.first_draw // half, (site.num_draws - 1) // half + 1
        draw = site.draw if half == 1 else site.draw // half
        if (last - first) * site.num_slots <= like.size(0):
            direction = self._table(site, first, last, like)[draw - first, site.slot]
        else:  # a table would have more rows than there are messages
            direction = self._directions(site, draw, site.slot, like)
        if self.antithetic:
            direction = direction * (1 - 2 * (site.draw % 2)).to(like.dtype).unsqueeze(1)
        return direction

    def _table(self, site: Site, first: int, last: int, like: Tensor) -> Tensor:
        """Returns the directions of some draws, ``[D, S, F]``, with S of at least all slots."""
        key = (site.stream, site.layer, like.size(1), first, last, like.dtype, like.device)
        with self._lock:
            known = self._tables.get(key)
            if known is not None and known.size(1) >= site.num_slots:
                self._tables.move_to_end(key)
                return known
        num_slots = -(-site.num_slots // _SLOTS) * _SLOTS  # rounded up, for the next batch
        draw = torch.arange(first, last, device=like.device).repeat_interleave(num_slots)
        slot = torch.arange(num_slots, device=like.device).repeat(last - first)
        table = self._directions(site, draw, slot, like).view(last - first, num_slots, -1)
        with self._lock:
            old = self._tables.pop(key, None)
            self._tables[key] = table
            self._bytes += table.nbytes - (0 if old is None else old.nbytes)
            while self._bytes > _KEPT_BYTES and len(self._tables) > 1:
                self._bytes -= self._tables.popitem(last=False)[1].nbytes
        return table

    def _directions(self, site: Site, draw: Tensor, slot: Tensor, like: Tensor) -> Tensor:
        dim = like.size(1)
        normal = normal_rows(mix(self.seed, site.stream, site.layer, dim), draw, slot, dim)
        return torch.nn.functional.normalize(normal.to(like.dtype), dim=-1, eps=1e-30)

    def __reduce__(self) -> tuple[Any, ...]:  # tables can be made again
        return partial(DirectionTable, antithetic=self.antithetic), (self.seed,)
