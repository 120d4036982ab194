"""Quadrature on the restoration path: nodes and weights for integrals over t in [0, 1]."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from nicegnn.errors import ConfigError

QUADRATURES = ("riemann", "gauss", "gauss-sine", "gauss-linear")


def path_nodes(rule: str, num: int) -> tuple[Tensor, Tensor]:
    r"""Returns nodes :math:`t_k` and weights :math:`w_k` with
    :math:`\int_0^1 g(t)\,dt \approx \sum_k w_k g(t_k)`, float64, ``[T]`` each.

    - ``riemann``: right endpoints :math:`t_k = k/T`, :math:`w_k = 1/T` (the paper's rule).
    - ``gauss``: Gauss-Legendre in :math:`u` with :math:`t = u^2`, so :math:`dt = 2u\,du`. Noise
      corruption makes the integrand grow like :math:`t^{-1/2}`; in :math:`u` it is smooth.
    - ``gauss-sine``: Gauss-Legendre in :math:`u` with :math:`t = \sin^2(\pi u/2)`, smooth at both
      ends; for paths that end at gates of 1, where the slope grows like :math:`(1-t)^{-1/2}`.
    - ``gauss-linear``: Gauss-Legendre in :math:`t` itself, for integrands without such growth.

    Example:
        >>> t, w = path_nodes("gauss", 4)
        >>> round(float((w * t.rsqrt()).sum()), 12)  # the integral of t**-0.5 is 2
        2.0
    """
    if num < 1:
        raise ConfigError(f"`num_nodes` must be at least 1 (got {num}).")
    if rule == "riemann":
        t = np.arange(1, num + 1) / num
        w = np.full(num, 1 / num)
    elif rule in QUADRATURES:
        roots, weights = np.polynomial.legendre.leggauss(num)
        u, du = (roots + 1) / 2, weights / 2
        if rule == "gauss":
            t, w = u**2, 2 * u * du
        elif rule == "gauss-linear":
            t, w = u, du
        else:
            angle = np.pi * u / 2
            t, w = np.sin(angle) ** 2, np.pi * np.sin(angle) * np.cos(angle) * du
            w = w / w.sum()  # exact only as T grows; a constant must always be
    else:
        raise ConfigError(f"`quadrature` must be one of {QUADRATURES} (got {rule!r}).")
    return torch.from_numpy(t), torch.from_numpy(w)
