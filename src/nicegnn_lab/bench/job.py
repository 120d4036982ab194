"""A cell while it runs: its explainer, fitted once; its explanations; its metrics."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Batch

import nicegnn
from nicegnn.errors import ConfigError, NicegnnError, StoreError
from nicegnn.explain.explainer import Explainer
from nicegnn.explain.explanation import Explanation, concatenate
from nicegnn.store import write_json
from nicegnn_lab.bench.measure import MetricConfig, measure_molecules
from nicegnn_lab.bench.rows import Block, Folder
from nicegnn_lab.bench.study import (
    Cell,
    content_hash,
    flat,
    make_explainer,
    without_defaults,
)
from nicegnn_lab.bench.task import MoleculeTask, Task
from nicegnn_lab.datasets.dataset import MoleculeDataset
from nicegnn_lab.rivals import find_entry
from nicegnn_lab.rivals.fits import adopt, fit_settings

#: Names in the identity of explanations that do not change the fit.
_NOT_FITTED = (
    *("part", "max_graphs"),
    *("settings", "explainer", "defaults"),  # a fit is known by its class and its own settings
)


@dataclass
class Job:
    """A cell while it runs; `Study.measure` reads everything from it."""

    cell: Cell
    task: Task  # graphs with their truth
    model: nn.Module  # the trained target
    folder: Folder  # files of the study
    notes: list[str] = field(default_factory=list)  # warnings, such as about a damaged file
    facts: dict[str, Any] = field(default_factory=dict)  # about the last explanations and their fit
    fit_facts: dict[str, Any] = field(default_factory=lambda: {"fit_seconds": 0.0})

    @property
    def seed(self) -> int:
        return self.cell.seed

    @property
    def part(self) -> str:
        """Name of the part of the dataset that is explained."""
        return str(self.cell.about_scores.get("part", "test"))

    @property
    def max_graphs(self) -> int | None:
        """Most graphs to explain."""
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
        """The part of the dataset that is explained."""
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
        """The variant's explainer, fitted; equal fits are done once and kept in a file."""
        is_exchange = self.cell.variant.mechanism == "exchange"
        background = self.molecules.background(self.model) if is_exchange else None
        explainer = make_explainer(self.cell.variant, self.model, self.seed, background)
        if find_entry(self.cell.variant.explainer)[0].learns:
            self.fit_facts = self._fit(explainer)
        return explainer

    def scores(self, seed: int | None = None) -> Explanation:
        """Returns the explanations of all positions by the seed, on the CPU; sets `facts`."""
        explainer = self.explainer
        started = time.perf_counter()
        seed = self.seed if seed is None else seed
        found = list(self.molecules.explain(explainer, self.positions, self.part, seed))
        _wait_for(explainer.target.device)
        out = concatenate([part.to("cpu") for part in found])
        self.facts = {
            **self.fit_facts,
            "part": self.part,
            "explain_seconds": time.perf_counter() - started,
            "device": explainer.target.device.type,
            "torch": torch.__version__,
            "nicegnn": nicegnn.__version__,
            "notes": list(out.status.notes),
        }
        return out

    @property
    def fit_seconds(self) -> float:
        """Seconds of the fit, 0 without one."""
        return float(self.fit_facts["fit_seconds"])

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
        """Yields agreement with the truth and fidelity of each graph.

        Args:
            removals: how bonds are removed for fidelity; () for no fidelity.
            metrics: names to keep; none for all.
        """
        for block in measure_molecules(self, out, MetricConfig(tuple(removals), num_draws=16)):
            if metrics is None or block.metric in metrics:
                yield block

    def at_seed(self, seed: int) -> Job:
        """Returns the same job with another seed."""
        identity = self.cell.identity
        other = {**identity, "scores": {**identity["scores"], "seed": seed}}
        cell = replace(self.cell, seed=seed, identity=other)
        return Job(cell, self.task, self.model, self.folder)

    def _fit(self, explainer: Explainer) -> dict[str, Any]:
        """Fits an explainer or loads its stored fit; returns facts about the fit."""
        about = {k: v for k, v in self.cell.about_scores.items() if k not in _NOT_FITTED}
        plain = copy(explainer)
        plain.config = type(explainer.config)()
        mine, theirs = fit_settings(explainer), fit_settings(plain)
        about["fit"] = without_defaults(flat(mine, "."), flat(theirs, "."))
        about["class"] = f"{type(explainer).__module__}:{type(explainer).__qualname__}"
        path = self.folder.file("fits", content_hash(about))
        report = path.with_suffix(".json")
        if path.is_file() and report.is_file():
            try:
                stored: dict[str, Any] = json.loads(report.read_text(encoding="utf-8"))
                new: Any = explainer
                given = {} if hasattr(new.config, "mechanism") else {"mechanism": new.mechanism}
                adopt(new, type(new).load(path, new.target.model, **given))
                return stored
            except (NicegnnError, OSError, ValueError) as error:
                self.notes.append(f"{error} {self.cell} is fitted again.")
        facts = self._fit_now(explainer)
        try:
            explainer.save(path)
            write_json(report, facts)
        except (StoreError, NotImplementedError):  # an explainer from outside may not save
            pass
        return facts

    def _fit_now(self, explainer: Explainer) -> dict[str, Any]:
        started = time.perf_counter()
        num = self.molecules.fit(explainer, self.cell.about_scores.get("fit_graphs"), self.seed)
        _wait_for(explainer.target.device)
        report: Any = getattr(explainer, "fit_report", None)
        history = getattr(explainer if report is None else report, "history", None)
        return {
            "fit_seconds": time.perf_counter() - started,
            "fit_graphs": num,
            "fit_steps": len(history or []),
            "fit_status": getattr(report, "status", ""),
        }


def _wait_for(device: torch.device) -> None:
    """Waits until the device has finished, so that measured seconds are complete."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
