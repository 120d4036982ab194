"""A progress bar on the terminal, shown only on request, and turns that share one of its steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

Advance = Callable[[float, str], None]  # what is done, and a note


@contextmanager
def progress_bar(title: str, total: int, *, shown: bool) -> Iterator[Advance]:
    """Yields ``advance(done, note)``, which moves a bar on stderr, or does nothing."""
    if not shown:
        yield lambda done, note: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
    from rich.progress import TimeRemainingColumn as Remaining

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        Remaining(),
        TextColumn("{task.fields[note]}"),
    )
    with Progress(*columns, console=Console(stderr=True)) as bars:
        task = bars.add_task(title, total=total, note="")
        yield lambda done, note: bars.update(task, completed=done, note=note)


class Turns:
    """Moves a bar by one step while several turns go through the same bonds.

    >>> turns = Turns(lambda done, note: print(done, note), 2)
    >>> turns(5, 10)
    0.25 5 of 10 answers, turn 1 of 2
    """

    def __init__(self, advance: Advance, number: int) -> None:
        self._advance, self._number, self._finished = advance, number, 0

    def __call__(self, done: int, total: int) -> None:
        turn = min(self._finished + 1, self._number)
        note = f"{done:,} of {total:,} answers, turn {turn} of {self._number}"
        self._advance(min(1.0, (turn - 1 + done / total) / self._number), note)
        self._finished += done >= total
