"""Optimisation in steps whose randomness is addressed by their numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from nicegnn.progress import progress_bar
from nicegnn.seeding import mix

_READ_EVERY = 10  # steps; to read numbers, the CPU waits for the GPU

History = list[dict[str, float]]


def run_steps(
    step: Callable[[int], Mapping[str, float | Tensor]],
    num_steps: int,
    *,
    title: str,
    progress: bool,
    is_over: Callable[[Sequence[Mapping[str, Any]]], bool] = lambda history: False,
) -> History:
    """Takes steps by their numbers, until `is_over`, and returns what each reported."""
    history: list[Mapping[str, float | Tensor]] = []
    note = ""
    with progress_bar(title, num_steps, shown=progress) as advance:
        for number in range(num_steps):
            if is_over(history):
                break
            history.append(step(number))
            if progress and (number + 1) % _READ_EVERY == 0:
                note = ", ".join(f"{key} {float(v):.3f}" for key, v in history[-1].items())
            advance(number + 1, note)
    return [{key: float(value) for key, value in one.items()} for one in history]


def batch_of_step(num_graphs: int, batch_size: int, seed: int, step: int) -> Tensor:
    """Returns the graphs of one step, ``[B]``; an epoch visits each once, in a new order."""
    size = min(batch_size, num_graphs)
    epoch, place = divmod(step, num_graphs // size)
    generator = torch.Generator().manual_seed(mix(seed, "epoch", epoch))
    order = torch.randperm(num_graphs, generator=generator)
    return order[place * size : (place + 1) * size]


def descend(loss: Tensor, parameters: list[nn.Parameter], optimiser: torch.optim.Optimizer) -> None:
    """Takes one optimiser step on these parameters; gradients of others stay untouched."""
    grads = torch.autograd.grad(loss, parameters, allow_unused=True)
    for parameter, grad in zip(parameters, grads, strict=True):
        parameter.grad = grad
    optimiser.step()
    optimiser.zero_grad(set_to_none=True)
