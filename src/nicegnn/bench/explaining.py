"""Explains the graphs of a cell: fit, where the method learns, then batch after batch."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn

import nicegnn
from nicegnn.bench.cell import Cell, code_hash
from nicegnn.bench.scores import Scores, scores_of
from nicegnn.bench.selection import explained_positions, fit_set
from nicegnn.datasets import MoleculeDataset
from nicegnn.errors import StoreError
from nicegnn.explain.explainer import Explainer
from nicegnn.rivals.registry import get_explainer

HISTORY_TAIL = 20

log = logging.getLogger(__name__)


def explain_cell(
    cell: Cell, dataset: MoleculeDataset, model: nn.Module, checkpoint: Path
) -> Scores:
    """Returns the scores of a cell, for each graph's label or for the class the model predicts.

    Args:
        checkpoint: of the fit; an interrupted one goes on from there.
    """
    part: MoleculeDataset = getattr(dataset, cell.identity["part"])
    positions = explained_positions(part, cell.identity["max_graphs"])
    explainer, facts = _fitted(cell, dataset, model, checkpoint)
    size = cell.identity["settings"]["batch_size"]
    parts, started = [], time.perf_counter()
    for first in range(0, positions.numel(), size):
        batch = part.batch(positions[first : first + size])
        target = batch.y if cell.identity["explained"] == "label" else None
        parts.append(explainer.explain(batch, target=target, seed=cell.seed))
    _wait(explainer.target.device)
    facts |= {
        "explain_seconds": time.perf_counter() - started,
        "device": explainer.target.device.type,
        "torch": torch.__version__,
        "nicegnn": nicegnn.__version__,
        "code": code_hash(),
    }
    return scores_of(parts, positions, facts)


def _fitted(
    cell: Cell, dataset: MoleculeDataset, model: nn.Module, checkpoint: Path
) -> tuple[Explainer, dict[str, Any]]:
    """Returns the explainer, fitted if it learns, and what is to be told about the fit."""
    explainer = make_explainer(cell, model)
    if not explainer.learns:
        return explainer, {"fit_seconds": 0.0}
    graphs = fit_set(dataset.train, cell.identity["fit_graphs"])
    is_resumed = checkpoint.is_file()
    checkpoint.parent.mkdir(parents=True, exist_ok=True)
    started = time.perf_counter()
    try:
        explainer.fit(graphs, seed=cell.seed, progress=False, checkpoint=checkpoint)
    except StoreError as error:
        if not is_resumed:
            raise
        log.warning("%s Fitting %s from the start.", error, cell)
        checkpoint.unlink(missing_ok=True)
        return _fitted(cell, dataset, model, checkpoint)
    _wait(explainer.target.device)
    # what an interrupted fit took before is not known, and a part of the time would mislead
    seconds = None if is_resumed else time.perf_counter() - started
    report: Any = getattr(explainer, "fit_report", None)
    history = getattr(explainer, "history", None) if report is None else report.history
    return explainer, {
        "fit_seconds": seconds,
        "fit_graphs": len(graphs),
        "fit_steps": len(history or []),
        "fit_history": list(history or [])[-HISTORY_TAIL:],
        "fit_status": getattr(report, "status", ""),
    }


def make_explainer(cell: Cell, model: nn.Module) -> Explainer:
    """Returns the explainer of a cell."""
    return get_explainer(
        cell.explainer, model, mechanism=cell.mechanism or None, **cell.settings, seed=cell.seed
    )


def _wait(device: torch.device) -> None:
    """Lets the device finish, so that clocks tell the truth."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
