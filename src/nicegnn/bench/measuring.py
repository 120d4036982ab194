"""From scores to rows: agreement with the truth, fidelity, and numbers about the whole cell."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from nicegnn.bench.config import MetricConfig
from nicegnn.bench.scores import Scores
from nicegnn.datasets import MoleculeDataset
from nicegnn.errors import StoreError
from nicegnn.graph.case import Bonds, find_bonds
from nicegnn.metrics import (
    Truth,
    fidelity_curve,
    get_protocol,
    pooled_roc_auc,
    selected_graphs,
    truth_metrics,
)
from nicegnn.target.frozen_model import Target

WHOLE_CELL = -1  # graph of numbers that belong to no single graph
_GRAPHS_PER_BATCH = 1024


@dataclass(frozen=True)
class Block:
    """One metric under one protocol, for many graphs.

    Attributes:
        protocol: name of a protocol, of a removal for fidelity, or empty.
        graph: position of each graph in its part, ``[n]``, or `WHOLE_CELL`.
        value: ``[n]``, nan where undefined.
    """

    protocol: str
    metric: str
    graph: Tensor
    value: Tensor


def measure(
    scores: Scores, part: MoleculeDataset, model: nn.Module, metrics: MetricConfig, seed: int
) -> list[Block]:
    """Returns all metrics of a cell.

    Args:
        part: of the dataset that was explained.
        seed: orders equal scores and draws the noise of fidelity; the same for all explainers, so
            that they are compared under the same chances.
    """
    batch = part.batch(scores.positions)
    bonds = find_bonds(batch.edge_index, batch.batch[batch.edge_index[0]])
    number = torch.bincount(bonds.batch, minlength=scores.num_graphs)
    if not torch.equal(number, scores.bond_ptr.diff()):
        raise StoreError(
            "The stored scores are not those of these graphs: numbers of bonds differ."
        )
    return [
        *_about_the_cell(scores),
        *_agreement(scores, part, bonds, metrics, seed),
        *_fidelity(scores, part, model, metrics, seed),
    ]


def _about_the_cell(scores: Scores) -> Iterator[Block]:
    for metric in ("fit_seconds", "explain_seconds_per_graph"):
        yield _number("", metric, getattr(scores, metric))


def _agreement(
    scores: Scores, part: MoleculeDataset, bonds: Bonds, metrics: MetricConfig, seed: int
) -> Iterator[Block]:
    if not metrics.protocols:
        return
    truth = Truth.from_dataset(part, scores.positions)
    label, predicted = part.y[scores.positions], scores.prediction.argmax(1)
    for name in metrics.protocols:
        protocol = get_protocol(name)
        chosen = selected_graphs(label, predicted, truth, protocol)
        values = truth_metrics(
            scores.bond_score, bonds, truth, protocol=protocol, top=metrics.top, seed=seed
        )
        for metric, value in values.items():
            yield Block(name, metric, scores.positions[chosen], value[chosen])
        pooled = pooled_roc_auc(scores.bond_score, bonds, truth, protocol=protocol, selected=chosen)
        yield _number(name, "pooled_roc_auc", float(pooled))


def _fidelity(
    scores: Scores, part: MoleculeDataset, model: nn.Module, metrics: MetricConfig, seed: int
) -> Iterator[Block]:
    """Yields fidelity; it is undefined (nan) where the explained class is not the predicted one."""
    target = Target(model)
    is_predicted = scores.explained == scores.prediction.argmax(1)  # [B]
    for begin in range(0, scores.num_graphs, _GRAPHS_PER_BATCH):
        some = slice(begin, min(begin + _GRAPHS_PER_BATCH, scores.num_graphs))
        batch = part.batch(scores.positions[some])
        bonds = find_bonds(batch.edge_index, batch.batch[batch.edge_index[0]])
        first, last = scores.bond_ptr[some.start], scores.bond_ptr[some.stop]
        for removal in metrics.removals:
            curve = fidelity_curve(
                target,
                batch,
                bonds,
                scores.bond_score[first:last],
                removal=removal,
                ratios=metrics.ratios,
                num_draws=metrics.num_draws,
                seed=seed,
                explained=scores.explained[some],
            )
            for metric, found in curve.metrics().items():
                rows = [found] if found.dim() == 1 else list(found)  # [B] each
                names = (
                    [metric]
                    if found.dim() == 1
                    else [f"{metric}@{ratio:g}" for ratio in metrics.ratios]
                )
                for name, row in zip(names, rows, strict=True):
                    value = torch.where(is_predicted[some], row.cpu(), torch.nan)
                    yield Block(removal, name, scores.positions[some], value)


def _number(protocol: str, metric: str, value: float) -> Block:
    return Block(protocol, metric, torch.tensor([WHOLE_CELL]), torch.tensor([value]))
