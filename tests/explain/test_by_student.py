"""Explanations by a student of NICE."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data

from nicegnn import NICE
from nicegnn.errors import ConfigError, NotFittedError
from nicegnn.explain import by_student as by_student_module
from nicegnn.explain.explanation import Explanation
from nicegnn.explain.status import Flag
from nicegnn.student.calibration import graph_error
from nicegnn.student.teaching import TeachConfig
from tests.conftest import take_snapshot
from tests.lab.rivals.planted_group import nitro_task

LESSON = TeachConfig(max_graphs=160, epochs=20, hidden_size=32)


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
    for student in (True, "auto"):
        whole = nice.explain(graphs, student=student)
        for part, graph in zip(whole.split(), graphs, strict=True):
            alone = nice.explain(graph, student=student)
            torch.testing.assert_close(part.bond_score, alone.bond_score, atol=1e-5, rtol=1e-4)
            assert part.status.flags == alone.status.flags


def test_auto_sends_the_uncertain_to_the_teacher(monkeypatch: pytest.MonkeyPatch) -> None:
    nice, graphs, errors = taught(), some_graphs(), []

    def noted(*given: Any) -> Tensor:
        errors.append(graph_error(*given))
        return errors[-1]

    monkeypatch.setattr(by_student_module, "graph_error", noted)
    alone, teacher = nice.explain(graphs, student=True), nice.explain(graphs)
    monkeypatch.setitem(nice.student._buffers, "limit", errors[0].quantile(0.8))
    is_sent = errors[0] > nice.student.limit
    assert 0 < int(is_sent.sum()) < len(graphs)
    found = nice.explain(graphs, student="auto")
    assert torch.equal(~by_student(found), is_sent)
    sent = is_sent[found.bonds.batch]
    torch.testing.assert_close(found.bond_score[sent], teacher.bond_score[sent])
    assert torch.equal(found.bond_score[~sent], alone.bond_score[~sent])
    assert torch.equal(found.trust.chance.isnan(), ~is_sent)
    torch.testing.assert_close(found.trust.largest[is_sent], teacher.trust.largest[is_sent])


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
        assert not by_student(nice.explain(graphs[0], student="auto", target=0)).any()
    finally:
        nice.student.taught[1] = True


def test_without_teaching_the_next_step_is_named() -> None:
    model, train, test = nitro_task()
    nice = NICE(model, background=train)
    with pytest.raises(NotFittedError, match="Call teach\\(graphs\\) first"):
        nice.explain(test[0], student=True)
    with pytest.raises(ConfigError, match="`student` must be False, True or 'auto'"):
        nice.explain(test[0], student="always")
