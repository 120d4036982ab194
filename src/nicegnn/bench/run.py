"""Runs a study: only what is missing, one cell at a time or many, failures recorded."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from nicegnn.bench.cell import Cell
from nicegnn.bench.engine import Engine, LocalEngine
from nicegnn.bench.job import Job
from nicegnn.bench.plan import TARGETS_FOLDER, make_cells
from nicegnn.bench.row_tables import ROWS_KIND, describe, read_table
from nicegnn.bench.rows import Folder, packed_cells, write_rows
from nicegnn.bench.source_hash import code_hash
from nicegnn.bench.study import Study, Variant
from nicegnn.bench.task import Task
from nicegnn.errors import StoreError
from nicegnn.progress import progress_bar
from nicegnn.rivals.registry import find_entry
from nicegnn.target.frozen_model import fingerprint
from nicegnn.target.zoo import device_of

STUDIES_FOLDER = Path("results/studies")

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Outcome:
    """What became of a cell.

    Attributes:
        ok: whether its rows are written.
        is_explained: whether graphs were explained now, or stored scores were used.
        seconds: of all work.
        text: numbers in a few words, or the error.
        notes: what else happened, such as a damaged file.
    """

    cell: Cell
    ok: bool
    is_explained: bool
    seconds: float
    text: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class RunReport:
    """What a run did.

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
        reused = sum(outcome.ok and not outcome.is_explained for outcome in self.outcomes)
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


@dataclass(frozen=True)
class Work:
    """Does what is missing for a cell; can be sent to another process.

    Attributes:
        root: folder of the study's files.
        targets_folder: of trained targets.
        device: ``cpu`` or ``cuda``; none for what is there.
    """

    study: Study
    root: Path
    targets_folder: Path
    device: str | None = None

    def __call__(self, cell: Cell) -> Outcome:
        """Writes the rows of a cell; an error is recorded and returned, not raised."""
        started = time.perf_counter()
        try:
            return self._run(cell, started)
        except Exception as error:
            return self.failed(cell, error, time.perf_counter() - started)

    def failed(self, cell: Cell, error: BaseException, seconds: float = 0.0) -> Outcome:
        """Records a failure."""
        Folder(self.root).record_failure(cell, error)
        first_line = (str(error).splitlines() or [""])[0]
        return Outcome(cell, False, False, seconds, f"{type(error).__name__}: {first_line}")

    def _run(self, cell: Cell, started: float) -> Outcome:
        about = cell.identity["scores"]
        maker = _TaskMaker(self.study, type(self.study), cell.dataset, about["data"], cell.seed)
        task = _task_of(maker)
        model = task.model(cell.target, self.targets_folder, device_of(self.device))
        if fingerprint(model) != about["model"]:
            raise StoreError(
                f"The target {cell.target} of {cell.dataset} in {self.targets_folder} is not the "
                "one that the run was planned with. Let all workers see one folder."
            )
        folder = Folder(self.root)
        job = Job(cell, task, model, folder)
        blocks = list(self.study.measure(job))
        facts = {k: v for k, v in job.facts.items() if k != "fit_history"}  # long, and not shown
        code = facts.get("code", code_hash(type(self.study).__module__))
        write_rows(folder.rows(cell.key), cell, blocks, facts=facts, code=code)
        folder.failed(cell.key).unlink(missing_ok=True)
        seconds = time.perf_counter() - started
        return Outcome(
            cell, True, job.num_explained > 0, seconds, _told(job), tuple(dict.fromkeys(job.notes))
        )


def run_study(
    study: Study,
    datasets: Sequence[str] | None = None,
    targets: Sequence[str] | None = None,
    seeds: Sequence[int] = (0,),
    out: str | Path = STUDIES_FOLDER,
    device: str | None = None,
    max_graphs: int | None = None,
    fit_graphs: int | None = None,
    engine: Engine | None = None,
    progress: bool = False,
    say: Callable[[str], None] | None = None,
    *,
    targets_folder: str | Path = TARGETS_FOLDER,
    retry_failed: bool = True,
) -> RunReport:
    """Runs the cells of a study that have no rows yet; read them with `read_rows`.

    An interrupted run is taken up by the next one: finished cells are kept, also those of a packed
    file, stored scores are measured, and a fit goes on from its checkpoint.

    Args:
        datasets: by default those of the study.
        targets: by default those of the study.
        out: folder of all studies; this one's files are in the folder of its name.
        device: ``cpu`` or ``cuda``; none for what is there.
        max_graphs: most graphs to explain, drawn once for all; by default the study's own limit.
        fit_graphs: most training graphs to fit on, drawn once for all; none for all.
        engine: where cells run, by default in this process.
        progress: show a progress bar with the time left on stderr.
        say: gets one line per finished cell.
        retry_failed: run cells again that failed before.
    """
    work = Work(
        study,
        Path(out).expanduser().absolute() / study.name,  # workers may stand in another folder
        Path(targets_folder).expanduser().absolute(),
        device,
    )
    cells = make_cells(
        study,
        datasets,
        targets,
        seeds,
        targets_folder=work.targets_folder,
        device=device,
        max_graphs=max_graphs,
        fit_graphs=fit_graphs,
    )
    return run_cells(work, cells, engine, retry_failed=retry_failed, progress=progress, say=say)


