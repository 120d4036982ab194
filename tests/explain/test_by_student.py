"""Explanations by a student of NICE."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data

from nicegnn import NICE
from nicegnn.errors import ConfigError, NotFittedError
from nicegnn.explain.explanation import Explanation
from nicegnn.explain.trust import Flag
from nicegnn.student.teaching import TeachConfig
from tests.conftest import take_snapshot
from tests.lab.rivals.planted_group import nitro_task

LESSON = TeachConfig(max_graphs=160, epochs=20)


@cache
def taught() -> NICE:
    model, train, _ = nitro_task()
    nice = NICE(model, background=train)
    nice.teach(list(train), config=LESSON, progress=False)
    return nice


def some_graphs() -> list[Data]:
    return list(nitro_task()[2])


def by_student(found: Explanation) -> Tensor:
    return torch.tensor([Flag.STUDENT in flag for flag in found.status.flags])


def test_the_student_ranks_as_its_teacher_does() -> None:
    nice, graphs = taught(), some_graphs()
    before = take_snapshot(nice.target.model)
    student, teacher = nice.explain(graphs, student=True), nice.explain(graphs)
    assert take_snapshot(nice.target.model) == before
    assert bool(by_student(student).all())
    assert "predicted the scores" in str(student.status)
    shared = (student.top(0.3) & teacher.top(0.3)).sum() / teacher.top(0.3).sum()
    assert float(shared) > 0.7
    gap = (student.bond_loss - teacher.bond_loss).abs()
    assert 0.5 < float((gap <= student.bond_stderr).float().mean()) < 0.85


def test_a_batch_equals_a_loop() -> None:
    nice, graphs = taught(), some_graphs()[:4]
    whole = nice.explain(graphs, student=True)
    for part, graph in zip(whole.split(), graphs, strict=True):
        alone = nice.explain(graph, student=True)
        torch.testing.assert_close(part.bond_score, alone.bond_score, atol=1e-5, rtol=1e-4)
        assert part.status.flags == alone.status.flags


def test_saved_equals_loaded(tmp_path: Path) -> None:
    nice, graphs = taught(), some_graphs()
    nice.save(tmp_path / "nice")
    numbers = torch.get_rng_state()
    other = NICE.load(tmp_path / "nice", nice.target.model)
    assert torch.equal(torch.get_rng_state(), numbers)
    assert other.teach_report == nice.teach_report
    first, second = (one.explain(graphs, student=True) for one in (nice, other))
    assert torch.equal(first.bond_score, second.bond_score)
    assert torch.equal(first.bond_stderr, second.bond_stderr)


def test_a_class_that_was_not_taught_is_uncertain() -> None:
    nice, graphs = taught(), some_graphs()
    nice.student.taught[1] = False
    try:
        found = nice.explain(graphs[0], student=True, target=0)
        assert found.bond_stderr.isinf().all()
        assert Flag.UNCERTAIN in found.status.flags[0]
    finally:
        nice.student.taught[1] = True


def test_without_teaching_the_next_step_is_named() -> None:
    model, train, test = nitro_task()
    nice = NICE(model, background=train)
    with pytest.raises(NotFittedError, match="Call teach\\(graphs\\) first"):
        nice.explain(test[0], student=True)
    with pytest.raises(ConfigError, match="`student` must be one of \\(True, False\\)"):
        nice.explain(test[0], student="always")
