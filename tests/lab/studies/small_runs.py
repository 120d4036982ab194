"""What tests of studies share: the small benchmark, quick settings of NICE, and a quick run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from nicegnn_lab.bench.job import Job
from nicegnn_lab.bench.plan import make_cells
from nicegnn_lab.bench.rows import WORDS, Folder, read_rows
from nicegnn_lab.bench.run import RunReport, run_study
from nicegnn_lab.bench.study import Study
from tests.lab.bench.small_bench import PAPER, make_world, use_world

__all__ = ["PAPER", "make_world", "rows_of_run", "run", "small_job", "use_world"]


def run(study: Study, out: Path, **changes: Any) -> RunReport:
    """Runs a study on the small benchmark and checks that no cell failed."""
    given = {"device": "cpu", "max_graphs": 5, "fit_graphs": 40} | changes
    given |= {"targets_folder": make_world().targets}
    datasets = given.pop("datasets", ["benzene"])
    report = run_study(study, datasets, ["gin"], out=out / study.name, **given)
    assert not report.failed, report.errors
    return report


def rows_of_run(out: Path, name: str) -> pd.DataFrame:
    """Returns the rows of a study with plain words."""
    return read_rows(out / name).astype(dict.fromkeys(WORDS, "str"))


def small_job(study: Study, out: Path, number: int = 0, **changes: Any) -> Job:
    """Returns one cell of a study at work on the small benchmark; its folders must be in use."""
    given = {"device": "cpu", "max_graphs": 5} | changes
    cells = make_cells(study, ["benzene"], ["gin"], targets_folder=make_world().targets, **given)
    task = study.task("benzene", 0)
    model = task.model("gin", make_world().targets)
    return Job(cells[number], task, model, Folder(out / study.name))
