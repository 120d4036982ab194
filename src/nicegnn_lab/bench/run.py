"""Runs the missing cells of a study one after the other, and records failures."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nicegnn.errors import StoreError
from nicegnn.progress import progress_bar
from nicegnn.target.zoo import device_of
from nicegnn_lab.bench.job import Job
from nicegnn_lab.bench.plan import TARGETS_FOLDER, make_cells
from nicegnn_lab.bench.rows import Folder, arrow, finished_cells, read_tables, write_rows
from nicegnn_lab.bench.study import Cell, Study, name_of
from nicegnn_lab.bench.task import Task

STUDIES_FOLDER = Path("results/studies")

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Outcome:
    """The result of one cell of a run."""

    cell: Cell
    ok: bool  # whether its rows are written
    is_explained: bool  # whether graphs were explained now; else stored scores were used
    seconds: float  # of all work
    text: str  # number of graphs and seconds, or the error
    notes: tuple[str, ...] = ()  # warnings, such as about a damaged file

    def __str__(self) -> str:
        if not self.ok:
            return f"{self.cell}: FAILED, {self.text}"
        how = "" if self.is_explained else " (stored scores)"
        return f"{self.cell}: {self.text}{how}, {self.seconds:.1f} s in all"


@dataclass(frozen=True)
class RunReport:
    """The cells of a run and their outcomes."""

    cells: tuple[Cell, ...]  # all cells of the run
    finished: tuple[Cell, ...]  # before this run
    outcomes: tuple[Outcome, ...]  # of cells that ran now

    @property
    def failed(self) -> tuple[Cell, ...]:
        """Cells without rows."""
        return tuple(outcome.cell for outcome in self.outcomes if not outcome.ok)

    @property
    def num_explained(self) -> int:
        """Cells that were explained now."""
        return sum(outcome.is_explained for outcome in self.outcomes)

    @property
    def num_measured(self) -> int:
        """Cells whose rows were computed now."""
        return sum(outcome.ok for outcome in self.outcomes)

    def __str__(self) -> str:
        reused = sum(outcome.ok and not outcome.is_explained for outcome in self.outcomes)
        text = (
            f"{len(self.cells)} cells: {self.num_explained} explained, {reused} measured again "
            f"from stored scores, {len(self.finished)} already finished, {len(self.failed)} failed."
        )
        if len(self.finished) == len(self.cells):
            text = f"Nothing to compute: all {len(self.cells)} cells are finished."
        return text


def run_study(
    study: Study,
    datasets: Sequence[str] | None = None,
    targets: Sequence[str] | None = None,
    seeds: Sequence[int] = (0,),
    out: str | Path = STUDIES_FOLDER,
    device: str | None = None,
    max_graphs: int | None = None,
    fit_graphs: int | None = None,
    progress: bool = False,
    say: Callable[[str], None] | None = None,
    *,
    targets_folder: str | Path = TARGETS_FOLDER,
) -> RunReport:
    """Runs the cells of a study that have no rows yet; read them with `read_rows`.

    After an interruption, the next run continues: it keeps finished cells, also packed ones, and
    reads stored fits and scores.

    Args:
        datasets, targets: by default those of the study.
        out: folder of all studies; the files of this one are in a folder of its name.
        device: ``cpu`` or ``cuda``; by default ``cuda`` where there is a GPU.
        max_graphs: most graphs to explain, the same in every cell; by default the study's limit.
        fit_graphs: most training graphs of a fit, the same in every cell; by default all.
        say: gets one line per finished cell.
    """
    limits: dict[str, Any] = {"max_graphs": max_graphs, "fit_graphs": fit_graphs}
    given: dict[str, Any] = {"targets_folder": targets_folder, "device": device}
    cells = make_cells(study, datasets, targets, seeds, **given, **limits)
    return run_cells(study, cells, Path(out) / study.name, **given, progress=progress, say=say)


def run_cells(
    study: Study,
    cells: Sequence[Cell],
    out: str | Path,
    *,
    targets_folder: str | Path = TARGETS_FOLDER,
    device: str | None = None,
    progress: bool = False,
    say: Callable[[str], None] | None = None,
) -> RunReport:
    """Runs the cells that have no rows yet in the study's folder `out`; see `run_study`."""
    arrow()  # rows cannot be written without it, which an hour of work should not find out
    folder = Folder(Path(out))
    finished = _finished(folder, cells)
    todo = [cell for cell in cells if cell.key not in finished]
    runner = _Runner(study, folder, Path(targets_folder), device)
    outcomes: list[Outcome] = []
    with progress_bar(study.name, len(todo), shown=progress and bool(todo)) as advance:
        for cell in todo:
            outcome = runner.run(cell)
            outcomes.append(outcome)
            for note in outcome.notes:
                log.warning("%s", note)
            if say is not None:
                say(f"[{len(outcomes)}/{len(todo)}] {outcome}")
            advance(len(outcomes), str(cell))
    done = tuple(cell for cell in cells if cell.key in finished)
    return RunReport(tuple(cells), done, tuple(outcomes))


def _finished(folder: Folder, cells: Sequence[Cell]) -> set[str]:
    """Returns the keys of cells whose rows can be read."""
    keys, stored = set(), finished_cells(folder.root)
    for cell in cells:
        earlier = stored.get(name_of(cell.to_dict()))
        if earlier is None or earlier.key != cell.key:
            continue
        try:
            if earlier.path != folder.packed:
                dict(read_tables({earlier.name: earlier}, {}, is_strict=True))
            keys.add(cell.key)
        except StoreError as error:
            log.warning("%s It is computed again.", error)
    return keys


class _Runner:
    """Runs cells; the task of the last one is kept, as cells come dataset by dataset."""

    def __init__(self, study: Study, folder: Folder, targets: Path, device: str | None) -> None:
        self.study, self.folder, self.targets, self.device = study, folder, targets, device
        self.task: tuple[Any, Task] | None = None

    def run(self, cell: Cell) -> Outcome:
        """Writes the rows of a cell; an error is recorded and not raised."""
        started = time.perf_counter()
        try:
            task = self._task(cell)
            model = task.model(cell.target, self.targets, device_of(self.device))
            job = Job(cell, task, model, self.folder)
            blocks = list(self.study.measure(job))
            facts = {k: v for k, v in job.facts.items() if k != "fit_history"}  # long, not shown
            write_rows(self.folder.rows(cell.key), cell, blocks, facts=facts)
            self.folder.failed(cell.key).unlink(missing_ok=True)
        except Exception as error:
            self.folder.record_failure(cell, error)
            text = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
            return Outcome(cell, False, False, time.perf_counter() - started, text)
        seconds, notes = time.perf_counter() - started, tuple(dict.fromkeys(job.notes))
        return Outcome(cell, True, job.num_explained > 0, seconds, _work_text(job), notes)

    def _task(self, cell: Cell) -> Task:
        key = cell.dataset, cell.identity["scores"]["data"]
        if self.task is None or self.task[0] != key:
            self.task = key, self.study.task(cell.dataset, cell.seed)
        return self.task[1]


def _work_text(job: Job) -> str:
    if "explain_seconds" not in job.facts:
        return "measured"
    num, fit = job.positions.numel(), job.facts.get("fit_seconds")
    seconds = math.nan if fit is None else fit
    each = 1000 * job.facts["explain_seconds"] / max(num, 1)
    return f"{num} graphs, fit {seconds:.1f} s, {each:.2f} ms per graph"
