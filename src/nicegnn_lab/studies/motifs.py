"""NICE and its rivals on generated graphs, whose truth is a planted motif."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from nicegnn.config import NICEConfig, check_choice
from nicegnn.errors import NicegnnError
from nicegnn_lab.bench.job import Job
from nicegnn_lab.bench.motif_tasks import MOTIF_TASKS, MotifConfig, MotifTask
from nicegnn_lab.bench.rows import Block, mean_blocks
from nicegnn_lab.bench.study import Study, Variant
from nicegnn_lab.bench.task import Task
from nicegnn_lab.rivals import find_entry, list_explainers

NODES_PER_STEP = 32  # most nodes in a step of a fit: computation graphs are large
TARGET = "target"  # setting of the rows of a target
_MASKS = (
    *("integrated-gradients", "gnnexplainer", "pgexplainer", "refine"),
    *("confexplainer", "occlusion", "subgraphx"),
)
#: All explainers, and explainers by masks under noise and under exchange as well.
METHODS = (*list_explainers(), *(f"{name}+{way}" for name in _MASKS for way in ("nc", "exchange")))


@dataclass(frozen=True)
class MotifStudy(Study):
    """All explainers on planted motifs.

    The seed makes data, split, target and explainer. Rows are means over graphs or nodes of
    `motif_agreement`, and of ``kept_area`` for graphs; ``explain_seconds`` are per graph or node.
    An explainer that does not work on a task has one row ``cannot`` with the reason as note.
    Setting ``target`` has the test ``accuracy``; its level is `MotifTask.accuracy_wanted`.
    """

    name = "motifs"
    title = "All methods on graphs with planted motifs"
    datasets = tuple(MOTIF_TASKS)
    targets = ("gin", "gcn")
    max_graphs = 100

    config: MotifConfig = field(default_factory=MotifConfig)  # sizes of data and training
    explainers: tuple[str, ...] = METHODS  # names for `get_explainer`

    def __post_init__(self) -> None:
        for name in self.explainers:
            find_entry(name)  # an unknown name is an error

    def task(self, name: str, seed: int) -> MotifTask:
        check_choice("dataset", name, MOTIF_TASKS)
        return MOTIF_TASKS[name](seed, self.config)

    def variants(self, task: Task, target: str) -> Iterable[Variant]:
        assert isinstance(task, MotifTask)  # see `task`
        yield Variant(setting=TARGET, level=task.accuracy_wanted)
        for name in self.explainers:
            entry, mechanism = find_entry(name)
            settings = few_nodes(entry.name) if task.level == "node" else {}
            yield Variant(explainer=entry.name, mechanism=mechanism or "", settings=settings)

    def measure(self, job: Job) -> Iterator[Block]:
        assert isinstance(job.task, MotifTask)  # see `task`
        if job.variant.setting == TARGET:
            yield Block("accuracy", job.task.accuracy(job.model))
            return
        num = job.positions.numel()
        if num == 0:
            why = "the target predicts no test graph or node with a truth right"
            yield Block("cannot", 1.0, note=why)
            return
        try:
            scores = job.scores()
        except NicegnnError as error:
            yield Block("cannot", 1.0, note=" ".join(str(error).split()))
            return
        yield from mean_blocks(job.quality(scores, removals=("em", "nc")))
        yield Block("num_explained", float(num))
        if find_entry(job.variant.explainer)[0].learns:
            yield Block("fit_seconds", scores.fit_seconds)
        yield Block("explain_seconds", scores.explain_seconds_per_graph)


def few_nodes(explainer: str) -> dict[str, Any]:
    """Returns the setting that limits a fit to few nodes per step, empty if there is no fit."""
    entry, _ = find_entry(explainer)
    if not entry.learns:
        return {}
    config: Any = entry.defaults()
    if isinstance(config, NICEConfig):
        return {"boundary__batch_size": min(config.boundary.batch_size, NODES_PER_STEP)}
    return {"fit_batch_size": min(config.fit_batch_size, NODES_PER_STEP)}
