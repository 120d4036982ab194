"""Optimisation in steps; an interrupted and resumed run gives the same result as a whole one."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from nicegnn.config import differences
from nicegnn.errors import StoreError
from nicegnn.progress import progress_bar
from nicegnn.seeding import mix
from nicegnn.store import load_tensors, optimiser_tensors, restore_optimiser, save_tensors

CHECKPOINT_EVERY = 25
_READ_EVERY = 10  # steps; to read numbers, the CPU waits for the GPU

History = list[dict[str, float]]


def run_steps(
    step: Callable[[int], Mapping[str, float | Tensor]],
    num_steps: int,
    net: nn.Module,
    optimiser: torch.optim.Optimizer,
    *,
    title: str,
    identity: dict[str, Any],
    progress: bool,
    checkpoint: str | Path | None,
    is_over: Callable[[Sequence[Mapping[str, Any]]], bool] = lambda history: False,
) -> History:
    """Takes all steps, or those after the checkpoint, and returns the numbers that each reported.

    Args:
        step: takes the number of a step, changes `net` through `optimiser` and reports numbers.
            Everything random in it must depend on that number alone. Numbers may be tensors.
        identity: plain values that the run depends on; a checkpoint with other values is refused.
        checkpoint: file to write every 25 steps and at the end, and to resume from if it exists.
        is_over: takes what all steps so far reported, before each step; whether none is to follow.
    """
    history: list[Mapping[str, float | Tensor]] = []
    if checkpoint is not None and Path(checkpoint).exists():
        history = [*_resume(checkpoint, net, optimiser, identity)]
    finished = _state(net, optimiser), list(history)  # as of the last whole step

    def save() -> None:
        if checkpoint is not None:
            description = {"kind": "fit", "history": _numbers(finished[1]), "identity": identity}
            save_tensors(checkpoint, finished[0], description)

    note = ""
    with progress_bar(title, num_steps, shown=progress) as advance:
        try:
            for number in range(len(history), num_steps):
                if is_over(history):
                    break
                history.append(step(number))
                if checkpoint is not None:
                    finished = _state(net, optimiser), list(history)
                if (number + 1) % _READ_EVERY == 0:
                    last = _numbers(history[-1:])[0]
                    note = ", ".join(f"{key} {value:.3f}" for key, value in last.items())
                advance(number + 1, note)
                if (number + 1) % CHECKPOINT_EVERY == 0:
                    save()
        finally:  # also on Ctrl-C
            save()
    return _numbers(history)


def batch_of_step(num_graphs: int, batch_size: int, seed: int, step: int) -> Tensor:
    """Returns the graphs of one step, ``[B]``; an epoch visits each once, in a new order."""
    size = min(batch_size, num_graphs)
    per_epoch = num_graphs // size
    generator = torch.Generator().manual_seed(mix(seed, "epoch", step // per_epoch))
    order = torch.randperm(num_graphs, generator=generator)
    first = (step % per_epoch) * size
    return order[first : first + size]


def descend(loss: Tensor, parameters: list[nn.Parameter], optimiser: torch.optim.Optimizer) -> None:
    """Takes one optimiser step on these parameters; gradients of others stay untouched."""
    grads = torch.autograd.grad(loss, parameters, allow_unused=True)
    for parameter, grad in zip(parameters, grads, strict=True):
        parameter.grad = grad
    optimiser.step()
    optimiser.zero_grad(set_to_none=True)


def _numbers(history: Sequence[Mapping[str, float | Tensor]]) -> History:
    return [{key: float(value) for key, value in one.items()} for one in history]


def _state(net: nn.Module, optimiser: torch.optim.Optimizer) -> dict[str, Tensor]:
    tensors = {f"net.{key}": value.clone() for key, value in net.state_dict().items()}
    return tensors | optimiser_tensors(optimiser)


def _resume(
    path: str | Path, net: nn.Module, optimiser: torch.optim.Optimizer, identity: dict[str, Any]
) -> History:
    tensors, description = load_tensors(path, "fit")
    changed = differences(json.loads(json.dumps(identity)), description["identity"])
    if changed:
        raise StoreError(
            f"The checkpoint {path} belongs to another run (these differ: {', '.join(changed)}). "
            "Delete it to start again, or name another checkpoint."
        )
    net.load_state_dict({k[4:]: v for k, v in tensors.items() if k.startswith("net.")})
    restore_optimiser(optimiser, tensors)
    return list(description["history"])
