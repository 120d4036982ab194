"""A cell while it runs: its explainer, fitted once; its stored scores; its metrics."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

import nicegnn
from nicegnn.errors import ConfigError, NicegnnError, StoreError
from nicegnn.explain.explainer import Explainer
from nicegnn.intervention.background import Background
from nicegnn.store import write_json
from nicegnn_lab.bench.measure import MetricConfig, Scores, load_scores, save_scores, scores_of
from nicegnn_lab.bench.rows import Block, Folder
from nicegnn_lab.bench.study import Cell, Variant, content_hash, flat, without_defaults
from nicegnn_lab.bench.task import Task
from nicegnn_lab.rivals import find_entry, get_explainer

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
    task: Task  # graphs or nodes with their truth
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
    def part(self) -> str:
        """Part of the dataset that is explained."""
        return str(self._about.get("part", "test"))

    @cached_property
    def positions(self) -> Tensor:
        """Positions of the explained graphs within the part, ``[B]``."""
        return self.task.explained(self.model, self.part, self._about.get("max_graphs"))

    @cached_property
    def explainer(self) -> Explainer:
        """The variant's explainer, fitted; equal fits are done once and kept in a file."""
        is_exchange = self.variant.mechanism == "exchange"
        background = self.task.background(self.model) if is_exchange else None
        explainer = make_explainer(self.variant, self.model, self.seed, background)
        if find_entry(self.variant.explainer)[0].learns:
            self.fit_facts = self._fit(explainer)
        return explainer

    def scores(self, seed: int | None = None) -> Scores:
        """Returns the explanations of all positions by the seed, from a file if there is one."""
        seed = self.seed if seed is None else seed
        identity = self._about if seed == self.seed else {**self._about, "explain_seed": seed}
        path = self.folder.scores(content_hash(identity))
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
        for block in self.task.measure(scores, self.model, config, self.seed):
            if metrics is None or block.metric in metrics:
                yield block

    @property
    def _about(self) -> Mapping[str, Any]:
        """The identity of the scores."""
        return self.cell.identity["scores"]

    def _fit(self, explainer: Explainer) -> dict[str, Any]:
        """Fits an explainer or loads its stored fit; returns facts about the fit."""
        about = {k: v for k, v in self._about.items() if k not in _NOT_FITTED}
        plain = copy(explainer)
        plain.config = type(explainer.config)()
        mine, theirs = explainer.fit_settings(), plain.fit_settings()
        about["fit"] = without_defaults(flat(mine, "."), flat(theirs, "."))
        about["class"] = f"{type(explainer).__module__}:{type(explainer).__qualname__}"
        path = self.folder.fit(content_hash(about))
        report = path.with_suffix(".json")
        if path.is_file() and report.is_file():
            try:
                stored: dict[str, Any] = json.loads(report.read_text(encoding="utf-8"))
                new: Any = explainer
                given = {} if hasattr(new.config, "mechanism") else {"mechanism": new.mechanism}
                new.adopt(type(new).load(path, new.target.model, **given))
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
        num = self.task.fit(explainer, self._about.get("fit_graphs"), self.seed)
        wait_for(explainer.target.device)
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
        explainer = self.explainer
        self.num_explained += 1
        started = time.perf_counter()
        parts = list(self.task.explain(explainer, self.positions, self.part, seed))
        wait_for(explainer.target.device)
        self.facts = {
            **self.fit_facts,
            "part": self.part,
            "explain_seconds": time.perf_counter() - started,
            "device": explainer.target.device.type,
            "torch": torch.__version__,
            "nicegnn": nicegnn.__version__,
        }
        scores = scores_of(parts, self.positions, self.facts)
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


def at_seed(job: Job, seed: int) -> Job:
    """Returns a job as it would be with another seed."""
    identity = job.cell.identity
    other = {**identity, "scores": {**identity["scores"], "seed": seed}}
    cell = replace(job.cell, seed=seed, identity=other)
    return Job(cell, job.task, job.model, job.folder)


def wait_for(device: torch.device) -> None:
    """Waits until the device has finished, so that measured seconds are complete."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
