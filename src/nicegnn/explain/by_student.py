"""Explanations by a student: of all graphs, or of those that it is certain about."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Batch

from nicegnn.explain.call import Work
from nicegnn.explain.explanation import (
    PER_BOND,
    PER_GRAPH,
    Explanation,
    Unit,
    scores_only,
    share_of_odds,
)
from nicegnn.explain.status import Flag, Status, flags_of
from nicegnn.explain.trust import Trust
from nicegnn.graph.case import merge_equal
from nicegnn.graph.minibatches import GraphStack
from nicegnn.intervention.query import Query
from nicegnn.student.calibration import graph_error
from nicegnn.student.network import StudentNetwork, view_bonds
from nicegnn.student.teaching import Lesson


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
    score = share_of_odds(loss) if unit == "odds" else loss
    whole = graph_error(error[reached], view.graph[reached], case.num_graphs)
    flags = int(Flag.STUDENT) + int(Flag.UNCERTAIN) * (whole > net.limit)  # [B]
    empty = torch.bincount(case.edge_batch, minlength=case.num_graphs) == 0
    flags = torch.where(empty, flags | int(Flag.NO_EDGES), flags)
    return replace(
        scores_only(case, score, query.explained, query.clean),
        bond_loss=torch.where(reached, loss, 0.0),
        bond_stderr=torch.where(reached, stderr, 0.0),
        status=Status("none", flags_of(flags)),
        unit=unit,
    )


def uncertain_graphs(predicted: Explanation) -> Tensor:
    """Returns the graphs that a student sends to its teacher, ``[K]``."""
    is_so = [Flag.UNCERTAIN in flag for flag in predicted.status.flags]
    return torch.tensor(is_so, device=predicted.target.device).nonzero().view(-1)


def work_on(work: Work, query: Query, chosen: Tensor) -> Work:
    """Returns the work on some graphs of a batch, ``[K]``, for the classes of its query."""
    batch, slot = work.batch, work.slot
    if hasattr(batch, "_slice_dict"):
        part = Batch.from_data_list(batch.index_select(chosen.cpu()))
    else:
        part = GraphStack(batch, batch.edge_index.device).take(chosen)
    if slot is not None:
        slot = slot[torch.isin(query.case.edge_batch, chosen)]
    return replace(work, batch=part, explained=query.explained[chosen], slot=slot)


def replace_graphs(predicted: Explanation, teacher: Explanation, chosen: Tensor) -> Explanation:
    """Returns an explanation whose chosen graphs, ``[K]``, are explained by the teacher."""
    is_chosen = torch.zeros_like(predicted.target, dtype=torch.bool)
    is_chosen[chosen] = True
    bonds = is_chosen[predicted.bonds.batch].nonzero().view(-1)
    bonds = bonds[predicted.bonds.batch[bonds].argsort(stable=True)]  # graph by graph
    order = teacher.bonds.batch.argsort(stable=True)
    values: dict[str, Any] = {name: getattr(predicted, name).clone() for name in PER_BOND}
    for name in PER_BOND:
        values[name][bonds] = getattr(teacher, name)[order]
    for name in PER_GRAPH:
        values[name] = getattr(predicted, name).clone()
        values[name][chosen] = getattr(teacher, name)
    flags = list(predicted.status.flags)
    for graph, flag in zip(chosen.tolist(), teacher.status.flags, strict=True):
        flags[graph] = flag
    if teacher.trust is not None:
        columns = {}
        for one in fields(Trust):
            columns[one.name] = torch.full_like(predicted.prediction[:, 0], torch.nan)
            columns[one.name][chosen] = getattr(teacher.trust, one.name).to(columns[one.name])
        values["trust"] = Trust(**columns)
    status = Status(teacher.status.boundary, tuple(flags), teacher.status.notes)
    return replace(predicted, status=status, **values)
