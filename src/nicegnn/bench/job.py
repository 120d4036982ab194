"""One cell at work: its explainer, fitted once; its scores, stored by content; its metrics."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import nicegnn
from nicegnn.bench.measure import MetricConfig, Scores, load_scores, save_scores, scores_of
from nicegnn.bench.rows import Block, Folder
from nicegnn.bench.source_hash import code_hash
from nicegnn.bench.study import (
    Cell,
    Variant,
    changed_settings,
    content_hash,
    flat,
    without_defaults,
)
from nicegnn.bench.task import Task
from nicegnn.errors import ConfigError, NicegnnError, StoreError
from nicegnn.explain.explainer import Explainer
from nicegnn.rivals.registry import find_entry, get_explainer
from nicegnn.store import write_json

HISTORY_TAIL = 20
#: Parts of what scores depend on that a fit does not depend on.
_NOT_FITTED = ("part", "explained", "needs_right", "max_graphs", "settings")


@dataclass
class Job:
    """One cell at work."""

    cell: Cell
    task: Task  # graphs or nodes with their truth
    model: nn.Module  # the trained target
    folder: Folder  # where the files of the study are
    notes: list[str] = field(default_factory=list)  # such as of a damaged file
    facts: dict[str, Any] = field(default_factory=dict)  # about the last scores and their fit
    num_explained: int = 0  # how often graphs were explained, rather than scores read
    #: By the id of an explainer: itself, what its scores depend on, what is known of its fit.
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
        """What is explained: positions within the part, ``[B]``."""
        most, needs_right = self._about.get("max_graphs"), self._about.get("needs_right", False)
        return self.task.explained(self.model, self.part, most, needs_right)

    def explainer(self, *, model: nn.Module | None = None, **changes: Any) -> Explainer:
        """Returns the variant's explainer, fitted; equal fits are done once and kept in a file.

        Args:
            model: another model to explain than the target, such as the target with its logits
                scaled; its fit is kept for this cell alone.
            changes: of settings, on top of the variant's.
        """
        explainer = make_explainer(self.variant, model or self.model, self.seed, changes)
        given = {**self.variant.settings, **changes}
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
        """Returns what is known about the fit of an explainer that this job made.

        ``fit_seconds`` is none if the fit was interrupted, ``fit_history`` is its end.
        """
        made = self._made.get(id(explainer))
        return {"fit_seconds": None} if made is None else dict(made[2])

    def scores(self, explainer: Explainer | None = None, *, seed: int | None = None) -> Scores:
        """Returns the explanations of all positions, from a file if they were made before.

        Args:
            explainer: from `explainer`, by default the variant's own; scores of one that was made
                elsewhere are not stored.
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
                self.notes.append(f"{error} The graphs are explained anew.")
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
            removals: how bonds are removed for fidelity; () for none.
            metrics: names to keep; none for all.
        """
        config = MetricConfig(protocols=tuple(protocols), removals=tuple(removals))
        for block in self.task.measure(scores, self.model, config, self.seed):
            if metrics is None or block.metric in metrics:
                yield block

    @property
    def _about(self) -> Mapping[str, Any]:
        """What the scores depend on."""
        return self.cell.identity["scores"]

    @cached_property
    def _default(self) -> Explainer:
        """The variant's explainer with its defaults."""
        return make_explainer(Variant(explainer=self.variant.explainer), self.model, self.seed)

    def _fit(self, explainer: Explainer, identity: Mapping[str, Any]) -> dict[str, Any]:
        """Fits an explainer, or takes over a stored fit; returns what is known about the fit."""
        read = {k: v for k, v in identity.items() if k not in _NOT_FITTED}
        mine, theirs = explainer.fit_settings(), self._default.fit_settings()
        read["fit"] = without_defaults(flat(mine, "."), flat(theirs, "."))
        path = self.folder.fit(content_hash(read))
        report, checkpoint = path.with_suffix(".json"), path.with_suffix(".part")
        if path.is_file() and report.is_file():
            try:
                facts: dict[str, Any] = json.loads(report.read_text(encoding="utf-8"))
                explainer.adopt(_load(explainer, path))
                return facts
            except (NicegnnError, OSError, ValueError) as error:
                self.notes.append(f"{error} {self.cell} is fitted anew.")
        facts = self._fit_now(explainer, identity.get("fit_graphs"), checkpoint)
        try:
            explainer.save(path)
            write_json(report, facts)
        except (StoreError, NotImplementedError):  # an explainer from outside need not save
            pass
        checkpoint.unlink(missing_ok=True)
        return facts

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
        _wait(explainer.target.device)
        seconds = time.perf_counter() - started
        report: Any = getattr(explainer, "fit_report", None)
        history = getattr(explainer, "history", None) if report is None else report.history
        classes = {} if report is None else report.classes
        return {
            "fit_seconds": None if is_resumed else seconds,  # a part of the time would mislead
            "fit_graphs": num,
            "fit_steps": len(history or []),
            "fit_history": list(history or [])[-HISTORY_TAIL:],
            "fit_status": getattr(report, "status", ""),
            "fit_classes": {str(label): judged.status for label, judged in classes.items()},
        }

    def _explain(self, explainer: Explainer, seed: int) -> Scores:
        self.num_explained += 1
        started = time.perf_counter()
        wanted = self._about.get("explained", "label")
        parts = list(self.task.explain(explainer, self.positions, self.part, seed, wanted))
        _wait(explainer.target.device)
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


def make_explainer(
    variant: Variant, model: nn.Module, seed: int, changes: Mapping[str, Any] | None = None
) -> Explainer:
    """Returns the explainer of a variant, not fitted."""
    if not variant.explainer:
        raise ConfigError(f"The variant {variant.setting!r} names no explainer (got '').")
    settings = {**variant.settings, **(changes or {})}
    mechanism = settings.pop("mechanism", variant.mechanism) or None
    return get_explainer(variant.explainer, model, mechanism=mechanism, **settings, seed=seed)


def _load(explainer: Any, path: Path) -> Explainer:
    given = {} if hasattr(explainer.config, "mechanism") else {"mechanism": explainer.mechanism}
    return type(explainer).load(path, explainer.target.model, **given)


def _wait(device: torch.device) -> None:
    """Lets the device finish, so that clocks tell the truth."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
