"""Runs the missing cells of a study one after the other, and records failures."""

import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nicegnn.store import write_json
from nicegnn.target.zoo import device_of
from nicegnn_lab.bench.job import Job
from nicegnn_lab.bench.plan import TARGETS_FOLDER, make_cells
from nicegnn_lab.bench.rows import Folder, finished_cells, write_rows
from nicegnn_lab.bench.study import Cell, Study


@dataclass(frozen=True)
class RunReport:
    """The cells of a run and what became of them."""

    cells: tuple[Cell, ...]  # all cells of the run
    finished: tuple[Cell, ...]  # before this run
    failed: tuple[Cell, ...]  # without rows

    @property
    def num_measured(self) -> int:
        """Cells whose rows were computed now."""
        return len(self.cells) - len(self.finished) - len(self.failed)

    def __str__(self) -> str:
        if len(self.finished) == len(self.cells):
            return f"Nothing to compute: all {len(self.cells)} cells are finished."
        told = [f"{self.num_measured} measured", f"{len(self.failed)} failed"]
        if self.finished:
            told.insert(1, f"{len(self.finished)} already finished")
        return f"{len(self.cells)} cells: {', '.join(told)}."


def run_study(
    study: Study,
    datasets: Sequence[str] | None = None,
    targets: Sequence[str] | None = None,
    seeds: Sequence[int] = (0,),
    *,
    out: str | Path,
    targets_folder: str | Path = TARGETS_FOLDER,
    device: str | None = None,
    say: Callable[[str], None] | None = None,
    **limits: Any,
) -> RunReport:
    """Runs the cells of a study that have no rows yet; read them with `read_rows`.

    After an interruption, the next run continues: it keeps finished cells, also packed ones.
    Datasets and targets are by default those of the study; ``limits`` are ``max_graphs`` and
    ``fit_graphs``. `say` gets one line per finished cell.
    """
    given: dict[str, Any] = {"targets_folder": targets_folder, "device": device}
    cells = make_cells(study, datasets, targets, seeds, **given, **limits)
    folder = Folder(Path(out))
    finished = {one.key for one in finished_cells(out).values()}
    todo = [cell for cell in cells if cell.key not in finished]
    failed, last = [], None  # a task is kept for the next cell, as cells come dataset by dataset
    for number, cell in enumerate(todo, start=1):
        started = time.perf_counter()
        try:
            key = cell.dataset, cell.about_scores["data"]
            if last is None or last[0] != key:
                last = key, study.task(cell.dataset, cell.seed)
            model = last[1].model(cell.target, Path(targets_folder), device_of(device))
            job = Job(cell, last[1], model, folder)
            blocks = list(study.measure(job))
            write_rows(folder.file("rows", cell.key), cell, blocks, facts=job.facts)
            folder.file("failed", cell.key).unlink(missing_ok=True)
            text = "measured"
            if job.facts:  # something was explained
                num, each = job.positions.numel(), 1000 * job.explain_seconds_per_graph
                text = f"{num} graphs, fit {job.fit_seconds:.1f} s, {each:.2f} ms per graph"
            text = f"{text}, {time.perf_counter() - started:.1f} s in all"
        except Exception as error:
            about = {
                "cell": cell.to_dict(),
                "error": type(error).__name__,
                "message": str(error),
                "traceback": "".join(traceback.format_exception(error)),
                "identity": dict(cell.identity),
            }
            write_json(folder.file("failed", cell.key), about)
            failed.append(cell)
            text = f"FAILED, {type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
        if say is not None:
            say(f"[{number}/{len(todo)}] {cell}: {text}")
    done = tuple(cell for cell in cells if cell.key in finished)
    return RunReport(tuple(cells), done, tuple(failed))
