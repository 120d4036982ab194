"""Runs a benchmark: only what is missing, one cell at a time or many, failures recorded."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from nicegnn.bench.cell import Cell, code_hash
from nicegnn.bench.config import BenchConfig
from nicegnn.bench.engine import Engine, LocalEngine
from nicegnn.bench.folder import BenchFolder
from nicegnn.bench.plan import make_cells
from nicegnn.bench.rows import describe, read_table
from nicegnn.bench.work import Outcome, Work
from nicegnn.errors import StoreError
from nicegnn.progress import progress_bar

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class BenchReport:
    """What a call of `run_bench` did.

    Attributes:
        cells: all cells that were asked for.
        found: those that were finished before.
        outcomes: those that ran now.
        skipped: those that failed before and were not to be tried again.
        num_other_code: finished cells that other code of nicegnn explained.
    """

    cells: tuple[Cell, ...]
    found: tuple[Cell, ...]
    outcomes: tuple[Outcome, ...]
    skipped: tuple[Cell, ...]
    num_other_code: int = 0

    @property
    def failed(self) -> tuple[Cell, ...]:
        """Cells without rows."""
        return (*(o.cell for o in self.outcomes if not o.ok), *self.skipped)

    @property
    def num_explained(self) -> int:
        """Cells that were explained now."""
        return sum(outcome.is_explained for outcome in self.outcomes)

    @property
    def num_measured(self) -> int:
        """Cells whose rows were computed now."""
        return sum(outcome.ok for outcome in self.outcomes)

    def __str__(self) -> str:
        reused = self.num_measured - self.num_explained
        text = (
            f"{len(self.cells)} cells: {self.num_explained} explained, {reused} measured anew from "
            f"stored scores, {len(self.found)} already finished, {len(self.failed)} failed."
        )
        if len(self.found) == len(self.cells):
            text = f"Nothing to compute: all {len(self.cells)} cells are finished."
        if self.num_other_code:
            text += (
                f" Of the finished ones, {self.num_other_code} were explained by other code of "
                "nicegnn than the present; delete their files, or use another folder, to run them "
                "anew."
            )
        return text


def run_bench(
    config: BenchConfig,
    *,
    engine: Engine | None = None,
    retry_failed: bool = True,
    progress: bool = False,
    say: Callable[[str], None] | None = None,
) -> BenchReport:
    """Runs the cells that have no rows yet; read them with `read_rows`.

    An interrupted call is taken up by the next one: finished cells are kept, stored scores are
    measured, a fit goes on from its checkpoint.

    Args:
        engine: where cells run, by default in this process.
        retry_failed: run cells again that failed before.
        progress: show a progress bar with the time left on stderr.
        say: gets one line per finished cell.
    """
    folder, cells = BenchFolder(config.out), make_cells(config)
    folder.record_run(config, cells)
    code = {cell.key: _code_of_rows(folder, cell, config) for cell in cells}
    found = [cell for cell in cells if code[cell.key] is not None]
    done = {cell.key for cell in found}
    missing = [cell for cell in cells if cell.key not in done]
    skipped = [c for c in missing if not retry_failed and folder.failed(c.key).is_file()]
    left = {cell.key for cell in skipped}
    todo = [cell for cell in missing if cell.key not in left]
    outcomes: list[Outcome] = []
    if todo:
        with progress_bar("Benchmark", len(todo), shown=progress) as advance:
            for outcome in (engine or LocalEngine()).run(todo, Work(config)):
                outcomes.append(outcome)
                for note in outcome.notes:
                    log.warning("%s", note)
                if say is not None:
                    say(_line(outcome, len(outcomes), len(todo)))
                advance(len(outcomes), str(outcome.cell))
    other = sum(code[cell.key] != code_hash() for cell in found)
    return BenchReport(tuple(cells), tuple(found), tuple(outcomes), tuple(skipped), other)


def _code_of_rows(folder: BenchFolder, cell: Cell, config: BenchConfig) -> str | None:
    """Returns the hash of the code that explained a finished cell, or none if it is not."""
    path = folder.rows(cell.row_key(config.metrics))
    if not path.exists():
        return None
    try:
        return str(describe(read_table(path)).get("code", ""))
    except StoreError as error:
        log.warning("%s Computed anew.", error)
        return None


def _line(outcome: Outcome, number: int, total: int) -> str:
    head = f"[{number}/{total}] {outcome.cell}: "
    if not outcome.ok:
        return f"{head}FAILED, {outcome.text}"
    how = "" if outcome.is_explained else " (stored scores)"
    return f"{head}{outcome.text}{how}, {outcome.seconds:.1f} s in all"
