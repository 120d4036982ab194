"""Mechanisms that damage messages by values of no edge: masking (EM) and noise (NC)."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import torch
from torch import Tensor

from nicegnn.config import Anchor, check_choice
from nicegnn.errors import ConfigError
from nicegnn.intervention.exchange import Exchange, safe_sqrt
from nicegnn.intervention.intervene import Mechanism, Site
from nicegnn.seeding import mix, normal_rows


class ElementMask:
    r"""Element-wise masking: multiplies each message toward zero.

    .. math:: \Psi_{EM,\rho_e}(m_e) = \rho_e m_e  \qquad \text{(Eq. 4)}

    Symbols: :math:`m_e` -> ``message``, ``[E, F]``; :math:`\rho_e` -> ``gate``, ``[E]``. For
    ``anchor`` see `NoiseCorruption`.
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
    :math:`\epsilon_e` -> ``norm * directions``, ``[E, F]``.

    Each edge, layer and draw has its own noise. Gradients also flow through the norm of the
    message. The square roots have infinite slopes at gates of exactly 0 and 1; we return slope 0.

    Args:
        anchor: which message is :math:`m_e`: ``"clean"`` takes that of the clean pass,
            ``"propagated"`` the one that damaged states send, so noise accumulates.
    """

    is_random = True

    def __init__(self, seed: int = 0, *, anchor: Anchor = "propagated") -> None:
        check_choice("anchor", anchor, get_args(Anchor))
        self.seed, self.anchor = seed, anchor

    def __call__(self, message: Tensor, gate: Tensor, site: Site) -> Tensor:
        if not gate.requires_grad:
            damaged = (gate < 1).nonzero().view(-1)
            if 2 * damaged.numel() < gate.numel():  # clean messages need no noise
                part = replace(site, slot=site.slot[damaged], draw=site.draw[damaged])
                changed = self._damage(message[damaged], gate[damaged], part)
                return message.index_copy(0, damaged, changed)
        return self._damage(message, gate, site)

    def _damage(self, message: Tensor, gate: Tensor, site: Site) -> Tensor:
        rho = gate.unsqueeze(1)
        norm = torch.linalg.vector_norm(message, dim=1, keepdim=True)
        noise = (safe_sqrt(1 - rho) * norm) * directions(self.seed, site, message)
        return safe_sqrt(rho) * message + noise

    def __repr__(self) -> str:
        anchor = "" if self.anchor == "propagated" else ", anchor='clean'"
        return f"NoiseCorruption(seed={self.seed}{anchor})"


def directions(seed: int, site: Site, like: Tensor) -> Tensor:
    r"""Returns unit vectors that are uniform on the sphere, one per message, ``[E, F]``.

    .. math:: \epsilon = g / \|g\|_2, \qquad g \sim N(0, I_F)

    Numbers come from their address alone (`normal_rows`): seed, stream, layer, draw and slot, an
    edge's position in its own graph. So a graph has the same noise in every batch and on every
    device, and where a table of all draws and slots has fewer rows than there are messages, all
    graphs share it.
    """
    dim, place = like.size(1), torch.stack([site.draw, site.slot], dim=1)  # [E, 2]
    first = place.amin(0) if len(place) else place.new_zeros(2)
    num_draws, num_slots = (place.amax(0) - first + 1).tolist() if len(place) else (0, 0)
    is_shared = num_draws * num_slots <= len(place)
    if is_shared:
        row = (site.draw - first[0]) * num_slots + site.slot - first[1]
        place = place.new_ones(num_draws, num_slots).nonzero() + first
    normal = normal_rows(mix(seed, site.stream, site.layer, dim), place[:, 0], place[:, 1], dim)
    unit = torch.nn.functional.normalize(normal.to(like.dtype), dim=-1, eps=1e-30)
    return unit[row] if is_shared else unit


def get_mechanism(name: str, anchor: Anchor = "propagated") -> Mechanism:
    """Returns a mechanism by its short name: ``exchange``, ``nc`` or ``em``.

    An exchange has no prototypes yet: a query takes them from the graphs themselves.
    """
    known = {"exchange": Exchange, "nc": NoiseCorruption, "em": ElementMask}
    if name not in known:
        raise ConfigError(
            f"`mechanism` must be 'exchange', 'nc', 'em' or a Mechanism object (got {name!r})."
        )
    made: Mechanism = known[name](anchor=anchor)
    return made
