"""A progress bar on the terminal, shown only on request."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

_EVERY = 30.0  # seconds between lines where there is no terminal

Advance = Callable[[float, str], None]  # what is done, and a note


@contextmanager
def progress_bar(title: str, total: int, *, shown: bool) -> Iterator[Advance]:
    """Yields ``advance(done, note)``: a bar on stderr, or lines where that is no terminal."""
    if not shown:
        yield lambda done, note: None
        return
    from rich import progress as rich
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        yield _lines(title, total)
        return
    left, right = rich.TextColumn("{task.description}"), rich.TextColumn("{task.fields[note]}")
    counts = rich.BarColumn(), rich.MofNCompleteColumn(), rich.TimeRemainingColumn()
    with rich.Progress(left, *counts, right, console=console) as bars:
        task = bars.add_task(title, total=total, note="")
        yield lambda done, note: bars.update(task, completed=done, note=note)


def _lines(title: str, total: int) -> Advance:
    start, last, first = time.monotonic(), time.monotonic(), 0.0

    def advance(done: float, note: str) -> None:
        nonlocal last, first
        now = time.monotonic()
        first = first or done  # what an earlier run had done comes with the first call
        if now - last < _EVERY and done < total:
            return
        last, left = now, ""
        if done > first:
            seconds = (now - start) * (total - done) / (done - first)
            left = f", {timedelta(seconds=round(seconds))} left"
        print(f"{title}: {done:.0f} of {total} {note}{left}", file=sys.stderr, flush=True)

    return advance
