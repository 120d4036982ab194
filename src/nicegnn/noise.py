"""Random directions with coordinates: the same coordinates always give the same direction.

A direction is addressed by (seed, stream, layer, draw, slot). The slot is an edge's position in its
own graph, so a graph meets the same noise whatever batch it comes in, and all graphs share one
table, which makes random numbers cheap. Tables are made on the CPU in fixed blocks, so that results
do not depend on the device, on the number of draws, or on the largest graph of a batch.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict

import torch
from torch import Tensor

from nicegnn.messages import Site

_DRAWS, _SLOTS = 16, 64  # block of directions generated together
_KEPT_BLOCKS = 4096


def mix(*parts: int | str) -> int:
    """Returns a well mixed 63-bit number from integers and words, the same on every platform."""
    text = "\x1f".join(str(part) for part in parts)
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


class DirectionTable:
    r"""Unit vectors uniform on the sphere, addressed by coordinates.

    .. math:: \epsilon = g / \|g\|_2, \qquad g \sim N(0, I_F)

    Args:
        seed: numbers from different seeds are independent.
        antithetic: draws 2k and 2k+1 are opposite directions.
    """

    def __init__(self, seed: int, *, antithetic: bool = False) -> None:
        self.seed = seed
        self.antithetic = antithetic
        self._blocks: OrderedDict[tuple[object, ...], Tensor] = OrderedDict()

    def __call__(self, site: Site, like: Tensor) -> Tensor:
        """Returns one direction per message of `like`, ``[E, F]``, on its device."""
        dim = like.size(1)
        if like.size(0) == 0:
            return like.new_zeros(0, dim)
        draw = site.draw // 2 if self.antithetic else site.draw
        num_draws = (site.num_draws + 1) // 2 if self.antithetic else site.num_draws
        table = torch.cat(
            [
                torch.cat(
                    [
                        self._block(site.stream, site.layer, dim, d, s, like)
                        for s in range(-(-site.num_slots // _SLOTS))
                    ],
                    dim=1,
                )
                for d in range(-(-num_draws // _DRAWS))
            ]
        )  # [draws, slots, F]
        direction = table[draw, site.slot]
        if self.antithetic:
            direction = direction * (1 - 2 * (site.draw % 2)).to(like.dtype).unsqueeze(1)
        return direction

    def _block(
        self, stream: int, layer: int, dim: int, draw: int, slot: int, like: Tensor
    ) -> Tensor:
        key = (stream, layer, dim, draw, slot, like.dtype, like.device)
        if key in self._blocks:
            self._blocks.move_to_end(key)
            return self._blocks[key]
        generator = torch.Generator().manual_seed(mix(self.seed, stream, layer, dim, draw, slot))
        normal = torch.randn(_DRAWS, _SLOTS, dim, generator=generator)
        block = torch.nn.functional.normalize(normal, dim=-1, eps=1e-30).to(like)
        self._blocks[key] = block
        if len(self._blocks) > _KEPT_BLOCKS:
            self._blocks.popitem(last=False)
        return block
