"""Cells at work: one fit for all settings that do not change it, scores stored by content."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from nicegnn.config import NICEConfig
from nicegnn.errors import ConfigError
from nicegnn.explain.nice import NICE
from nicegnn_lab.bench.job import Job
from nicegnn_lab.bench.plan import make_cells
from nicegnn_lab.bench.rows import Block, Folder, mean_blocks, read_rows
from nicegnn_lab.bench.run import run_study
from nicegnn_lab.bench.study import Study, Variant
from nicegnn_lab.bench.task import MoleculeTask, Task
from tests.lab.bench.small_bench import PAPER, World, use_world

PLAIN = Variant("plain", explainer="nice-paper", settings=PAPER)


@dataclass(frozen=True)
class SmallStudy(Study):
    """Explains with some settings and measures the agreement."""

    name = "small"
    title = "A study for tests"
    datasets = ("benzene",)

    lines: tuple[Variant, ...] = (PLAIN,)
    extra: dict[str, Any] = field(default_factory=dict)

    def variants(self, task: Task, target: str) -> Iterator[Variant]:
        yield from (replace(line, extra=self.extra) for line in self.lines)

    def measure(self, job: Job) -> Iterator[Block]:
        if not job.cell.variant.explainer:
            yield Block("num_graphs", float(job.positions.numel()))
            return
        found = job.quality(job.scores(), removals=("em",), metrics=("roc_auc", "kept_area"))
        yield from mean_blocks(found)


@pytest.fixture(autouse=True)
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return use_world(monkeypatch)


def job_of(
    world: World, folder: Path, line: Variant = PLAIN, *, seed: int = 0, fit_graphs: int | None = 40
) -> Job:
    """The only cell of a study, at work on the CPU."""
    study = SmallStudy((line,))
    given: dict[str, Any] = {"targets_folder": world.targets, "device": "cpu"}
    (cell,) = make_cells(study, seeds=(seed,), fit_graphs=fit_graphs, **given)
    task = study.task("benzene", seed)
    return Job(cell, task, task.model("gin", world.targets), Folder(folder))


def count_fits(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    fits: list[int] = []
    plain = NICE.fit
    monkeypatch.setattr(NICE, "fit", lambda *a, **k: fits.append(1) or plain(*a, **k))
    return fits


def test_stored_fit_explains_like_a_plain_one(world: World, tmp_path: Path) -> None:
    job = job_of(world, tmp_path, seed=3, fit_graphs=None)
    assert isinstance(job.task, MoleculeTask)
    plain = NICE(job.model, NICEConfig.paper().with_(**PAPER))
    plain.fit(job.task.dataset.train, seed=3, progress=False)
    batch = job.task.part("test").batch(job.positions)
    expected = plain.explain(batch, target=batch.y, seed=3)
    assert plain.fit_report is not None
    for _ in range(2):  # fitted, then read
        job = job_of(world, tmp_path, seed=3, fit_graphs=None)
        found = job.explainer.explain(batch, target=batch.y, seed=3)
        assert torch.equal(found.bond_loss, expected.bond_loss)
        assert torch.equal(job.scores().ranking, expected.ranking)
        assert job.fit_facts["fit_status"] == plain.fit_report.status
        assert job.fit_facts["fit_seconds"] > 0
    assert not list(tmp_path.rglob("*.part"))


def test_only_what_changes_a_fit_is_fitted_anew(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fits = count_fits(monkeypatch)
    assert job_of(world, tmp_path).explainer.is_fitted
    assert len(fits) == 1
    for changes, is_another_fit in (
        ({}, False),
        ({"attribution__num_nodes": 3}, False),
        ({"chunk_edges": 100_000}, False),
        ({"boundary__beta": 0.2}, True),
        ({"boundary__penalty": 0.5}, True),
    ):
        fits.clear()
        line = replace(PLAIN, settings=PAPER | changes)
        assert job_of(world, tmp_path, line).explainer.is_fitted
        assert len(fits) == is_another_fit, changes
    fits.clear()
    for name in ("nice-paper-converged", "nice-propagated"):
        assert job_of(world, tmp_path, replace(PLAIN, explainer=name)).explainer.is_fitted
    assert len(fits) == 1  # the sum along the path is no part of the fit; the noise is
    fits.clear()
    assert job_of(world, tmp_path, seed=1).explainer.is_fitted
    assert job_of(world, tmp_path, fit_graphs=30).explainer.is_fitted
    assert len(fits) == 2  # another seed, other graphs


def test_the_default_is_told_what_training_graphs_say(world: World, tmp_path: Path) -> None:
    job = job_of(world, tmp_path, Variant(explainer="nice"))
    assert job.explainer.background is not None  # type: ignore[attr-defined]
    assert job.fit_facts == {"fit_seconds": 0.0}
    student = job_of(world, tmp_path, Variant(explainer="nice-student"))
    assert bool(student.scores().ranking.isfinite().all())
    assert student.fit_facts["fit_seconds"] > 0


def test_a_study_without_an_explainer_explains_nothing(world: World, tmp_path: Path) -> None:
    lines = (Variant("graphs", level=2.0), Variant("graphs", level=3.0))
    given: dict[str, Any] = {"device": "cpu", "targets_folder": world.targets}
    given["out"] = tmp_path / "small"
    report = run_study(SmallStudy(lines), max_graphs=5, **given)
    assert report.num_measured == 2
    rows = read_rows(tmp_path / "small")
    assert rows["value"].tolist() == [5.0, 5.0]
    assert rows["level"].tolist() == [2.0, 3.0]
    job = job_of(world, tmp_path)
    job.cell = replace(job.cell, variant=lines[0])
    with pytest.raises(ConfigError, match=r"`explainer` of variant .* must be a name"):
        _ = job.explainer
