"""A progress bar on the terminal, shown only on request."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_EVERY = 30.0  # seconds between lines where there is no terminal


@contextmanager
def progress_bar(title: str, total: int, *, shown: bool) -> Iterator[Callable[[float, str], None]]:
    """Yields ``advance(done, note)``: a bar on stderr, or lines where that is no terminal."""
    if not shown:
        yield lambda done, note: None
        return
    from rich import progress as rich
    from rich.console import Console

    console = Console(stderr=True)
    if console.is_terminal:
        left, right = rich.TextColumn("{task.description}"), rich.TextColumn("{task.fields[note]}")
        counts = rich.BarColumn(), rich.MofNCompleteColumn(), rich.TimeRemainingColumn()
        with rich.Progress(left, *counts, right, console=console) as bars:
            task = bars.add_task(title, total=total, note="")
            yield lambda done, note: bars.update(task, completed=done, note=note)
        return
    last = time.monotonic()

    def advance(done: float, note: str) -> None:
        nonlocal last
        if time.monotonic() - last >= _EVERY or done >= total:
            last = time.monotonic()
            print(f"{title}: {done:.0f} of {total} {note}", file=sys.stderr, flush=True)

    yield advance
