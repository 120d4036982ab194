"""One cell at work: its explainer, fitted once; its scores, stored by content; its metrics."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import nicegnn
from nicegnn.bench.cell import Cell, changed_settings, content_hash, without_defaults
from nicegnn.bench.measure import MetricConfig
from nicegnn.bench.rows import Block, Folder
from nicegnn.bench.scores import Scores, load_scores, save_scores, scores_of
from nicegnn.bench.source_hash import code_hash
from nicegnn.bench.study import Variant
from nicegnn.bench.task import Task
from nicegnn.errors import ConfigError, NicegnnError, StoreError
from nicegnn.explain.explainer import Explainer
from nicegnn.rivals.registry import find_entry, get_explainer
from nicegnn.store import write_json

SHELL = ("mode", "return_type", "inputs")  # settings that no config of an explainer holds
HISTORY_TAIL = 20

log = logging.getLogger(__name__)


@dataclass
class Job:
    """One cell at work.

    Attributes:
        cell: what is computed.
        task: graphs or nodes with their truth.
        model: the trained target.
        folder: where the files of the study are.
        notes: what happened on the way, such as a damaged file.
        facts: about fit and explanation of the last scores.
        num_explained: how often graphs were explained, rather than scores read from a file.
    """

    cell: Cell
    task: Task
    model: nn.Module
    folder: Folder
    notes: list[str] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    num_explained: int = 0
    _made: dict[int, _Made] = field(default_factory=dict, repr=False)  # by the explainer's id

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
        settings = {**self.variant.settings, **changes}
        explainer = make_explainer(self.variant, model or self.model, self.seed, changes)
        identity = {**self._about, "settings": self._settings(explainer, settings)}
        if "mechanism" in changes:
            identity["mechanism"] = changes["mechanism"]
        if model is not None:
            identity["cell"] = self.cell.key
        is_fitted = find_entry(self.variant.explainer)[0].learns
        facts = self._fit(explainer, identity) if is_fitted else {"fit_seconds": 0.0}
        self._made[id(explainer)] = _Made(explainer, identity, facts)
        return explainer

    def fit_facts(self, explainer: Explainer) -> dict[str, Any]:
        """Returns what is known about the fit of an explainer that this job made.

        ``fit_seconds`` (none if it was interrupted, for then nobody knows), ``fit_graphs``,
        ``fit_steps``, ``fit_history`` (its end), ``fit_status``, and ``fit_classes``, the status of
        each class.
        """
        made = self._made.get(id(explainer))
        return {"fit_seconds": None} if made is None else dict(made.facts)

    def scores(self, explainer: Explainer | None = None, *, seed: int | None = None) -> Scores:
        """Returns the explanations of all positions, from a file if they were made before.

        Args:
            explainer: from `explainer`, by default the variant's own; scores of one that was made
                elsewhere are not stored.
            seed: of the explanation, by default the cell's.
        """
        seed = self.seed if seed is None else seed
        if explainer is not None and id(explainer) not in self._made:
            found = self._explain(explainer, seed, self.fit_facts(explainer))
            self.facts = dict(found.facts)
            return found
        identity = self._about if explainer is None else self._made[id(explainer)].identity
        if seed != self.seed:
            identity = {**identity, "explain_seed": seed}
        path = self.folder.scores(content_hash(identity))
        scores = self._stored_scores(path, identity)
        if scores is None:
            explainer = self.explainer() if explainer is None else explainer
            scores = self._explain(explainer, seed, self.fit_facts(explainer))
            save_scores(path, identity, scores)
        self.facts = dict(scores.facts)
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
        found: Mapping[str, Any] = self.cell.identity["scores"]
        return found

    def _settings(self, explainer: Explainer, settings: Mapping[str, Any]) -> dict[str, Any]:
        default = make_explainer(Variant(explainer=self.variant.explainer), self.model, self.seed)
        shell = {key: settings[key] for key in SHELL if key in settings}
        return changed_settings(explainer, default, shell)

    def _fit(self, explainer: Explainer, identity: Mapping[str, Any]) -> dict[str, Any]:
        """Fits an explainer, or takes over a stored fit; returns what is known about the fit."""
        default = make_explainer(Variant(explainer=self.variant.explainer), self.model, self.seed)
        read = {k: v for k, v in identity.items() if k not in _NOT_FITTED}
        read["fit"] = without_defaults(
            _flat(explainer.fit_settings()), _flat(default.fit_settings())
        )
        key = content_hash(read)
        path, report = self.folder.fit(key), self.folder.fit(key).with_suffix(".json")
        if path.is_file() and report.is_file():
            try:
                facts: dict[str, Any] = json.loads(report.read_text(encoding="utf-8"))
                explainer.adopt(self._load(explainer, path))
                return facts
            except (NicegnnError, OSError, ValueError) as error:
                self._note(f"{error} {self.cell} is fitted anew.")
        checkpoint = self.folder.checkpoint(key)
        facts = self._fit_now(explainer, identity.get("fit_graphs"), checkpoint)
        try:
            explainer.save(path)
            write_json(report, facts)
        except (StoreError, NotImplementedError):  # an explainer from outside need not save
            pass
        checkpoint.unlink(missing_ok=True)
        return facts

    def _load(self, explainer: Any, path: Path) -> Explainer:
        given = {} if hasattr(explainer.config, "mechanism") else {"mechanism": explainer.mechanism}
        loaded: Explainer = type(explainer).load(path, explainer.target.model, **given)
        return loaded

    def _fit_now(self, explainer: Explainer, most: int | None, checkpoint: Path) -> dict[str, Any]:
        is_resumed = checkpoint.is_file()
        checkpoint.parent.mkdir(parents=True, exist_ok=True)
        started = time.perf_counter()
        try:
            num = self.task.fit(explainer, most, self.seed, checkpoint)
        except StoreError as error:
            if not is_resumed:
                raise
            self._note(f"{error} {self.cell} is fitted from the start.")
            checkpoint.unlink(missing_ok=True)
            return self._fit_now(explainer, most, checkpoint)
        _wait(explainer.target.device)
        seconds = time.perf_counter() - started
        report: Any = getattr(explainer, "fit_report", None)
        history = getattr(explainer, "history", None) if report is None else report.history
        classes = {} if report is None else report.classes
        return {
            # a part of the time would mislead
            "fit_seconds": None if is_resumed else seconds,
            "fit_graphs": num,
            "fit_steps": len(history or []),
            "fit_history": list(history or [])[-HISTORY_TAIL:],
            "fit_status": getattr(report, "status", ""),
            "fit_classes": {str(label): judged.status for label, judged in classes.items()},
        }

    def _explain(self, explainer: Explainer, seed: int, facts: Mapping[str, Any]) -> Scores:
        self.num_explained += 1
        started = time.perf_counter()
        wanted = self._about.get("explained", "label")
        found = self.task.explain(explainer, self.positions, self.part, seed, wanted)
        parts = list(found)
        _wait(explainer.target.device)
        return scores_of(
            parts,
            self.positions,
            {
                **facts,
                "part": self.part,
                "explain_seconds": time.perf_counter() - started,
                "device": explainer.target.device.type,
                "torch": torch.__version__,
                "nicegnn": nicegnn.__version__,
                "code": code_hash(type(explainer).__module__),
            },
        )

    def _stored_scores(self, path: Path, identity: Mapping[str, Any]) -> Scores | None:
        if not path.exists():
            return None
        try:
            return load_scores(path, identity)
        except StoreError as error:
            self._note(f"{error} The graphs are explained anew.")
            return None

    def _note(self, text: str) -> None:
        self.notes.append(text)


@dataclass(frozen=True)
class _Made:
    """An explainer that a job made, what its scores depend on, and what is known of its fit."""

    explainer: Explainer
    identity: Mapping[str, Any]
    facts: Mapping[str, Any]


#: Parts of what scores depend on that a fit does not depend on.
_NOT_FITTED = ("part", "explained", "needs_right", "max_graphs", "settings")


def make_explainer(
    variant: Variant, model: nn.Module, seed: int, changes: Mapping[str, Any] | None = None
) -> Explainer:
    """Returns the explainer of a variant, not fitted."""
    if not variant.explainer:
        raise ConfigError(f"The variant {variant.setting!r} names no explainer (got '').")
    settings = {**variant.settings, **(changes or {})}
    mechanism = settings.pop("mechanism", variant.mechanism) or None
    return get_explainer(variant.explainer, model, mechanism=mechanism, **settings, seed=seed)


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Returns nested values by names with dots."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            found |= _flat(value, f"{prefix}{key}.")
        else:
            found[prefix + key] = value
    return found


def _wait(device: torch.device) -> None:
    """Lets the device finish, so that clocks tell the truth."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
