"""What happens to a message: element-wise masking (EM) and noise corruption (NC)."""

from __future__ import annotations

from typing import get_args

import torch
from torch import Tensor

from nicegnn.config import Anchor, check_choice
from nicegnn.errors import ConfigError
from nicegnn.intervention.intervene import Mechanism, Site
from nicegnn.intervention.noise_tables import DirectionTable


class ElementMask:
    r"""Element-wise masking: multiplies each message toward zero.

    .. math:: \Psi_{EM,\rho_e}(m_e) = \rho_e m_e  \qquad \text{(Eq. 4)}

    Symbols: :math:`m_e` -> ``message``, ``[E, F]``; :math:`\rho_e` -> ``gate``, ``[E]``.

    Args:
        anchor: which message is :math:`m_e`, see `NoiseCorruption`.
    """

    is_random = False

    def __init__(self, *, anchor: Anchor = "propagated") -> None:
        self.anchor = _checked(anchor)

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

    Noise is fresh per edge, layer and draw. It depends on the message through its norm, so
    gradients flow through that norm too. Messages that are exactly zero stay zero.

    Note:
        The square roots have infinite slopes at gates of exactly 0 and 1; there we return slope 0.

    Args:
        seed: seed of the random directions.
        antithetic: draws 2k and 2k+1 use opposite directions.
        anchor: which message is :math:`m_e`. ``"clean"`` takes the one of the clean pass, as the
            paper's notation table says: every layer then has its clean scale in expectation.
            ``"propagated"`` takes the one that damaged states send: noise feeds on noise.
    """

    is_random = True

    def __init__(
        self, seed: int = 0, *, antithetic: bool = False, anchor: Anchor = "propagated"
    ) -> None:
        self.seed = seed
        self.antithetic = antithetic
        self.anchor = _checked(anchor)
        self._directions = DirectionTable(seed, antithetic=antithetic)

    def __call__(self, message: Tensor, gate: Tensor, site: Site) -> Tensor:
        direction = self._directions(site, message)
        rho = gate.unsqueeze(1)
        norm = torch.linalg.vector_norm(message, dim=1, keepdim=True)
        return _sqrt(rho) * message + (_sqrt(1 - rho) * norm) * direction

    def __repr__(self) -> str:
        anchor = "" if self.anchor == "propagated" else ", anchor='clean'"
        return f"NoiseCorruption(seed={self.seed}, antithetic={self.antithetic}{anchor})"


def get_mechanism(
    name: str, *, antithetic: bool = False, anchor: Anchor = "propagated"
) -> Mechanism:
    """Returns a mechanism by its short name, ``nc`` or ``em``."""
    if name == "nc":
        return NoiseCorruption(antithetic=antithetic, anchor=anchor)
    if name == "em":
        return ElementMask(anchor=anchor)
    raise ConfigError(f"`mechanism` must be 'nc' or 'em' (got {name!r}), or a Mechanism object.")


def _checked(anchor: Anchor) -> Anchor:
    check_choice("anchor", anchor, get_args(Anchor))
    return anchor


def _sqrt(value: Tensor) -> Tensor:
    """Square root with slope 0 instead of infinity at 0."""
    positive = value > 0
    return torch.where(positive, torch.where(positive, value, 1.0).sqrt(), 0.0)
