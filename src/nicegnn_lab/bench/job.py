"""A cell while it runs: its explainer, fitted once; its explanations; its metrics."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Batch

import nicegnn
from nicegnn.errors import ConfigError
from nicegnn.explain.explainer import Explainer
from nicegnn.explain.explanation import Explanation, concatenate
from nicegnn_lab.bench.measure import MetricConfig, measure_molecules
from nicegnn_lab.bench.rows import Block, Folder
from nicegnn_lab.bench.study import Cell, make_explainer
from nicegnn_lab.bench.task import MoleculeTask, Task
from nicegnn_lab.datasets.dataset import MoleculeDataset
from nicegnn_lab.rivals import find_entry


@dataclass
class Job:
    """A cell while it runs; `Study.measure` reads everything from it."""

    cell: Cell
    task: Task  # graphs with their truth
    model: nn.Module  # the trained target
    folder: Folder  # files of the study
    facts: dict[str, Any] = field(default_factory=dict)  # about the last explanations and their fit
    fit_facts: dict[str, Any] = field(default_factory=lambda: {"fit_seconds": 0.0})

    @property
    def seed(self) -> int:
        return self.cell.seed

    @property
    def part(self) -> str:
        return str(self.cell.about_scores.get("part", "test"))

    @property
    def max_graphs(self) -> int | None:
        return self.cell.about_scores.get("max_graphs")

    @property
    def molecules(self) -> MoleculeTask:
        """The task, which must be one of the benchmark."""
        if not isinstance(self.task, MoleculeTask):
            raise ConfigError(
                "`dataset` must be one of `nicegnn lab data ls` for this study (got "
                f"{self.task.name!r})."
            )
        return self.task

    @property
    def graphs(self) -> MoleculeDataset:
        return self.molecules.part(self.part)

    @cached_property
    def positions(self) -> Tensor:
        """Positions of the explained graphs within the part, ``[B]``."""
        return self.task.explained(self.model, self.part, self.max_graphs)

    def batch(self, positions: Tensor | None = None) -> Batch:
        """Returns the explained molecules, or those at other positions, on the target's device."""
        device = next(self.model.parameters()).device
        return self.graphs.batch(self.positions if positions is None else positions).to(device)

    @cached_property
    def explainer(self) -> Explainer:
        """The variant's explainer, fitted."""
        is_exchange = self.cell.variant.mechanism == "exchange"
        background = self.molecules.background(self.model) if is_exchange else None
        explainer = make_explainer(self.cell.variant, self.model, self.seed, background)
        if not find_entry(self.cell.variant.explainer)[0].learns:
            return explainer
        started = time.perf_counter()
        graphs = self.molecules.training(self.cell.about_scores.get("fit_graphs"))
        explainer.fit(graphs, seed=self.seed, progress=False)
        _wait_for(explainer.target.device)
        report: Any = getattr(explainer, "fit_report", None)
        history = getattr(explainer if report is None else report, "history", None)
        self.fit_facts = {
            "fit_seconds": time.perf_counter() - started,
            "fit_graphs": len(graphs),
            "fit_steps": len(history or []),
            "fit_status": getattr(report, "status", ""),
        }
        return explainer

    def scores(self, seed: int | None = None) -> Explanation:
        """Returns the explanations of all positions by the seed, on the CPU; sets `facts`."""
        explainer, seed = self.explainer, self.seed if seed is None else seed
        started = time.perf_counter()
        found = list(self.molecules.explain(explainer, self.positions, self.part, seed))
        _wait_for(explainer.target.device)
        out = concatenate([part.to("cpu") for part in found])
        self.facts = {
            **self.fit_facts,
            "explain_seconds": time.perf_counter() - started,
            "device": explainer.target.device.type,
            "torch": torch.__version__,
            "nicegnn": nicegnn.__version__,
        }
        return out

    @property
    def fit_seconds(self) -> float:
        return float(self.fit_facts["fit_seconds"])  # 0 without a fit

    @property
    def explain_seconds_per_graph(self) -> float:
        return float(self.facts["explain_seconds"]) / max(self.positions.numel(), 1)

    def quality(
        self,
        out: Explanation,
        *,
        removals: Sequence[str] = (),
        metrics: Collection[str] | None = None,
    ) -> Iterator[Block]:
        """Yields agreement with the truth and, under each removal, fidelity of each graph."""
        for block in measure_molecules(self, out, MetricConfig(tuple(removals), num_draws=16)):
            if metrics is None or block.metric in metrics:
                yield block

    def at_seed(self, seed: int) -> Job:
        """Returns the same job with another seed."""
        cell, scores = self.cell, {**self.cell.about_scores, "seed": seed}
        other = replace(cell, seed=seed, identity={**cell.identity, "scores": scores})
        return Job(other, self.task, self.model, self.folder)


def _wait_for(device: torch.device) -> None:
    """Waits until the device has finished, so that measured seconds are complete."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
