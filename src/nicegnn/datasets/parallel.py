"""Work over many rows in several processes, in order, for parsing that holds the GIL."""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import chain
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")

_CHUNK = 200  # rows handed to a process at a time
_MIN_ROWS = 2_000  # below this a second process does not pay


def ordered_map(
    function: Callable[[T], R], items: Sequence[T], workers: int | None = None
) -> Iterator[R]:
    """Returns ``map(function, items)``, computed ahead by several processes where that pays.

    Processes are forked, because a spawned one would import the caller's script again and load
    torch anew; they start before this function returns, and never touch torch. Where forking is
    not safe (other threads run, or another system than Linux), all work stays in this process.

    Args:
        workers: number of processes; by default one per core for at least 2,000 items, else one.
    """
    if workers is None:
        workers = min(available_cores(), 8) if len(items) >= _MIN_ROWS else 1
    if workers <= 1 or sys.platform != "linux" or threading.active_count() > 1:
        return map(function, items)
    chunks = [items[start : start + _CHUNK] for start in range(0, len(items), _CHUNK)]
    context = multiprocessing.get_context("fork")
    pool = ProcessPoolExecutor(workers, mp_context=context)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # idle threads of torch; see above
        results = pool.map(partial(_each, function), chunks)
    return _closing(pool, chain.from_iterable(results))


def available_cores() -> int:
    """Returns the number of cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _each(function: Callable[[T], R], chunk: Sequence[T]) -> list[R]:
    return [function(item) for item in chunk]


def _closing(pool: ProcessPoolExecutor, results: Iterator[R]) -> Iterator[R]:
    try:
        yield from results
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
