"""Weights of a chain, all layers in one tensor, padded with zeros to one width."""

from __future__ import annotations

import torch
from torch import Tensor

from nicegnn.kernels.chain import Chain


class PackedChain:
    """Weights as kernels read them, see `chain` for the symbols; W is ``width``.

    What the first layer does before its first ReLU is not here, but for ``first_map``: it is done
    once per batch.
    """

    hashes_noise: bool  # whether the kernel draws noise from seeds, otherwise it needs directions

    def __init__(self, chain: Chain, width: int, padded_input: int, device: torch.device) -> None:
        self.chain, self.width = chain, width
        first, number = chain.layers[0], len(chain.layers)
        self.has_before, self.has_map = first.before is not None, first.weight is not None
        self.has_own = any(layer.own is not None for layer in chain.layers)
        self.has_second = any(layer.second is not None for layer in chain.layers)
        self.before, self.weight, self.own = torch.zeros(3, number, width, width)
        self.second = torch.eye(width).repeat(number, 1, 1)  # nothing, where a layer has no second
        self.scale, self.after_scale = torch.ones(2, number, width)
        self.shift, self.second_shift, self.after_shift = torch.zeros(3, number, width)
        self.numbers = torch.zeros(number, 3)  # share of the own state, floor, second floor
        self.first_map = torch.zeros(padded_input, width)  # W_1 of the first layer
        _fill(self.first_map, first.weight)
        for place, layer in enumerate(chain.layers):
            if place:
                _fill(self.before[place], layer.before)
                _fill(self.weight[place], layer.weight)
                _fill(self.own[place], layer.own)
            _fill(self.scale[place], layer.scale)
            _fill(self.shift[place], layer.shift)
            floor = -torch.inf
            if layer.second is not None:
                self.second[place] = 0
                _fill(self.second[place], layer.second[0])
                _fill(self.second_shift[place], layer.second[1])
                floor = layer.second[2]
            if layer.after is not None:
                _fill(self.after_scale[place], layer.after[0])
                _fill(self.after_shift[place], layer.after[1])
            self.numbers[place] = torch.tensor([layer.root, layer.floor, floor])
        for name, value in vars(self).items():
            if isinstance(value, Tensor):
                setattr(self, name, value.contiguous().to(device))


def _fill(store: Tensor, value: Tensor | None) -> None:
    """Writes a value into the corner of a larger tensor."""
    if value is not None:
        store[tuple(slice(size) for size in value.shape)] = value.cpu()
