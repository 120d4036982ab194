"""Runs the missing cells of a study, here or on a Ray cluster, and records failures."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

from nicegnn.cluster import connected, require_ray, run_tasks
from nicegnn.config import check_choice
from nicegnn.errors import ConfigError, StoreError
from nicegnn.plugins import load_plugins, loaded_files
from nicegnn.progress import progress_bar
from nicegnn.target.frozen_model import fingerprint
from nicegnn.target.zoo import device_of
from nicegnn_lab.bench.job import Job
from nicegnn_lab.bench.plan import TARGETS_FOLDER, make_cells
from nicegnn_lab.bench.row_tables import ROWS_KIND, arrow, describe, read_table
from nicegnn_lab.bench.rows import Folder, packed_cells, write_rows
from nicegnn_lab.bench.source_hash import code_hash
from nicegnn_lab.bench.study import Cell, Study
from nicegnn_lab.bench.task import Task
from nicegnn_lab.datasets import cache_folder, data_folder
from nicegnn_lab.rivals import find_entry

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


@dataclass(frozen=True)
class RunReport:
    """The cells of a run and their outcomes."""

    cells: tuple[Cell, ...]  # all cells of the run
    found: tuple[Cell, ...]  # finished before
    outcomes: tuple[Outcome, ...]  # of cells that ran now
    skipped: tuple[Cell, ...]  # failed before and not tried again
    num_other_code: int = 0  # found cells that another version of the code computed

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
            f"{len(self.cells)} cells: {self.num_explained} explained, {reused} measured again "
            f"from stored scores, {len(self.found)} already finished, {len(self.failed)} failed."
        )
        if len(self.found) == len(self.cells):
            text = f"Nothing to compute: all {len(self.cells)} cells are finished."
        if self.num_other_code:
            text += (
                f" {self.num_other_code} of the finished cells were computed with another version "
                "of the code and are kept. To compute them again, use another folder."
            )
        return text


@dataclass(frozen=True)
class Work:
    """Runs cells; can be sent to another process."""

    study: Study
    root: Path  # folder of the study's files
    targets_folder: Path  # of trained targets
    device: str | None = None  # "cpu" or "cuda"; none: "cuda" where there is a GPU
    plugins: tuple[Path, ...] = field(default_factory=loaded_files)  # files that add names

    def __call__(self, cell: Cell) -> Outcome:
        """Writes the rows of a cell; an error is recorded and not raised."""
        started = time.perf_counter()
        try:
            load_plugins(*self.plugins)
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
        key = (type(self.study), cell.dataset, about["data"])
        task = _task_of(_TaskMaker(key, self.study, cell.seed))
        model = task.model(cell.target, self.targets_folder, device_of(self.device))
        if fingerprint(model) != about["model"]:
            raise StoreError(
                f"The target {cell.target} of {cell.dataset} in {self.targets_folder} differs from "
                "the one at the start of the run. Let all workers read the same folder."
            )
        folder = Folder(self.root)
        job = Job(cell, task, model, folder)
        blocks = list(self.study.measure(job))
        facts = {k: v for k, v in job.facts.items() if k != "fit_history"}  # long, and not shown
        code = facts.get("code", code_hash(type(self.study).__module__))
        write_rows(folder.rows(cell.key), cell, blocks, facts=facts, code=code)
        folder.failed(cell.key).unlink(missing_ok=True)
        seconds, notes = time.perf_counter() - started, tuple(dict.fromkeys(job.notes))
        return Outcome(cell, True, job.num_explained > 0, seconds, _told(job), notes)


class Engine(Protocol):
    """Runs cells and yields their outcomes in the order in which they end."""

    def run(self, cells: Sequence[Cell], work: Work) -> Iterator[Outcome]: ...


@dataclass(frozen=True)
class LocalEngine:
    """Runs one cell after the other in this process."""

    def run(self, cells: Sequence[Cell], work: Work) -> Iterator[Outcome]:
        for cell in cells:
            yield work(cell)


@dataclass(frozen=True)
class RayEngine:
    """Runs every cell as a Ray task; workers write into the shared folder themselves."""

    address: str | None = None  # of a running cluster, "auto" for this machine's; none: start one
    workers: int | None = None  # cells at a time; none: one per CPU of the cluster
    gpus: float | None = None  # share of a GPU that one cell takes; none: all of it on "cuda"

    def run(self, cells: Sequence[Cell], work: Work) -> Iterator[Outcome]:
        folders = {"NICEGNN_DATA": data_folder(), "NICEGNN_CACHE": cache_folder()}
        seen = {name: str(folder.absolute()) for name, folder in folders.items()}
        with connected(self.address, self.workers, seen) as ray:
            yield from self._tasks(ray, cells, work)

    def _tasks(self, ray: Any, cells: Sequence[Cell], work: Work) -> Iterator[Outcome]:
        gpus = self.gpus if self.gpus is not None else float(work.device == "cuda")
        needs: dict[str, Any] = {"num_cpus": 1, "num_gpus": gpus, "max_retries": 1}
        tasks = run_tasks(ray, Work.__call__, work, cells, at_a_time=self.workers, **needs)
        for cell, found in tasks:
            is_lost = isinstance(found, ray.exceptions.RayError)
            yield work.failed(cell, found) if is_lost else found


def make_engine(
    name: str = "local",
    *,
    address: str | None = None,
    workers: int | None = None,
    gpus: float | None = None,
) -> Engine:
    """Returns an engine by name, ``local`` or ``ray``; only Ray takes the other arguments."""
    check_choice("engine", name, ("local", "ray"))
    if name == "ray":
        require_ray()  # an error if Ray is missing
        return RayEngine(address, workers, gpus)
    if address is not None or gpus is not None or (workers or 1) > 1:
        raise ConfigError(
            "`engine` must be 'ray' for address, workers and gpus (got 'local' with "
            f"{address!r}, {workers!r}, {gpus!r}). Use --engine ray."
        )
    return LocalEngine()


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

    After an interruption, the next run continues: it keeps finished cells, also packed ones, reads
    stored scores, and continues a fit from its checkpoint.

    Args:
        datasets, targets: by default those of the study.
        out: folder of all studies; the files of this one are in a folder of its name.
        device: ``cpu`` or ``cuda``; by default ``cuda`` where there is a GPU.
        max_graphs: most graphs to explain, the same in every cell; by default the study's limit.
        fit_graphs: most training graphs of a fit, the same in every cell; by default all.
        engine: where cells run, by default in this process.
        say: gets one line per finished cell.
    """
    root, trained = (Path(folder).expanduser().absolute() for folder in (out, targets_folder))
    work = Work(study, root / study.name, trained, device)
    given: dict[str, Any] = {"targets_folder": trained, "device": device}
    given |= {"max_graphs": max_graphs, "fit_graphs": fit_graphs}
    cells = make_cells(study, datasets, targets, seeds, **given)
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
    """Runs the cells that have no rows yet; see `run_study`."""
    arrow()  # rows cannot be written without it, which an hour of work should not find out
    folder = Folder(work.root)
    packed = {cell.key: cell.description for cell in packed_cells(folder.packed).values()}
    folder.record_run(cells)
    code = {cell.key: _code_of_rows(folder, cell, packed) for cell in cells}
    found = [cell for cell in cells if code[cell.key] is not None]
    missing = [cell for cell in cells if code[cell.key] is None]
    skipped = [c for c in missing if not retry_failed and folder.failed(c.key).is_file()]
    todo = [cell for cell in missing if cell not in skipped]
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
    other = sum(code[cell.key] not in ("", _code_of(work.study, cell)) for cell in found)
    return RunReport(tuple(cells), tuple(found), tuple(outcomes), tuple(skipped), other)


