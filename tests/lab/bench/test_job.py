"""Cells at work: one fit for all settings that do not change it, scores stored by content."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from nicegnn.errors import ConfigError
from nicegnn.explain.nice import NICE
from nicegnn_lab.bench import (
    Block,
    Folder,
    Job,
    MoleculeTask,
    Study,
    Task,
    Variant,
    make_cells,
    mean_blocks,
    read_rows,
    run_study,
)
from nicegnn_lab.rivals.pgexplainer import PGExplainer
from tests.lab.bench.small_bench import NICE as QUICK
from tests.lab.bench.small_bench import World, use_world


@dataclass(frozen=True)
class SmallStudy(Study):
    """Explains with some settings and measures the agreement."""

    name = "small"
    title = "A study for tests"
    datasets = ("benzene",)

    lines: tuple[Variant, ...] = (Variant("plain", explainer="nice", settings=QUICK),)
    extra: dict[str, Any] = field(default_factory=dict)

    def variants(self, task: Task, target: str) -> Iterator[Variant]:
        yield from (replace(line, extra=self.extra) for line in self.lines)

    def measure(self, job: Job) -> Iterator[Block]:
        if not job.variant.explainer:
            yield Block("num_graphs", float(job.positions.numel()))
            return
        found = job.quality(job.scores(), removals=("em",), metrics=("roc_auc", "kept_area"))
        yield from mean_blocks(found)


@pytest.fixture(autouse=True)
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return use_world(monkeypatch)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of fits for several tests."""
    return tmp_path_factory.mktemp("small")


def job_of(world: World, folder: Path, seed: int = 0, fit_graphs: int | None = 40) -> Job:
    """The only cell of a study, at work on the CPU."""
    study = SmallStudy()
    (cell,) = make_cells(
        study, seeds=(seed,), targets_folder=world.targets, device="cpu", fit_graphs=fit_graphs
    )
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
    plain = NICE(job.model, NICE(job.model).config.with_(**QUICK))
    plain.fit(job.task.dataset.train, seed=3, progress=False)
    batch = job.task.part("test").batch(job.positions)
    expected = plain.explain(batch, target=batch.y, seed=3)
    for _ in range(2):  # fitted, then read
        job = job_of(world, tmp_path, seed=3, fit_graphs=None)
        explainer = job.explainer()
        found = explainer.explain(batch, target=batch.y, seed=3)
        assert torch.equal(found.bond_score, expected.bond_score)
        assert torch.equal(job.scores(explainer).bond_score, expected.bond_score)
        assert plain.fit_report is not None
        facts = job.fit_facts(explainer)
        assert facts["fit_status"] == plain.fit_report.status
        assert facts["fit_seconds"] > 0
        assert facts["fit_classes"] == {
            str(label): judged.status for label, judged in plain.fit_report.classes.items()
        }
    assert not list(tmp_path.rglob("*.part"))


