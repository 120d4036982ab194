r"""Protocols: which graphs, which units and which truth an agreement with the truth is about.

``paper`` follows the paper's tables: directed edges, label-1 graphs with a truth, and of several
alternatives the one that the selection covers best. The paper does not say the last; of the
readings we tried it comes nearest to the paper's Random row (see `random_row`).
``paper-best`` takes the best value over the alternatives for each metric by itself. ``strict`` is
ours: bonds counted once, the union of the alternatives, correctly classified graphs only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from nicegnn.graph.case import Bonds
from nicegnn.graph.minibatches import gather_items
from nicegnn.metrics.errors import MetricError
from nicegnn.metrics.ground_truth import ground_truth_scores, roc_auc
from nicegnn.metrics.ranking import check_scores, graph_keys, random_ties
from nicegnn.metrics.truth import Truth

TRUTH_METRICS = ("f1", "recall", "precision", "roc_auc", "average_precision")


@dataclass(frozen=True)
class Protocol:
    """How scores are compared with the truth.

    Attributes:
        unit: what is ranked and counted, directed edges or bonds.
        alternatives: ``matched``: all metrics of a graph are about the alternative with the best
            recall, the last of equals; ``best``: each metric is the best over the alternatives;
            ``union``: all alternatives together are the truth.
        only_correct: whether wrongly classified graphs are left out.
    """

    name: str
    unit: Literal["edge", "bond"]
    alternatives: Literal["matched", "best", "union"]
    only_correct: bool


#: All protocols by name.
PROTOCOLS: dict[str, Protocol] = {
    protocol.name: protocol
    for protocol in (
        Protocol("paper", "edge", "matched", only_correct=False),
        Protocol("paper-best", "edge", "best", only_correct=False),
        Protocol("strict", "bond", "union", only_correct=True),
    )
}


def get_protocol(protocol: str | Protocol) -> Protocol:
    """Returns a protocol by name, or says which there are."""
    if isinstance(protocol, Protocol):
        return protocol
    if protocol not in PROTOCOLS:
        raise MetricError(f"`protocol` must be one of {tuple(PROTOCOLS)} (got {protocol!r}).")
    return PROTOCOLS[protocol]


def truth_metrics(
    score: Tensor,
    bonds: Bonds,
    truth: Truth,
    *,
    protocol: str | Protocol = "paper",
    top: float = 0.3,
    seed: int = 0,
) -> dict[str, Tensor]:
    r"""Returns each metric of `TRUTH_METRICS` for each graph, ``[B]``; nan where undefined.

    For a graph with alternatives :math:`T_1, \dots, T_A` and selection :math:`S`:

    .. math:: v_{matched} = v(T_{a^*}), \; a^* = \arg\max_a \frac{|S \cap T_a|}{|T_a|}, \qquad
        v_{best} = \max_a v(T_a), \qquad v_{union} = v(\textstyle\bigcup_a T_a)

    Symbols: :math:`v` -> a metric of `ground_truth_scores`; :math:`T_a` -> entries of ``truth``;
    :math:`S` -> the best share ``top`` of the graph's edges or bonds.

    Graphs without truth are nan in every metric. Equal scores are selected at random by `seed`,
    the same whatever batch a graph is in.

    Args:
        score: one per bond ``[M]`` or one per directed edge ``[E]``. A bond's score holds for both
            of its edges; the mean of its edges' scores is the bond's.
    """
    protocol = get_protocol(protocol)
    score, batch, num = _items(score, bonds, truth, protocol)
    key = graph_keys(bonds, num)
    tie = random_ties(batch, num, seed, key)
    if protocol.alternatives == "union":
        is_true = _to_unit(truth.edge_truth, bonds, protocol)
        found = ground_truth_scores(score, is_true, batch, num, top=top, tie=tie)
        has_truth = truth.num_true > 0
        return {
            name: torch.where(has_truth, getattr(found, name), torch.nan) for name in TRUTH_METRICS
        }
    rows = _rows_of_alternatives(bonds, truth, protocol)
    found = ground_truth_scores(
        score[rows.item], rows.is_true, rows.alternative, rows.num, top=top, tie=tie[rows.item]
    )
    if protocol.alternatives == "best":
        return {name: _best(getattr(found, name), truth) for name in TRUTH_METRICS}
    chosen = _last_best(found.recall, truth)  # [B], A where a graph has no alternative
    missing = found.recall.new_full((1,), torch.nan)
    return {name: torch.cat([getattr(found, name), missing])[chosen] for name in TRUTH_METRICS}


def selected_graphs(
    y: Tensor, predicted: Tensor | None, truth: Truth, protocol: str | Protocol = "paper"
) -> Tensor:
    """Returns which graphs a protocol averages over, bool ``[B]``.

    All take graphs of label 1 with a non-empty truth; ``strict`` only those predicted as such.

    Args:
        y: labels, ``[B]``.
        predicted: predicted classes, ``[B]``; only needed where the protocol asks for them.
    """
    protocol = get_protocol(protocol)
    selected = (y.view(-1) == 1) & (truth.num_true > 0)
    if not protocol.only_correct:
        return selected
    if predicted is None:
        raise MetricError(
            f"`predicted` must hold the predicted classes: protocol {protocol.name!r} takes only "
            "correctly classified graphs."
        )
    return selected & (predicted.view(-1) == y.view(-1))


def count_undefined(
    values: Mapping[str, Tensor], truth: Truth, selected: Tensor | None = None
) -> dict[str, dict[str, int]]:
    """Returns for each metric how many graphs have no value, by reason.

    Args:
        values: what `truth_metrics` returned.
        selected: graphs that count, bool ``[B]``, by default all.

    Reasons are ``no edges``, ``no truth`` and ``all true`` (nothing false to rank below).
    """
    counted = torch.ones_like(truth.num_true, dtype=torch.bool) if selected is None else selected
    reasons = {
        "no edges": truth.num_edges == 0,
        "no truth": (truth.num_edges > 0) & (truth.num_true == 0),
        "all true": (truth.num_edges > 0) & (truth.num_true == truth.num_edges),
    }
    return {
        name: {
            reason: int((torch.isnan(value) & holds & counted).sum())
            for reason, holds in reasons.items()
        }
        for name, value in values.items()
    }


def pooled_roc_auc(
    score: Tensor,
    bonds: Bonds,
    truth: Truth,
    *,
    protocol: str | Protocol = "strict",
    selected: Tensor | None = None,
) -> Tensor:
    """Returns one ROC AUC over the edges or bonds of all graphs together, a scalar.

    The truth is the union of alternatives. Unlike the mean over graphs, it also asks that scores
    of different graphs are on one scale.

    Args:
        score: as in `truth_metrics`.
        selected: graphs that count, bool ``[B]``, by default all.
    """
    protocol = get_protocol(protocol)
    score, batch, _ = _items(score, bonds, truth, protocol)
    is_true = _to_unit(truth.edge_truth, bonds, protocol)
    counted = torch.ones_like(is_true) if selected is None else selected[batch]
    together = torch.zeros_like(batch)[counted]
    return roc_auc(score[counted], is_true[counted], together, 1)[0]


@dataclass(frozen=True)
class _Rows:
    """All items of an alternative's graph, once for each alternative, ``[R]`` each."""

    item: Tensor  # edge or bond
    alternative: Tensor
    is_true: Tensor  # whether the item is in the alternative
    num: int  # alternatives


