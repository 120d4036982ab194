"""What is run: a study and its variants; the benchmark is one of them."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nicegnn.bench.job import Job
    from nicegnn.bench.rows import Block
    from nicegnn.bench.task import Task


@dataclass(frozen=True)
class Variant:
    """One line of a study.

    Attributes:
        setting: what was varied, in words.
        level: its number, nan if there is none.
        explainer: name for `get_explainer`, empty where nothing is explained.
        mechanism: ``em``, ``nc``, ``both``, or empty for the explainer's own.
        settings: changes of the explainer's defaults, those of NICE's parts as ``boundary__steps``.
        extra: other plain values that change the numbers.
    """

    setting: str = ""
    level: float = math.nan
    explainer: str = ""
    mechanism: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)


class Study(ABC):
    """Settings to compare and what to measure; `nicegnn.bench.run_study` does the rest.

    Every variant on every dataset, target and seed is a cell. It is run once, its rows are stored,
    and a stopped run goes on. A study is sent to other processes, so it holds plain values only.

    Attributes:
        name: in rows and commands.
        title: one line that says what it asks.
        version: raise it when the same settings give other rows.
        part: of the dataset that is explained, ``test``, or ``valid`` to choose settings on.
        explained: class to explain: the ``label``, whose truth is known, or the ``predicted`` one.
        needs_right: explain only graphs of label 1 that the target gets right.
        max_graphs: most graphs to explain, unless the command says otherwise; none for all.
        datasets: unless the command names others; none for all with true bonds.
        targets: unless the command names others.
    """

    name: str
    title: str
    version: int = 1
    part: str = "test"
    explained: str = "label"
    needs_right: bool = False
    max_graphs: int | None = None
    datasets: tuple[str, ...] | None = None
    targets: tuple[str, ...] = ("gin",)

    @abstractmethod
    def variants(self, task: Task, target: str) -> Iterable[Variant]:
        """Yields what is run on one task and target."""

    @abstractmethod
    def measure(self, job: Job) -> Iterator[Block]:
        """Yields the rows of one cell."""

    def task(self, name: str, seed: int) -> Task:
        """Returns what is explained under this name; studies with tasks of their own change it."""
        from nicegnn.bench.task import make_task

        return make_task(name, seed)
