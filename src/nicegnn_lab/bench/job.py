"""A cell while it runs: its explainer, fitted once; its stored scores; its metrics."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import nicegnn
from nicegnn.errors import ConfigError, NicegnnError, StoreError
from nicegnn.explain.explainer import Explainer
from nicegnn.store import write_json
from nicegnn_lab.bench.measure import MetricConfig, Scores, load_scores, save_scores, scores_of
from nicegnn_lab.bench.rows import Block, Folder
from nicegnn_lab.bench.source_hash import code_hash
from nicegnn_lab.bench.study import (
    Cell,
    Variant,
    changed_settings,
    content_hash,
    flat,
    without_defaults,
)
from nicegnn_lab.bench.task import Task
from nicegnn_lab.rivals import find_entry, get_explainer

HISTORY_TAIL = 20
#: Names in the identity of scores that do not change the fit.
_NOT_FITTED = (
    *("part", "explained", "needs_right", "max_graphs"),
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
    #: By the id of an explainer: itself, the identity of its scores, facts about its fit.
    _made: dict[int, tuple[Explainer, dict[str, Any], dict[str, Any]]] = field(
        default_factory=dict, repr=False
    )

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
        most, needs_right = self._about.get("max_graphs"), self._about.get("needs_right", False)
        return self.task.explained(self.model, self.part, most, needs_right)

    def explainer(self, *, model: nn.Module | None = None, **changes: Any) -> Explainer:
        """Returns the variant's explainer, fitted; equal fits are done once and kept in a file.

        Args:
            model: explained instead of the target; its fit is stored for this cell alone.
            changes: settings that replace the variant's.
        """
        given = {**self.variant.settings, **changes}
        changed = replace(self.variant, settings=given)
        explainer = make_explainer(changed, model or self.model, self.seed)
        settings = changed_settings(explainer, self._default, given)
        identity = {**self._about, "settings": settings}
        if "mechanism" in changes:
            identity["mechanism"] = changes["mechanism"]
        if model is not None:
            identity["cell"] = self.cell.key
        is_fitted = find_entry(self.variant.explainer)[0].learns
        facts = self._fit(explainer, identity) if is_fitted else {"fit_seconds": 0.0}
        self._made[id(explainer)] = (explainer, identity, facts)
        return explainer

    def fit_facts(self, explainer: Explainer) -> dict[str, Any]:
        """Returns facts about a fit; ``fit_seconds`` is none if it was interrupted."""
        made = self._made.get(id(explainer))
        return {"fit_seconds": None} if made is None else dict(made[2])

    def scores(self, explainer: Explainer | None = None, *, seed: int | None = None) -> Scores:
        """Returns the explanations of all positions, from a file if there is one.

        Args:
            explainer: by default the variant's own; scores are stored if this job made it.
            seed: of the explanation, by default the cell's.
        """
        seed = self.seed if seed is None else seed
        if explainer is not None and id(explainer) not in self._made:
            return self._explain(explainer, seed)
        identity = self._about if explainer is None else self._made[id(explainer)][1]
        if seed != self.seed:
            identity = {**identity, "explain_seed": seed}
        path = self.folder.scores(content_hash(identity))
        if path.exists():
            try:
                scores = load_scores(path, identity)
                self.facts = dict(scores.facts)
                return scores
            except StoreError as error:
                self.notes.append(f"{error} The graphs are explained again.")
        scores = self._explain(explainer or self.explainer(), seed)
        save_scores(path, identity, scores)
        return scores

    def quality(
        self,
        scores: Scores,
        *,
        protocols: Sequence[str] = ("paper", "strict"),
        removals: Sequence[str] = (),
        metrics: Collection[str] | None = None,
    ) -> Iterator[Block]:
        """Yields agreement with the truth and fidelity of each graph.

        Args:
            removals: how bonds are removed for fidelity; () for no fidelity.
            metrics: names to keep; none for all.
        """
        config = MetricConfig(protocols=tuple(protocols), removals=tuple(removals))
        for block in self.task.measure(scores, self.model, config, self.seed):
            if metrics is None or block.metric in metrics:
                yield block

    @property
    def _about(self) -> Mapping[str, Any]:
        """The identity of the scores."""
        return self.cell.identity["scores"]

    @cached_property
    def _default(self) -> Explainer:
        """The variant's explainer with its defaults."""
        return make_explainer(Variant(explainer=self.variant.explainer), self.model, self.seed)

    def _fit(self, explainer: Explainer, identity: Mapping[str, Any]) -> dict[str, Any]:
        """Fits an explainer or loads its stored fit; returns facts about the fit."""
        read = {k: v for k, v in identity.items() if k not in _NOT_FITTED}
        plain = copy(explainer)
        plain.config = type(explainer.config)()
        mine, theirs = explainer.fit_settings(), plain.fit_settings()
        read["fit"] = without_defaults(flat(mine, "."), flat(theirs, "."))
        read["class"] = f"{type(explainer).__module__}:{type(explainer).__qualname__}"
        path = self.folder.fit(content_hash(read))
        report, checkpoint = path.with_suffix(".json"), path.with_suffix(".part")
        if path.is_file() and report.is_file():
            try:
                facts: dict[str, Any] = json.loads(report.read_text(encoding="utf-8"))
                own: Any = explainer
                given = {} if hasattr(own.config, "mechanism") else {"mechanism": own.mechanism}
                own.adopt(type(own).load(path, own.target.model, **given))
                return facts
            except (NicegnnError, OSError, ValueError) as error:
                self.notes.append(f"{error} {self.cell} is fitted again.")
        most = identity.get("fit_graphs")
        facts = self._teach(explainer, read, most) or self._fit_now(explainer, most, checkpoint)
        try:
            explainer.save(path)
            write_json(report, facts)
        except (StoreError, NotImplementedError):  # an explainer from outside may not save
            pass
        checkpoint.unlink(missing_ok=True)
        return facts

    def _teach(
        self, explainer: Explainer, read: Mapping[str, Any], most: int | None
    ) -> dict[str, Any] | None:
        """Teaches a student on a stored fit of its teacher, if there is one; returns facts."""
        student: Any = explainer
        teacher: Any = getattr(student, "teacher", None)
        if teacher is None:
            return None
        name = f"{teacher.__module__}:{teacher.__qualname__}"
        path = self.folder.fit(content_hash({**read, "class": name}))
        try:
            facts: dict[str, Any] = json.loads(path.with_suffix(".json").read_text("utf-8"))
            student.adopt(type(student).load(path, student.target.model))
        except (NicegnnError, OSError, ValueError):
            return None
        graphs, nodes = self.task.training(most)
        report = student.teach(graphs, index=nodes, seed=self.seed, progress=False)
        before = facts["fit_seconds"]
        seconds = None if before is None else before + report.seconds
        return {**facts, "fit_seconds": seconds, "taught": report.to_dict()}

    def _fit_now(self, explainer: Explainer, most: int | None, checkpoint: Path) -> dict[str, Any]:
        is_resumed = checkpoint.is_file()
        checkpoint.parent.mkdir(parents=True, exist_ok=True)
        started = time.perf_counter()
        try:
            num = self.task.fit(explainer, most, self.seed, checkpoint)
        except StoreError as error:
            if not is_resumed:
                raise
            self.notes.append(f"{error} {self.cell} is fitted from the start.")
            checkpoint.unlink(missing_ok=True)
            return self._fit_now(explainer, most, checkpoint)
        wait_for(explainer.target.device)
        seconds = time.perf_counter() - started
        report: Any = getattr(explainer, "fit_report", None)
        history = getattr(explainer, "history", None) if report is None else report.history
        classes = {} if report is None else report.classes
        taught: Any = getattr(explainer, "teach_report", None)
        return {
            "fit_seconds": None if is_resumed else seconds,  # the time of the first part is unknown
            "fit_graphs": num,
            "fit_steps": len(history or []),
            "fit_history": list(history or [])[-HISTORY_TAIL:],
            "fit_status": getattr(report, "status", ""),
            "fit_classes": {str(label): judged.status for label, judged in classes.items()},
            **({} if taught is None else {"taught": taught.to_dict()}),
        }

    def _explain(self, explainer: Explainer, seed: int) -> Scores:
        self.num_explained += 1
        started = time.perf_counter()
        wanted = self._about.get("explained", "label")
        parts = list(self.task.explain(explainer, self.positions, self.part, seed, wanted))
        wait_for(explainer.target.device)
        facts = {
            **self.fit_facts(explainer),
            "part": self.part,
            "explain_seconds": time.perf_counter() - started,
            "device": explainer.target.device.type,
            "torch": torch.__version__,
            "nicegnn": nicegnn.__version__,
            "code": code_hash(type(explainer).__module__),
        }
        scores = scores_of(parts, self.positions, facts)
        self.facts = dict(scores.facts)
        return scores


def make_explainer(variant: Variant, model: nn.Module, seed: int) -> Explainer:
    """Returns the explainer of a variant, not fitted."""
    if not variant.explainer:
        raise ConfigError(f"`explainer` of variant {variant.setting!r} must be a name (got '').")
    settings = dict(variant.settings)
    mechanism = settings.pop("mechanism", variant.mechanism) or None
    return get_explainer(variant.explainer, model, mechanism=mechanism, **settings, seed=seed)


def wait_for(device: torch.device) -> None:
    """Waits until the device has finished, so that measured seconds are complete."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
