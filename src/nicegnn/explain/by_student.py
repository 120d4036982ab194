"""Explanations by a student: of all graphs, or of those that it is certain about."""

from __future__ import annotations

from dataclasses import fields, replace

import torch
from torch import Tensor
from torch_geometric.data import Batch

from nicegnn.explain.explanation import (
    PER_BOND,
    PER_GRAPH,
    Explanation,
    Flag,
    Status,
    Unit,
    flags_of,
    scores_only,
    share_of_odds,
)
from nicegnn.explain.trust import Trust
from nicegnn.graph.case import merge_equal
from nicegnn.graph.minibatches import GraphStack
from nicegnn.intervention.query import Query
from nicegnn.student.calibration import graph_error
from nicegnn.student.network import StudentNetwork, view_bonds
from nicegnn.student.teaching import Lesson


def make_lesson(query: Query, found: Explanation) -> Lesson:
    """Returns what a student learns from the teacher's explanation: losses, or scores without."""
    wanted = found.bond_score if found.unit == "own" else found.bond_loss
    return Lesson(view_bonds(query), wanted, query.case.reached, query.clean.size(1) + 1)


@torch.no_grad()
def student_explanation(net: StudentNetwork, query: Query, unit: Unit) -> Explanation:
    """Returns the explanation by the student alone; ``unit`` is that of the teacher's scores.

    The error bar of a bond's loss is infinite for classes that were not taught.
    """
    case, view = query.case, view_bonds(query)
    label = view.label.clamp(max=net.taught.numel() - 1)
    value, log_error = net(replace(view, label=label))
    is_known = net.taught[label] & (label == view.label)  # [B]
    error = torch.where(is_known, net.factor[label], torch.inf)[view.graph] * log_error.exp()
    loss, stderr = net.losses(value, error)
    if unit == "odds":
        loss = loss.clamp(min=0)
    loss = merge_equal(loss, view.graph, query.clean.abs().amax(1))
    score = share_of_odds(loss) if unit == "odds" else loss
    found = scores_only(case, score, query.explained, query.clean)
    reached = case.reached
    whole = graph_error(error[reached], view.graph[reached], case.num_graphs)
    flags = int(Flag.STUDENT) + int(Flag.UNCERTAIN) * (whole > net.limit)  # [B]
    empty = torch.bincount(case.edge_batch, minlength=case.num_graphs) == 0
    status = Status("none", flags_of(torch.where(empty, flags | int(Flag.NO_EDGES), flags)))
    loss, stderr = (torch.where(reached, part, 0.0) for part in (loss, stderr))
    return replace(found, bond_loss=loss, bond_stderr=stderr, status=status, unit=unit)


def uncertain_graphs(found: Explanation) -> Tensor:
    """Returns the graphs that a student sends to its teacher, ``[K]``."""
    is_so = [Flag.UNCERTAIN in flag for flag in found.status.flags]
    return torch.tensor(is_so, device=found.target.device).nonzero().view(-1)


def take_graphs(batch: Batch, chosen: Tensor) -> Batch:
    """Returns some graphs of a batch, ``[K]``, with all their attributes."""
    if hasattr(batch, "_slice_dict"):
        return Batch.from_data_list(batch.index_select(chosen.cpu()))
    return GraphStack(batch, batch.edge_index.device).take(chosen)


def replace_graphs(found: Explanation, own: Explanation, chosen: Tensor) -> Explanation:
    """Returns an explanation in which ``own`` replaces the chosen graphs, ``[K]``."""
    batch = found.bonds.batch
    is_chosen = torch.zeros_like(found.target, dtype=torch.bool)
    is_chosen[chosen] = True
    bonds = is_chosen[batch].nonzero().view(-1)
    bonds = bonds[batch[bonds].argsort(stable=True)]  # graph by graph
    order = own.bonds.batch.argsort(stable=True)
    values = {}
    for names, place, rank in (
        (PER_BOND, bonds, order),
        (PER_GRAPH, chosen, torch.arange(chosen.numel(), device=chosen.device)),
    ):
        for name in names:
            values[name] = getattr(found, name).clone()
            values[name][place] = getattr(own, name)[rank]
    flags = list(found.status.flags)
    for graph, flag in zip(chosen.tolist(), own.status.flags, strict=True):
        flags[graph] = flag
    trust = None
    if own.trust is not None:
        columns = {}
        for one in fields(Trust):
            columns[one.name] = torch.full_like(found.prediction[:, 0], torch.nan)
            columns[one.name][chosen] = getattr(own.trust, one.name).to(columns[one.name])
        trust = Trust(**columns)
    status = Status(own.status.boundary, tuple(flags), own.status.notes)
    return replace(found, status=status, trust=trust, **values)
