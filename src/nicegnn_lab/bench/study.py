"""Studies, their variants, and cells with their keys."""

from __future__ import annotations

import hashlib
import json
import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from nicegnn.errors import ConfigError
from nicegnn.explain.explainer import Explainer
from nicegnn.intervention.background import Background
from nicegnn_lab.rivals import get_explainer

if TYPE_CHECKING:
    from nicegnn_lab.bench.job import Job
    from nicegnn_lab.bench.rows import Block
    from nicegnn_lab.bench.task import Task

#: Part of every key: raise it when the way cells are explained or measured changes.
RUNNER_VERSION = 1
#: A cell by study, dataset, target, explainer, mechanism, setting, level and seed. A missing level
#: is minus infinity, so that names can be sorted.
Name = tuple[str, str, str, str, str, str, float, int]
#: Settings that are not in keys: a cell has its own seed and mechanism, chunks change no number.
_NOT_IN_KEYS = ("seed", "mechanism", "chunk_edges")


@dataclass(frozen=True)
class Variant:
    """One configuration of a study."""

    setting: str = ""  # name of what is varied
    level: float | None = None  # number of what is varied
    explainer: str = ""  # name for `get_explainer`, empty where nothing is explained
    mechanism: str = ""  # "em", "nc", "exchange", or empty for the explainer's own
    settings: Mapping[str, Any] = field(default_factory=dict)  # that differ from the defaults
    extra: Mapping[str, Any] = field(default_factory=dict)  # other plain values that change rows


class Study(ABC):
    """Settings to compare and what to measure; `nicegnn_lab.bench.run_study` does the rest.

    Every variant on every dataset, target and seed is a cell, which is run once.
    """

    name: str  # in rows and commands
    title: str  # its question in one line
    version: int = 1  # raise it when the same settings give other rows
    part: str = "test"  # of the dataset that is explained, or "valid" to choose settings
    max_graphs: int | None = None  # most graphs to explain unless the command says otherwise
    datasets: tuple[str, ...] | None = None  # unless the command names some; none: all
    targets: tuple[str, ...] = ("gin",)  # unless the command names others

    @abstractmethod
    def variants(self, task: Task, target: str) -> Iterable[Variant]:
        """Yields the variants of one task and target."""

    @abstractmethod
    def measure(self, job: Job) -> Iterator[Block]:
        """Yields the rows of one cell."""

    def task(self, name: str, seed: int) -> Task:
        """Returns the task of a name; studies with their own tasks override it."""
        from nicegnn_lab.bench.task import make_task

        return make_task(name)


@dataclass(frozen=True)
class Cell:
    """A variant on one dataset and target with one seed: the unit of work."""

    study: str
    dataset: str
    stand_in: bool  # whether the dataset's molecules stand in for the published ones
    target: str
    variant: Variant
    seed: int
    identity: Mapping[str, Any]  # all that can change rows; in "scores": what can change scores

    @property
    def key(self) -> str:
        return content_hash(self.identity)

    @property
    def about_scores(self) -> Mapping[str, Any]:
        return self.identity["scores"]

    def to_dict(self) -> dict[str, Any]:
        """Returns the cell's columns of rows as plain values."""
        own = {name: getattr(self, name) for name in ("study", "dataset", "stand_in", "target")}
        own |= {n: getattr(self.variant, n) for n in ("explainer", "mechanism", "setting")}
        level = self.variant.level
        return own | {"level": None if level is None else float(level), "seed": self.seed}

    def __str__(self) -> str:
        line = self.variant
        method = f"{line.explainer}+{line.mechanism}" if line.mechanism else line.explainer
        level = "" if line.level is None else f"{line.level:g}"
        said = " ".join(filter(None, (method, line.setting, level)))
        return f"{self.dataset} {self.target} {said} seed {self.seed}"


def name_of(cell: Mapping[str, Any]) -> Name:
    """Returns the name of a cell from its `Cell.to_dict`."""
    level = -math.inf if cell["level"] is None else float(cell["level"])
    words = ("study", "dataset", "target", "explainer", "mechanism", "setting")
    return *(cell[word] for word in words), level, int(cell["seed"])


def content_hash(content: Any) -> str:
    """Returns a short hash of plain values; the order of names does not matter."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def tensor_hash(tensors: Iterable[tuple[str, Tensor]]) -> str:
    """Returns a short hash of the names, types, shapes and numbers of tensors in this order."""
    digest = hashlib.sha256()
    for name, tensor in tensors:
        digest.update(f"{name}{tensor.dtype}{tuple(tensor.shape)}".encode())
        digest.update(tensor.contiguous().numpy().data)
    return digest.hexdigest()[:24]


def code_hash(module: str) -> str:
    """Returns a hash of a plugin's code: of its file, or of all files of its package.

    It is empty for a module of ours, whose versions stand for its code, and in a notebook.
    """
    package = module.partition(".")[0]
    if package in ("nicegnn", "nicegnn_lab"):
        return ""
    place = getattr(sys.modules[package], "__file__", None)
    if place is None:
        return ""
    path = Path(place)
    files = sorted(path.parent.rglob("*.py")) if path.name == "__init__.py" else [path]
    return content_hash([file.read_text(encoding="utf-8") for file in files])


def without_defaults(values: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the values that differ from their defaults, so that a new default changes no key.

    >>> without_defaults({"steps": 5, "new": 0}, {"steps": 3, "new": 0})
    {'steps': 5}
    """
    plain = json.loads(json.dumps([dict(values), dict(defaults)]))  # a tuple equals its list
    return {k: v for k, v in plain[0].items() if k not in plain[1] or plain[1][k] != v}


def flat_settings(config: Any) -> dict[str, Any]:
    """Returns settings that can change scores; those of parts are named ``boundary__steps``."""
    settings: dict[str, Any] = {}
    for name, value in asdict(config).items():
        parts = value.items() if isinstance(value, Mapping) else ()
        settings |= {f"{name}__{key}": item for key, item in parts} or {name: value}
    return {name: value for name, value in settings.items() if name not in _NOT_IN_KEYS}


def make_explainer(
    variant: Variant, model: nn.Module, seed: int, background: Background | None = None
) -> Explainer:
    """Returns the explainer of a variant, not fitted."""
    if not variant.explainer:
        raise ConfigError(f"`explainer` of variant {variant.setting!r} must be a name (got '').")
    given = dict(variant.settings) | ({} if background is None else {"background": background})
    mechanism = variant.mechanism or None
    return get_explainer(variant.explainer, model, mechanism=mechanism, **given, seed=seed)