@dataclass(frozen=True)
class _TaskMaker:
    """Makes the task of a cell; makers with equal keys are equal."""

    key: tuple[type[Study], str, str]  # of the study, its dataset, the hash of the data
    study: Study = field(compare=False)
    seed: int = field(compare=False)


@lru_cache(maxsize=1)  # cells come dataset by dataset
def _task_of(maker: _TaskMaker) -> Task:
    _, name, data = maker.key
    task = maker.study.task(name, maker.seed)
    if task.identity["data"] != data:
        raise StoreError(
            f"The data of {name} differ from those at the start of the run. Let all workers read "
            "the same files."
        )
    return task


def _code_of_rows(
    folder: Folder, cell: Cell, packed: Mapping[str, Mapping[str, Any]]
) -> str | None:
    """Returns the hash of the code that computed a cell: "" if unknown, none without rows."""
    path = folder.rows(cell.key)
    if path.exists():
        try:
            read_table(path)  # a cell counts only if all its rows can be read
            return str(describe(path, ROWS_KIND).get("code", ""))
        except StoreError as error:
            log.warning("%s It is computed again.", error)
            return None
    return str(packed[cell.key].get("code", "")) if cell.key in packed else None


def _code_of(study: Study, cell: Cell) -> str:
    what = find_entry(cell.explainer)[0].load() if cell.explainer else type(study)
    return code_hash(what.__module__)


def _told(job: Job) -> str:
    if "explain_seconds" not in job.facts:
        return "measured"
    num, fit = job.positions.numel(), job.facts.get("fit_seconds")
    seconds = math.nan if fit is None else fit
    each = 1000 * job.facts["explain_seconds"] / max(num, 1)
    return f"{num} graphs, fit {seconds:.1f} s, {each:.2f} ms per graph"


def _line(outcome: Outcome, number: int, total: int) -> str:
    head = f"[{number}/{total}] {outcome.cell}: "
    if not outcome.ok:
        return f"{head}FAILED, {outcome.text}"
    how = "" if outcome.is_explained else " (stored scores)"
    return f"{head}{outcome.text}{how}, {outcome.seconds:.1f} s in all"
