"""Random numbers addressed by words and numbers: equal addresses give equal draws everywhere."""

from __future__ import annotations

import hashlib
import math
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

_DRAWING = ("uniform_", "normal_", "rand", "randn")  # functions that layers draw weights with
_GOLDEN = 0x9E3779B9 - 2**32  # odd constants below are those of MurmurHash3's 32-bit finaliser


def mix(*parts: int | str) -> int:
    """Returns a well mixed 63-bit number from integers and words, the same on every platform."""
    text = "\x1f".join(str(part) for part in parts)
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def normal_rows(seed: int, draw: Tensor, slot: Tensor, width: int) -> Tensor:
    """Returns standard normal numbers of each draw and slot, ``[R]`` each, as ``[R, width]``.

    Every pair of numbers is hashed from its address and is the same, up to rounding, on every
    device: 16 bits of a word are its radius, 16 its angle (Box-Muller); float32.
    """
    row, high = _addressed(seed, draw, slot)
    pair = torch.arange((width + 1) // 2, dtype=torch.int32, device=row.device)
    word = _scramble(pair.mul_(_GOLDEN).add_(high))
    word = _scramble(row.unsqueeze(1) + word)  # [R, width / 2]
    radius = (word & 0xFFFF).float().add_(0.5).mul_(2.0**-16).log_().mul_(-2).sqrt_()
    angle = word.bitwise_right_shift_(16).float().mul_(math.pi / 2**15)
    return torch.cat([angle.cos().mul_(radius), angle.sin_().mul_(radius)], dim=1)[:, :width]


def whole_numbers(seed: int, draw: Tensor, slot: Tensor, end: int) -> Tensor:
    """Returns a whole number from 0 to one before `end` for each draw and slot, ``[R]``."""
    row, high = _addressed(seed, draw, slot)
    return (_scramble(row.add_(high)) & 0x7FFFFFFF).long() % end


def _addressed(seed: int, draw: Tensor, slot: Tensor) -> tuple[Tensor, int]:
    """Returns a hash of the seed's lower word, draw and slot, ``[R]``, and the upper word."""
    words = seed & 0xFFFFFFFF, seed >> 32
    low, high = (word - 2**32 if word >= 2**31 else word for word in words)  # as signed numbers
    row = _scramble(draw.to(torch.int32).mul_(_GOLDEN).add_(low))
    return _scramble(row.add_(slot.to(torch.int32))), high


def _scramble(word: Tensor) -> Tensor:
    """Mixes 32-bit words in place; integers overflow on purpose."""
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        word ^= (word >> shift) & (2 ** (32 - shift) - 1)  # a shift without the sign
        word *= factor - 2**32
    word ^= (word >> 16) & 0xFFFF
    return word


class SeededWeights(TorchFunctionMode):
    """Lets new layers draw their weights from a seed of their own, in this thread alone.

    They would take them from PyTorch's global generator, which all threads share; the numbers are
    those that it gives after ``torch.manual_seed(seed)``.
    """

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._generator = torch.Generator().manual_seed(seed)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = dict(kwargs or {})
        if "generator" in given or getattr(func, "__name__", "") in _DRAWING:
            given["generator"] = self._generator
        return func(*args, **given)
