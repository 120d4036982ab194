"""Random numbers addressed by words and numbers: equal addresses give equal draws everywhere."""

from __future__ import annotations

import hashlib

import torch
from torch import Tensor

_BLOCK = 1024  # slots whose numbers are drawn together


def mix(*parts: int | str) -> int:
    """Returns a well mixed 63-bit number from integers and words, the same on every platform."""
    text = "\x1f".join(str(part) for part in parts)
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def slot_numbers(seed: int, slot: Tensor, *, kind: str) -> Tensor:
    """Returns one random number per slot, the same for the same slot in every batch, float32.

    A slot is an item's position in its own graph, ``[M]``; the kind is ``uniform`` or ``normal``.
    """
    if slot.numel() == 0:
        return torch.zeros(0, device=slot.device)
    blocks = []
    for number in range(int(slot.max()) // _BLOCK + 1):
        generator = torch.Generator().manual_seed(mix(seed, kind, number))
        if kind == "uniform":  # never 0 or 1, whose logit is infinite
            block = torch.rand(_BLOCK, generator=generator).clamp(1e-6, 1 - 1e-6)
        else:
            block = torch.randn(_BLOCK, generator=generator)
        blocks.append(block)
    return torch.cat(blocks).to(slot.device)[slot]