def run_cells(
    work: Work,
    cells: Sequence[Cell],
    engine: Engine | None = None,
    *,
    retry_failed: bool = True,
    progress: bool = False,
    say: Callable[[str], None] | None = None,
) -> RunReport:
    """Runs those of the cells that have no rows yet; see `run_study`."""
    folder = Folder(work.root)
    packed = {cell.key: cell.description for cell in packed_cells(folder.packed).values()}
    folder.record_run(cells)
    code = {cell.key: _code_of_rows(folder, cell, packed) for cell in cells}
    found = [cell for cell in cells if code[cell.key] is not None]
    missing = [cell for cell in cells if code[cell.key] is None]
    skipped = [c for c in missing if not retry_failed and folder.failed(c.key).is_file()]
    left = {cell.key for cell in skipped}
    todo = [cell for cell in missing if cell.key not in left]
    outcomes: list[Outcome] = []
    if todo:
        with progress_bar(work.study.name, len(todo), shown=progress) as advance:
            for outcome in (engine or LocalEngine()).run(todo, work):
                outcomes.append(outcome)
                for note in outcome.notes:
                    log.warning("%s", note)
                if say is not None:
                    say(_line(outcome, len(outcomes), len(todo)))
                advance(len(outcomes), str(outcome.cell))
    other = sum(code[cell.key] != _code_of(work.study, cell.variant) for cell in found)
    return RunReport(tuple(cells), tuple(found), tuple(outcomes), tuple(skipped), other)


@dataclass(frozen=True)
class _TaskMaker:
    """Makes the task of a cell; makers of equal data are equal."""

    study: Study = field(compare=False)
    kind: type[Study]
    name: str
    data: str
    seed: int = field(compare=False)


@lru_cache(maxsize=1)  # cells come dataset by dataset
def _task_of(maker: _TaskMaker) -> Task:
    task = maker.study.task(maker.name, maker.seed)
    if task.identity["data"] != maker.data:
        raise StoreError(
            f"The data of {maker.name} here are not those that the run was planned with. Let all "
            "workers read the same files."
        )
    return task


def _code_of_rows(
    folder: Folder, cell: Cell, packed: Mapping[str, Mapping[str, Any]]
) -> str | None:
    """Returns the hash of the code that explained a finished cell, or none if it is not."""
    path = folder.rows(cell.key)
    if path.exists():
        try:
            read_table(path, ROWS_KIND)
            return str(describe(path, ROWS_KIND).get("code", ""))
        except StoreError as error:
            log.warning("%s It is computed anew.", error)
            return None
    return str(packed[cell.key].get("code", "")) if cell.key in packed else None


def _code_of(study: Study, variant: Variant) -> str:
    if not variant.explainer:
        return code_hash(type(study).__module__)
    return code_hash(find_entry(variant.explainer)[0].load().__module__)


def _told(job: Job) -> str:
    if "explain_seconds" not in job.facts:
        return "measured"
    num = job.positions.numel()
    fit = job.facts.get("fit_seconds")
    seconds = math.nan if fit is None else fit
    each = 1000 * job.facts["explain_seconds"] / max(num, 1)
    return f"{num} graphs, fit {seconds:.1f} s, {each:.2f} ms per graph"


def _line(outcome: Outcome, number: int, total: int) -> str:
    head = f"[{number}/{total}] {outcome.cell}: "
    if not outcome.ok:
        return f"{head}FAILED, {outcome.text}"
    how = "" if outcome.is_explained else " (stored scores)"
    return f"{head}{outcome.text}{how}, {outcome.seconds:.1f} s in all"
