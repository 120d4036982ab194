"""Random directions with coordinates: the same coordinates always give the same direction.

A direction is addressed by (seed, stream, layer, draw, slot). The slot is an edge's position in its
own graph, so a graph meets the same noise whatever batch it comes in, and all graphs share one
table, which makes random numbers cheap. Tables are made on the CPU in fixed blocks, so that results
do not depend on the device, on the number of draws, or on the largest graph of a batch.
"""

from __future__ import annotations

from collections import OrderedDict

import torch
from torch import Tensor

from nicegnn.intervention.intervene import Site
from nicegnn.seeding import mix

_DRAWS, _SLOTS = 16, 64  # block of directions generated together, for small graphs
_NEAR, _FAR_SLOTS = 1024, 1024  # slots beyond _NEAR are generated one draw at a time
_KEPT_BYTES = 256 * 2**20


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
        self._bytes = 0

    def __call__(self, site: Site, like: Tensor) -> Tensor:
        """Returns one direction per message of `like`, ``[E, F]``, on its device."""
        if like.size(0) == 0:
            return torch.zeros_like(like)
        half = 2 if self.antithetic else 1
        first, last = site.first_draw // half, (site.num_draws - 1) // half + 1
        table = self._table(site, first, last, like)  # [draws, slots, F]
        direction = table[site.draw // half - first, site.slot]
        if self.antithetic:
            direction = direction * (1 - 2 * (site.draw % 2)).to(like.dtype).unsqueeze(1)
        return direction

    def _table(self, site: Site, first: int, last: int, like: Tensor) -> Tensor:
        near = min(site.num_slots, _NEAR)
        rows = [
            torch.cat(
                [
                    self._block(site, (d, s), (_DRAWS, _SLOTS), like)
                    for s in range(-(-near // _SLOTS))
                ],
                dim=1,
            )
            for d in range(first // _DRAWS, (last - 1) // _DRAWS + 1)
        ]
        start = first // _DRAWS * _DRAWS
        table = torch.cat(rows)[first - start : last - start]
        if site.num_slots <= _NEAR:
            return table
        far = [
            torch.cat(
                [
                    self._block(site, (d, -1 - s), (1, _FAR_SLOTS), like)
                    for s in range(-(-(site.num_slots - _NEAR) // _FAR_SLOTS))
                ],
                dim=1,
            )
            for d in range(first, last)
        ]
        return torch.cat([table, torch.cat(far)], dim=1)

    def _block(
        self, site: Site, number: tuple[int, int], shape: tuple[int, int], like: Tensor
    ) -> Tensor:
        dim = like.size(1)
        key = (site.stream, site.layer, dim, *number, like.dtype, like.device)
        if key in self._blocks:
            self._blocks.move_to_end(key)
            return self._blocks[key]
        seed = mix(self.seed, site.stream, site.layer, dim, *number)
        normal = torch.randn(*shape, dim, generator=torch.Generator().manual_seed(seed))
        block = torch.nn.functional.normalize(normal.to(like.dtype), dim=-1, eps=1e-30)
        self._blocks[key] = block = block.to(like.device)
        self._bytes += block.nbytes
        while self._bytes > _KEPT_BYTES and len(self._blocks) > 1:
            self._bytes -= self._blocks.popitem(last=False)[1].nbytes
        return block