def _rows_of_alternatives(bonds: Bonds, truth: Truth, protocol: Protocol) -> _Rows:
    batch = truth.edge_batch if protocol.unit == "edge" else bonds.batch
    by_graph = batch.argsort(stable=True)
    number = torch.bincount(batch, minlength=truth.num_graphs)
    pointer = torch.cat([number.new_zeros(1), number.cumsum(0)])
    position, start = gather_items(pointer, truth.alternative_batch)
    num = truth.alternative_batch.numel()
    alternative = torch.arange(num, device=batch.device).repeat_interleave(start.diff())
    inside = torch.empty_like(by_graph)  # position of each item within its graph
    inside[by_graph] = torch.arange(batch.numel(), device=batch.device) - pointer[batch[by_graph]]
    true_item = truth.entry_edge if protocol.unit == "edge" else bonds.edge_bond[truth.entry_edge]
    is_true = torch.zeros_like(alternative, dtype=torch.bool)
    is_true[start[truth.entry_alternative] + inside[true_item]] = True
    return _Rows(by_graph[position], alternative, is_true, num)


def _items(
    score: Tensor, bonds: Bonds, truth: Truth, protocol: Protocol
) -> tuple[Tensor, Tensor, int]:
    """Returns score and graph of each edge or bond, whichever is the protocol's unit."""
    num_bonds, num_edges = bonds.batch.numel(), bonds.edge_bond.numel()
    if num_edges != truth.edge_batch.numel():
        raise MetricError(
            f"`truth` must be that of the same batch as `bonds`, {num_edges} directed edges "
            f"(got {truth.edge_batch.numel()})."
        )
    check_scores(score, "score", num_bonds, num_edges)
    is_per_bond = score.numel() == num_bonds
    if protocol.unit == "edge":
        return score[bonds.edge_bond] if is_per_bond else score, truth.edge_batch, truth.num_graphs
    return score if is_per_bond else bonds.mean(score), bonds.batch, truth.num_graphs


def _to_unit(edge_truth: Tensor, bonds: Bonds, protocol: Protocol) -> Tensor:
    return edge_truth if protocol.unit == "edge" else bonds.sum(edge_truth.long()) > 0


def _best(value: Tensor, truth: Truth) -> Tensor:
    """Returns the largest value over the alternatives of each graph, nan if none has one."""
    lowest = value.new_full((truth.num_graphs,), -torch.inf)
    known = torch.where(torch.isnan(value), -torch.inf, value)
    best = lowest.scatter_reduce(0, truth.alternative_batch, known, "amax")
    return torch.where(best == -torch.inf, torch.nan, best)


def _last_best(recall: Tensor, truth: Truth) -> Tensor:
    """Returns the alternative of each graph with the best recall, the last of equals, ``[B]``."""
    is_best = recall == _best(recall, truth)[truth.alternative_batch]
    number = torch.arange(recall.numel(), device=recall.device)
    chosen = number.new_full((truth.num_graphs,), -1)
    chosen = chosen.scatter_reduce(0, truth.alternative_batch[is_best], number[is_best], "amax")
    return torch.where(chosen < 0, recall.numel(), chosen)
