"""Runs the missing cells of a study one after the other, and records failures."""

from __future__ import annotations

import logging
import math
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from nicegnn.errors import StoreError
from nicegnn.progress import progress_bar
from nicegnn.store import write_json
from nicegnn.target.zoo import device_of
from nicegnn_lab.bench.job import Job
from nicegnn_lab.bench.plan import TARGETS_FOLDER, make_cells
from nicegnn_lab.bench.rows import Folder, finished_cells, read_tables, write_rows
from nicegnn_lab.bench.study import Cell, Study, name_of

MEASURED = "measured"  # of a cell without an explainer
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Outcome:
    """The result of one cell of a run."""

    cell: Cell
    ok: bool  # whether its rows are written
    is_explained: bool  # whether graphs were explained now; else stored scores were used
    seconds: float  # of all work
    text: str  # number of graphs and seconds, or the error

    def __str__(self) -> str:
        if not self.ok:
            return f"{self.cell}: FAILED, {self.text}"
        how = "" if self.is_explained or self.text == MEASURED else " (stored scores)"
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
        if len(self.finished) == len(self.cells):
            return f"Nothing to compute: all {len(self.cells)} cells are finished."
        alone = sum(outcome.text == MEASURED for outcome in self.outcomes)
        reused = self.num_measured - self.num_explained - alone
        parts = {
            "explained": self.num_explained,
            "measured": alone,
            "measured again from stored scores": reused,
            "already finished": len(self.finished),
        }
        told = [f"{number} {what}" for what, number in parts.items() if number]
        return f"{len(self.cells)} cells: {', '.join([*told, f'{len(self.failed)} failed'])}."


def run_study(
    study: Study,
    datasets: Sequence[str] | None = None,
    targets: Sequence[str] | None = None,
    seeds: Sequence[int] = (0,),
    *,
    out: str | Path,
    targets_folder: str | Path = TARGETS_FOLDER,
    device: str | None = None,
    max_graphs: int | None = None,
    fit_graphs: int | None = None,
    progress: bool = False,
    say: Callable[[str], None] | None = None,
) -> RunReport:
    """Runs the cells of a study that have no rows yet; read them with `read_rows`.

    After an interruption, the next run continues: it keeps finished cells, also packed ones, and
    reads stored fits and scores.

    Args:
        datasets, targets: by default those of the study.
        out: folder of the study's files.
        targets_folder: trained targets, see `nicegnn lab train-targets`.
        device: ``cpu`` or ``cuda``; by default ``cuda`` where there is a GPU.
        max_graphs: most graphs to explain, the same in every cell; by default the study's limit.
        fit_graphs: most training graphs of a fit, the same in every cell; by default all.
        say: gets one line per finished cell.
    """
    cells = make_cells(
        study,
        datasets,
        targets,
        seeds,
        targets_folder=targets_folder,
        device=device,
        max_graphs=max_graphs,
        fit_graphs=fit_graphs,
    )
    folder = Folder(Path(out))
    finished = _finished(folder, cells)
    todo = [cell for cell in cells if cell.key not in finished]
    outcomes: list[Outcome] = []
    last = None  # a task is kept for the next cell, as cells come dataset by dataset
    with progress_bar(study.name, len(todo), shown=progress and bool(todo)) as advance:
        for cell in todo:
            started = time.perf_counter()
            try:
                key = cell.dataset, cell.about_scores["data"]
                if last is None or last[0] != key:
                    last = key, study.task(cell.dataset, cell.seed)
                model = last[1].model(cell.target, Path(targets_folder), device_of(device))
                job = Job(cell, last[1], model, folder)
                text = _measure(study, job)
            except Exception as error:
                _record_failure(folder, cell, error)
                text = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
                outcome = Outcome(cell, False, False, time.perf_counter() - started, text)
            else:
                is_explained = job.num_explained > 0
                outcome = Outcome(cell, True, is_explained, time.perf_counter() - started, text)
                for note in dict.fromkeys(job.notes):
                    log.warning("%s", note)
            outcomes.append(outcome)
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


def _measure(study: Study, job: Job) -> str:
    """Writes the rows of a cell; returns what was done, in words."""
    blocks = list(study.measure(job))
    facts = {k: v for k, v in job.facts.items() if k != "fit_history"}  # long, not shown
    write_rows(job.folder.file("rows", job.cell.key), job.cell, blocks, facts=facts)
    job.folder.file("failed", job.cell.key).unlink(missing_ok=True)
    if "explain_seconds" not in facts:
        return MEASURED
    num, fit = job.positions.numel(), facts.get("fit_seconds")
    each = 1000 * facts["explain_seconds"] / max(num, 1)
    return f"{num} graphs, fit {math.nan if fit is None else fit:.1f} s, {each:.2f} ms per graph"


def _record_failure(folder: Folder, cell: Cell, error: Exception) -> None:
    """Writes why a cell failed."""
    about = {
        "cell": cell.to_dict(),
        "error": type(error).__name__,
        "message": str(error),
        "traceback": "".join(traceback.format_exception(error)),
        "identity": dict(cell.identity),
    }
    write_json(folder.file("failed", cell.key), about)
