"""Seconds and peak memory of a call."""

from __future__ import annotations

import ctypes
import platform
import re
import resource
import statistics
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

Call = Callable[[], object]
_PROCESS = Path("/proc/self")
LEAST = 0.2  # seconds per repeat, so that a short disturbance does not count


@dataclass(frozen=True)
class Cost:
    """What a call costs."""

    seconds: float  # median over repeats; the first call is not counted
    memory: int  # bytes at the peak of the first call, above what was held before it


def cost(call: Call, device: torch.device, repeats: int) -> Cost:
    """Measures a call at least `repeats` times, and short ones for longer, after a first call."""
    memory, times = peak_memory(call, device), list[float]()
    while len(times) < repeats or (sum(times) < LEAST * repeats and len(times) < 10 * repeats):
        times.append(stopwatch(call, device))
    return Cost(statistics.median(times), memory)


def fastest(call: Call, device: torch.device, repeats: int) -> float:
    """Returns the seconds of the fastest of several calls, as a peak of the machine is meant."""
    call()
    return min(stopwatch(call, device) for _ in range(repeats))


def stopwatch(call: Call, device: torch.device) -> float:
    """Returns the seconds of one call, with all that it started on the device."""
    start = _settled(device)
    call()
    return _settled(device) - start


def fit_cost(fit: Call, device: torch.device, timed_steps: int, all_steps: int) -> float:
    """Returns the seconds of a fit of `all_steps`, from one that takes only `timed_steps`.

    Further steps cost the median time between two steps of the optimiser, so that preparation,
    which is done once, is not multiplied. At least two steps must be timed.
    """
    stamps: list[float] = []
    hook = register_optimizer_step_post_hook(lambda *_: stamps.append(_settled(device)))
    try:
        whole = stopwatch(fit, device)
    finally:
        hook.remove()
    each = max(1, len(stamps) // timed_steps)  # some methods step several optimisers in turn
    per_step = statistics.median(end - start for start, end in pairwise(stamps[::each]))
    return whole + per_step * (all_steps - timed_steps)


def peak_memory(call: Call, device: torch.device) -> int:
    """Returns the bytes that a call needs at its peak, above what was held before it.

    On a GPU this is tensor memory; on a CPU it is resident memory of the process. Where the
    system cannot reset its record of the peak, only a new record of the process is seen.
    """
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        call()
        return torch.cuda.max_memory_allocated(device) - before
    before = _reset_peak()
    call()
    return max(0, _peak() - before)


def machine(device: torch.device) -> str:
    """Returns the kind of machine and the number of threads in words."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine()
    return f"{device.type}: {name}, {torch.get_num_threads()} thread(s)"


def _settled(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif torch.get_num_threads() == 1:
        return time.process_time()  # other work on the machine hardly changes it
    return time.perf_counter()


def _reset_peak() -> int:
    """Resets the record of the peak where the system can, and returns it."""
    with suppress(OSError, AttributeError):  # not glibc
        ctypes.CDLL(None).malloc_trim(0)  # else memory that was freed before would be used again
    with suppress(OSError):
        (_PROCESS / "clear_refs").write_text("5")
    return _peak()


def _peak() -> int:
    try:
        found = re.search(r"VmHWM:\s+(\d+) kB", (_PROCESS / "status").read_text())
    except OSError:
        found = None
    if found:
        return int(found[1]) * 1024
    unit = 1 if platform.system() == "Darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
