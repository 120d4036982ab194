"""NICE and its rivals on generated graphs, whose truth is a planted motif."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from nicegnn.explain.score_parts import combine
from torch import Tensor, nn

from nicegnn.attribution.bond_by_bond import bond_wise_gradient, loss_without_each
from nicegnn.config import NICEConfig, check_choice
from nicegnn.errors import ConfigError, NicegnnError
from nicegnn.explain.explainer import Explainer
from nicegnn.explain.score_explainer import ScoreExplainer
from nicegnn.intervention.query import Query
from nicegnn.seeding import mix
from nicegnn_lab.bench.job import Job
from nicegnn_lab.bench.measure import MetricConfig, scores_of
from nicegnn_lab.bench.motif_tasks import MOTIF_TASKS, MotifConfig, MotifTask
from nicegnn_lab.bench.rows import Block, mean_blocks
from nicegnn_lab.bench.study import Study, Variant
from nicegnn_lab.bench.task import Task
from nicegnn_lab.rivals import find_entry, get_explainer, list_explainers
from nicegnn_lab.studies.bond_scores import limit_of

NODES_PER_STEP = 32  # most nodes in a step of a fit: computation graphs are large
TARGET = "target"  # setting of the rows of a target

_MASKS = (
    *("integrated-gradients", "gnnexplainer", "pgexplainer"),
    *("refine", "confexplainer", "occlusion"),
)
#: All explainers, and explainers by masks with noise corruption as well.
METHODS = (*list_explainers(), *(f"{name}+nc" for name in _MASKS))


@dataclass(frozen=True)
class PlantedStudy(Study):
    """Shared by studies of planted motifs: generated tasks."""

    max_graphs = 100

    config: MotifConfig = field(default_factory=MotifConfig)  # sizes of data and training

    def task(self, name: str, seed: int) -> MotifTask:
        check_choice("dataset", name, MOTIF_TASKS)
        return MOTIF_TASKS[name](seed, self.config)


@dataclass(frozen=True)
class MotifStudy(PlantedStudy):
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

    explainers: tuple[str, ...] = METHODS  # names for `get_explainer`
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # by explainer

    def __post_init__(self) -> None:
        for name in self.explainers:
            find_entry(name)  # an unknown name is an error
        for name in self.settings:
            if find_entry(name)[0].name != name:
                raise ConfigError(
                    f"`settings` must name explainers without mechanism (got {name!r})."
                )

    def variants(self, task: Task, target: str) -> Iterable[Variant]:
        assert isinstance(task, MotifTask)  # see `task`
        yield Variant(setting=TARGET, level=task.accuracy_wanted)
        for name in self.explainers:
            entry, mechanism = find_entry(name)
            settings = dict(self.settings.get(entry.name, {}))
            if task.level == "node":
                settings |= few_nodes(entry.name, settings)
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


def few_nodes(explainer: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the setting that limits a fit to few nodes per step, empty if there is no fit."""
    entry, _ = find_entry(explainer)
    if not entry.learns:
        return {}
    config: Any = entry.defaults().with_(**settings)
    if isinstance(config, NICEConfig):
        return {"boundary__batch_size": min(config.boundary.batch_size, NODES_PER_STEP)}
    return {"fit_batch_size": min(config.fit_batch_size, NODES_PER_STEP)}


@dataclass(frozen=True)
class ShapesStudy(PlantedStudy):
    """Targets of one graph and split whose first weights differ by a millionth.

    Rows: ``roc_auc`` of methods that need no training, and the target's ``accuracy``; ``level`` is
    the number of the target, ``setting`` the method.
    """

    name = "shapes"
    title = "Targets of one recipe on BA-Shapes"
    datasets = ("ba-shapes",)
    targets = ("gcn",)

    num_targets: int = 5
    apart: float = 1e-6  # size of the noise on the first weights of all but the first target

    def variants(self, task: Task, target: str) -> Iterable[Variant]:
        for number in range(self.num_targets):
            yield Variant(level=number, extra={"apart": self.apart})

    def measure(self, job: Job) -> Iterator[Block]:
        task, number = job.task, int(job.variant.level)
        assert isinstance(task, MotifTask)  # see `task`
        model = task.new_target(job.target).to(next(job.model.parameters()).device)
        generator = torch.Generator().manual_seed(mix(job.seed, number))
        with torch.no_grad():
            for weight in model.parameters():
                noise = torch.randn(weight.shape, generator=generator).to(weight)
                weight.add_((self.apart if number else 0.0) * noise)
        task.train(model)
        model.eval()
        yield Block("accuracy", task.accuracy(model), setting=TARGET)
        positions = task.explained(model, job.part, limit_of(job, "max_graphs"))
        for method in methods_without_training(model):
            parts = list(task.explain(method, positions, job.part, job.seed))
            scores = scores_of(parts, positions, {"part": job.part})
            for block in mean_blocks(task.measure(scores, model, MetricConfig(), job.seed)):
                if block.metric == "roc_auc":
                    yield replace(block, setting=method.name)


def methods_without_training(model: nn.Module) -> list[Explainer]:
    """Returns the methods of `ShapesStudy`."""
    names = ("saliency", "integrated-gradients", "occlusion")
    rivals = [get_explainer(name, model) for name in names]
    return [*rivals, MaskedLoss(model), RemovalLoss(model), BothLosses(model)]


_LOSS = NICEConfig().with_(attribution__take_out=False).attribution


class MaskedLoss(ScoreExplainer):
    """The log-odds that are lost when the messages of a bond are masked."""

    name = "log-odds, masked"

    def _edge_score(self, query: Query, seed: int) -> Tensor:
        return bond_wise_gradient(query, _LOSS, seed).score[query.case.bonds.edge_bond]


class RemovalLoss(MaskedLoss):
    """The log-odds that are lost when a bond is taken out of the graph."""

    name = "log-odds, taken out"

    def _edge_score(self, query: Query, seed: int) -> Tensor:
        return loss_without_each(query, _LOSS.degradation)[query.case.bonds.edge_bond]


class BothLosses(MaskedLoss):
    """Both losses as two parts of one score, as NICE joins them."""

    name = "log-odds, both"

    def _edge_score(self, query: Query, seed: int) -> Tensor:
        masked = bond_wise_gradient(query, _LOSS, seed).score
        taken_out = loss_without_each(query, _LOSS.degradation)
        return combine(query.case, masked, taken_out)[query.case.bonds.edge_bond]