def test_only_what_changes_a_fit_is_fitted_anew(
    world: World, shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_of(world, shared).explainer()
    fits = count_fits(monkeypatch)
    for changes, is_another_fit in (
        ({}, False),
        ({"score": "gate"}, False),
        ({"attribution__path": "joint", "attribution__num_nodes": 3}, False),
        ({"boundary__risk_target": 0.2}, False),
        ({"chunk_edges": 100_000}, False),
        ({"boundary__contrast": 0.5}, True),
        ({"boundary__beta": 0.2}, True),
        ({"mechanism": "em"}, True),
        ({"attribution__antithetic": False}, True),  # the noise of the fit is antithetic too
    ):
        fits.clear()
        explainer: Any = job_of(world, shared).explainer(**changes)
        wanted = NICE(explainer.target.model).config.with_(**{**QUICK, **changes}, seed=0)
        assert explainer.config == wanted
        assert len(fits) == is_another_fit, changes
    fits.clear()
    job_of(world, shared, seed=1).explainer()
    job_of(world, shared, fit_graphs=30).explainer()
    assert len(fits) == 2  # another seed, other graphs


def test_readings_with_equal_fit_settings_share_a_fit(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fits = count_fits(monkeypatch)
    job = job_of(world, tmp_path)
    for name in ("nice-paper", "nice-paper-converged", "nice-propagated"):
        variant = replace(job.cell.variant, explainer=name, mechanism="nc")
        about = {**job.cell.identity["scores"], "explainer": name, "mechanism": "nc"}
        cell = replace(job.cell, variant=variant, identity={**job.cell.identity, "scores": about})
        replace(job, cell=cell).explainer()
    assert len(fits) == 2  # the sum along the path is no part of the fit; the noise is


def test_a_fit_that_was_broken_off_goes_on(
    world: World, tmp_path: Path, shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected: Any = job_of(world, shared).explainer()
    with monkeypatch.context() as patch:
        patch.setattr(NICE, "save", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            job_of(world, tmp_path).explainer()
    job = job_of(world, tmp_path)
    found: Any = job.explainer()
    assert job.fit_facts(found)["fit_seconds"] is None  # of the first try nobody knows
    assert math.isnan(job.scores(found).fit_seconds)
    wanted = expected.gates.state_dict()
    for name, value in found.gates.state_dict().items():
        assert torch.equal(value, wanted[name])


def test_a_damaged_fit_is_named_and_done_again(world: World, tmp_path: Path) -> None:
    job_of(world, tmp_path).explainer()
    (path,) = tmp_path.glob("fits/*.safetensors")
    path.write_bytes(path.read_bytes()[:-20])
    job = job_of(world, tmp_path)
    assert job.explainer().is_fitted
    (note,) = job.notes
    assert path.name in note
    assert "fitted again" in note


def test_fits_of_rivals_are_stored_with_their_mechanism(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"steps": 3}
    lines = tuple(
        Variant(mechanism, explainer="pgexplainer", mechanism=mechanism, settings=settings)
        for mechanism in ("em", "nc")
    )
    given: dict[str, Any] = {"out": tmp_path, "device": "cpu", "targets_folder": world.targets}
    assert run_study(SmallStudy(lines), **given).failed == ()
    assert len(list(tmp_path.glob("small/fits/*.safetensors"))) == 2

    def no_fit(*_: Any, **__: Any) -> None:
        raise AssertionError("fitted again")

    monkeypatch.setattr(PGExplainer, "_fit_units", no_fit)
    other = tuple(replace(line, setting=f"{line.setting} again") for line in lines)
    assert run_study(SmallStudy(other), **given).failed == ()  # other cells, the same scores
    rows = read_rows(tmp_path / "small").astype({"setting": "str", "mechanism": "str"})
    is_auc = (rows["metric"] == "roc_auc") & (rows["protocol"] == "paper")
    by_name = rows[is_auc].set_index("setting")["value"]
    assert set(by_name.index) == {"em", "nc", "em again", "nc again"}
    assert by_name["em"] == by_name["em again"] != by_name["nc"] == by_name["nc again"]
    assert set(rows["mechanism"]) == {"em", "nc"}


def test_scores_with_another_seed_or_changed_settings_have_files_of_their_own(
    world: World, tmp_path: Path
) -> None:
    job = job_of(world, tmp_path)
    plain, noisy = job.scores(), job.scores(seed=7)
    gates = job.scores(job.explainer(score="gate"))
    assert not torch.equal(plain.bond_score, noisy.bond_score)
    assert not torch.equal(plain.bond_score, gates.bond_score)
    assert len(list(tmp_path.glob("scores/*"))) == 3
    assert job.num_explained == 3
    again = job_of(world, tmp_path)
    assert torch.equal(again.scores(seed=7).bond_score, noisy.bond_score)
    assert torch.equal(again.scores(again.explainer(score="gate")).bond_score, gates.bond_score)
    assert torch.equal(again.scores().bond_score, plain.bond_score)
    assert again.num_explained == 0
    foreign = NICE(job.model)  # not made by the job: its settings are not known
    assert again.scores(foreign).num_graphs == plain.num_graphs
    assert len(list(tmp_path.glob("scores/*"))) == 3


def test_another_model_than_the_target_has_scores_of_its_own(world: World, tmp_path: Path) -> None:
    job = job_of(world, tmp_path)
    plain = job.scores()
    other: Any = copy.deepcopy(job.model)
    with torch.no_grad():
        other.head.bias.add_(torch.tensor([1.0, -1.0]))
    found = job.scores(job.explainer(model=other))
    assert job.num_explained == 2
    assert not torch.equal(found.prediction, plain.prediction)
    assert torch.equal(job_of(world, tmp_path).scores().prediction, plain.prediction)
    assert not job.notes  # no fit of the one was taken for the other's


def test_a_study_without_an_explainer_explains_nothing(world: World, tmp_path: Path) -> None:
    lines = (Variant("graphs", level=2.0), Variant("graphs", level=3.0))
    report = run_study(
        SmallStudy(lines), out=tmp_path, device="cpu", targets_folder=world.targets, max_graphs=5
    )
    assert report.num_measured == 2
    assert report.num_explained == 0
    rows = read_rows(tmp_path / "small")
    assert rows["value"].tolist() == [5.0, 5.0]
    assert rows["level"].tolist() == [2.0, 3.0]
    assert set(rows["explainer"]) == {""}
    job = job_of(world, tmp_path)
    job.cell = replace(job.cell, variant=lines[0])
    with pytest.raises(ConfigError, match=r"`explainer` of variant .* must be a name"):
        job.explainer()


def test_quality_of_the_truth_is_perfect(world: World, shared: Path) -> None:
    job = job_of(world, shared)
    assert isinstance(job.task, MoleculeTask)
    batch = job.task.part("test").batch(job.positions)
    truth = batch.edge_truth[::2].float()  # bond b is edges 2b and 2b + 1
    scores = replace(job.scores(), bond_score=truth)
    names = ("roc_auc", "f1", "kept_area")
    blocks = list(mean_blocks(job.quality(scores, removals=("em",), metrics=names)))
    assert [(block.metric, block.protocol) for block in blocks] == [
        ("f1", "paper"),
        ("roc_auc", "paper"),
        ("f1", "strict"),
        ("roc_auc", "strict"),
        ("kept_area", "em"),
    ]
    assert next(b for b in blocks if b.protocol == "strict" and b.metric == "roc_auc").value == 1


def test_a_student_is_taught_on_the_stored_fit_of_its_teacher(
    world: World, shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = job_of(world, shared)
    before = job.fit_facts(job.explainer())["fit_seconds"]
    study = SmallStudy(lines=(Variant("s", explainer="nice-student", settings=QUICK),))
    where = {"targets_folder": world.targets, "device": "cpu", "fit_graphs": 40}
    (cell,) = make_cells(study, **where)
    fits = count_fits(monkeypatch)
    student = Job(cell, job.task, job.model, job.folder)
    found: Any = student.explainer()
    assert not fits
    facts = student.fit_facts(found)
    assert facts["taught"]["num_graphs"] == 40
    assert facts["fit_seconds"] == pytest.approx(before + facts["taught"]["seconds"])
    assert bool(student.scores(found).bond_score.isfinite().all())
