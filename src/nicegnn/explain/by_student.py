"""Explanations by a student, and what it learns from its teacher."""

from __future__ import annotations

from dataclasses import replace

import torch

from nicegnn.explain.explanation import Explanation, Unit, scores_of, scores_only
from nicegnn.explain.trust import Flag
from nicegnn.graph.case import merge_equal
from nicegnn.intervention.query import Query
from nicegnn.student.network import StudentNetwork, view_bonds
from nicegnn.student.teaching import Lesson, graph_error


def make_lesson(query: Query, teacher: Explanation) -> Lesson:
    """Returns what a student learns from the teacher's explanation: losses, or scores without."""
    wanted = teacher.bond_score if teacher.unit == "own" else teacher.bond_loss
    return Lesson(view_bonds(query), wanted, query.case.reached, query.clean.size(1) + 1)


@torch.no_grad()
def student_explanation(net: StudentNetwork, query: Query, unit: Unit) -> Explanation:
    """Returns the explanation by the student alone; ``unit`` is that of the teacher's scores.

    The error bar of a bond's loss is infinite for classes that were not taught.
    """
    case, view, reached = query.case, view_bonds(query), query.case.reached
    label = view.label.clamp(max=net.taught.numel() - 1)
    value, log_error = net(replace(view, label=label))
    is_known = net.taught[label] & (label == view.label)  # [B]
    error = torch.where(is_known, net.factor[label], torch.inf)[view.graph] * log_error.exp()
    loss, stderr = net.losses(value, error)
    if unit == "odds":
        loss = loss.clamp(min=0)
    size = query.clean.abs().amax(1)
    loss, stderr = (merge_equal(one, view.graph, size) for one in (loss, stderr))
    score = scores_of(loss, unit)
    whole = graph_error(error[reached], view.graph[reached], case.num_graphs)
    flags = int(Flag.STUDENT) + int(Flag.UNCERTAIN) * (whole > net.limit)  # [B]
    return replace(
        scores_only(case, score, query.explained, query.clean, flags=flags),
        bond_loss=torch.where(reached, loss, 0.0),
        bond_stderr=torch.where(reached, stderr, 0.0),
        unit=unit,
    )
