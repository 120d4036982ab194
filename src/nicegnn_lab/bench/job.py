"""A cell while it runs: its explainer, fitted once; its stored scores; its metrics."""

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
from nicegnn.intervention.background import Background
from nicegnn.store import write_json
from nicegnn_lab.bench.measure import (
    MetricConfig,
    Scores,
    load_scores,
    measure_molecules,
    save_scores,
    scores_of,
)
from nicegnn_lab.bench.rows import Block, Folder
from nicegnn_lab.bench.study import Cell, Variant, content_hash, flat, without_defaults
from nicegnn_lab.bench.task import MoleculeTask, Task
from nicegnn_lab.datasets import MoleculeDataset
from nicegnn_lab.rivals import find_entry, get_explainer
from nicegnn_lab.rivals.fits import adopt, fit_settings

HISTORY_TAIL = 20
#: Names in the identity of scores that do not change the fit.
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
    facts: dict[str, Any] = field(default_factory=dict)  # about the last scores and their fit
    num_explained: int = 0  # times that graphs were explained and not read from a file
    fit_facts: dict[str, Any] = field(default_factory=lambda: {"fit_seconds": 0.0})

    @property
    def variant(self) -> Variant:
        return self.cell.variant

    @property
    def target(self) -> str:
        return self.cell.target

    @property
    def seed(self) -> int:
        return self.cell.seed

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
        return self.molecules.part(self.cell.about_scores.get("part", "test"))

    @cached_property
    def positions(self) -> Tensor:
        """Positions of the explained graphs within the part, ``[B]``."""
        part = self.cell.about_scores.get("part", "test")
        return self.task.explained(self.model, part, self.max_graphs)

    def batch(self, positions: Tensor | None = None) -> Batch:
        """Returns the explained molecules, or those at other positions, on the target's device."""
        device = next(self.model.parameters()).device
        return self.graphs.batch(self.positions if positions is None else positions).to(device)

    @cached_property
    def explainer(self) -> Explainer:
        """The variant's explainer, fitted; equal fits are done once and kept in a file."""
        is_exchange = self.variant.mechanism == "exchange"
        background = self.molecules.background(self.model) if is_exchange else None
        explainer = make_explainer(self.variant, self.model, self.seed, background)
        if find_entry(self.variant.explainer)[0].learns:
            self.fit_facts = self._fit(explainer)
        return explainer

    def scores(self, seed: int | None = None) -> Scores:
        """Returns the explanations of all positions by the seed, from a file if there is one."""
        seed = self.seed if seed is None else seed
        about = dict(self.cell.about_scores)
        identity = about if seed == self.seed else {**about, "explain_seed": seed}
        path = self.folder.file("scores", content_hash(identity))
        if path.exists():
            try:
                scores = load_scores(path, identity)
                self.facts = dict(scores.facts)
                return scores
            except StoreError as error:
                self.notes.append(f"{error} The graphs are explained again.")
        scores = self._explain(seed)
        save_scores(path, identity, scores)
        return scores

    def quality(
        self,
        scores: Scores,
        *,
        removals: Sequence[str] = (),
        metrics: Collection[str] | None = None,
    ) -> Iterator[Block]:
        """Yields agreement with the truth and fidelity of each graph.

        Args:
            removals: how bonds are removed for fidelity; () for no fidelity.
            metrics: names to keep; none for all.
        """
        config = MetricConfig(removals=tuple(removals), num_draws=16)
        for block in self.measured(scores, config):
            if metrics is None or block.metric in metrics:
                yield block

    def measured(self, scores: Scores, config: MetricConfig) -> Iterator[Block]:
        """Yields all metrics of each graph, see `measure_molecules`."""
        task = self.molecules
        yield from measure_molecules(
            scores, self.graphs, self.model, config, self.seed, task.background
        )

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
        most = self.cell.about_scores.get("fit_graphs")
        num = self.molecules.fit(explainer, most, self.seed)
        _wait_for(explainer.target.device)
        seconds = time.perf_counter() - started
        report: Any = getattr(explainer, "fit_report", None)
        history = getattr(explainer, "history", None) if report is None else report.history
        classes = {} if report is None else report.classes
        return {
            "fit_seconds": seconds,
            "fit_graphs": num,
            "fit_steps": len(history or []),
            "fit_history": list(history or [])[-HISTORY_TAIL:],
            "fit_status": getattr(report, "status", ""),
            "fit_classes": {str(label): status for label, status in classes.items()},
        }

    def _explain(self, seed: int) -> Scores:
        explainer, part = self.explainer, self.cell.about_scores.get("part", "test")
        self.num_explained += 1
        started = time.perf_counter()
        found = list(self.molecules.explain(explainer, self.positions, part, seed))
        _wait_for(explainer.target.device)
        facts = {
            **self.fit_facts,
            "part": part,
            "explain_seconds": time.perf_counter() - started,
            "device": explainer.target.device.type,
            "torch": torch.__version__,
            "nicegnn": nicegnn.__version__,
        }
        scores = scores_of(found, self.positions, facts)
        self.facts = dict(scores.facts)
        return scores


def make_explainer(
    variant: Variant, model: nn.Module, seed: int, background: Background | None = None
) -> Explainer:
    """Returns the explainer of a variant, not fitted."""
    if not variant.explainer:
        raise ConfigError(f"`explainer` of variant {variant.setting!r} must be a name (got '').")
    settings = dict(variant.settings)
    if background is not None:
        settings["background"] = background
    mechanism = variant.mechanism or None
    return get_explainer(variant.explainer, model, mechanism=mechanism, **settings, seed=seed)


def _wait_for(device: torch.device) -> None:
    """Waits until the device has finished, so that measured seconds are complete."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
