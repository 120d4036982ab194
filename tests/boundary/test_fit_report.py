"""Judging gates without ground truth: each status on a model whose risks are known by hand."""

from __future__ import annotations

import math

import pytest
import torch
from nicegnn.boundary.fit_report import (
    FIT_ADVICE,
    FitReport,
    Judgement,
    judge_order,
    shuffle_within_graphs,
)
from torch import Tensor

from nicegnn.config import BoundaryConfig
from nicegnn.graph.batch import to_batch
from nicegnn.graph.case import make_case
from nicegnn.intervention.mechanisms import ElementMask
from nicegnn.intervention.query import Query
from nicegnn.target.frozen_model import Target
from tests.boundary.small_models import LogOdds, path_graph

NUM = 20
RIGHT = torch.tensor([-math.log(3), math.log(3)], dtype=torch.float64).repeat(NUM)


def query_of_paths() -> Query:
    """Graphs with a bond of 3 and a bond of 5; the prediction needs both."""
    case = make_case(to_batch([path_graph(1.0, 2.0, 3.0) for _ in range(NUM)]))
    return Query(Target(LogOdds()), case, ElementMask(), degradation="margin")


def judged(logit: Tensor, corrupted: float = 8.0, **settings) -> Judgement:
    reference = torch.full((NUM,), corrupted, dtype=torch.float64)
    return judge_order(query_of_paths(), logit, reference, BoundaryConfig(beta=0.0, **settings), 0)


def test_risks_at_half_budget_by_hand():
    """Gates 1/4 and 3/4 lose 3 (3/4) + 5 (1/4) of 8; the other way round 3 (1/4) + 5 (3/4)."""
    found = judged(RIGHT)
    assert found.risk["learned"] == pytest.approx(3.5 / 8, abs=1e-5)
    assert found.risk["reversed"] == pytest.approx(4.5 / 8, abs=1e-5)
    assert 3.5 / 8 < found.risk["shuffled"] < 4.5 / 8
    assert found.num_graphs == NUM


@pytest.mark.parametrize(
    ("logit", "settings", "status"),
    [
        (RIGHT, {}, "ok"),
        (-RIGHT, {}, "inverted"),
        (torch.zeros_like(RIGHT), {}, "uninformative"),
        (RIGHT, {"corrupted": 0.01}, "insensitive"),
        (RIGHT + 6, {"objective": "penalty"}, "saturated-high"),
        (RIGHT - 6, {"objective": "penalty"}, "saturated-low"),
        (RIGHT + 6, {"objective": "budget"}, "ok"),  # only the order counts
    ],
)
def test_each_failure_is_recognised(logit: Tensor, settings: dict, status: str):
    found = judged(logit, **settings)
    assert found.status == status
    assert found.status in FIT_ADVICE


def test_the_worst_class_is_the_status_of_a_fit():
    ok, useless, deaf = (Judgement(s, 1, {}) for s in ("ok", "uninformative", "insensitive"))

    def report(*classes: Judgement) -> FitReport:
        return FitReport(dict(enumerate(classes)), [], num_graphs=1, num_left_out=0, seconds=0.0)

    assert report(ok, ok).status == "ok"
    assert report(ok, deaf).status == "ok"  # what cannot be learned is no failure
    assert report(deaf).status == "insensitive"
    assert report(ok, useless).status == "uninformative"
    assert report(ok, useless).advice.startswith("The learned order is no better than a shuffled")


def test_values_are_shuffled_inside_their_graph_only():
    case = make_case(to_batch([path_graph(*range(5)), path_graph(*range(9)), path_graph(1, 2)]))
    value = torch.arange(13.0)
    found = shuffle_within_graphs(value, case, 3)
    for graph in range(3):
        mine = case.bonds.batch == graph
        assert sorted(found[mine].tolist()) == value[mine].tolist()
    assert not torch.equal(found, value)
    assert torch.equal(found, shuffle_within_graphs(value, case, 3))
    assert not torch.equal(found, shuffle_within_graphs(value, case, 4))
