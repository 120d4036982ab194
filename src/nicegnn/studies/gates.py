"""When and why gates saturate or invert: one change at a time, and targets of other depth."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Batch

from nicegnn.bench.job import Job
from nicegnn.bench.rows import Block
from nicegnn.bench.study import Variant
from nicegnn.bench.task import Task
from nicegnn.explain.nice import NICE
from nicegnn.metrics import Truth, truth_metrics
from nicegnn.rivals.registry import get_explainer
from nicegnn.studies.bond_scores import (
    ValidationStudy,
    explained_batch,
    fit_again,
    limit_of,
    molecules_of,
)
from nicegnn.target.training import TrainConfig, predict, train_classifier
from nicegnn.target.zoo import GraphClassifier, make_model

#: The same short fit for all, so that only the change counts.
SMALL = {
    "boundary__steps": 300,
    "boundary__batch_size": 128,
    "boundary__fit_draws": 8,
    "boundary__num_draws": 8,
    "attribution__num_draws": 16,
}
#: Ways to fit gates: explainer and mechanism.
FITS = {"paper": ("nice-paper", "nc"), "order under budgets": ("nice", "nc")}
READOUTS = ("sum", "mean")
DEPTHS = (1, 2, 3, 5)
TRAINING = TrainConfig(batch_size=256, epochs=40, patience=10, stop_after=20)


def changes() -> dict[str, tuple[str, float, dict[str, Any]]]:
    """Returns what is changed, by its name in rows: fit, factor of the logits, settings."""
    paper, ours = FITS
    found: dict[str, tuple[str, float, dict[str, Any]]] = {paper: (paper, 1.0, {})}
    for factor in (0.1, 0.3, 3.0, 10.0):
        found[f"{paper}, logits x {factor:g}"] = (paper, factor, {})
    for start in (0.05, 0.95):
        found[f"{paper}, start {start:g}"] = (paper, 1.0, {"boundary__start": start})
    for penalty in (0.01, 0.1, 0.3, 3.0):
        found[f"{paper}, penalty {penalty:g}"] = (paper, 1.0, {"boundary__penalty": penalty})
    for name, settings in (
        ("no spread", {"boundary__beta": 0.0}),
        ("loss of log-odds", {"boundary__degradation": "margin"}),
        ("relative risk", {"boundary__normalise_risk": True}),
        ("a gate per class", {"boundary__class_gates": True}),
        ("class 1 alone", {"boundary__classes": (1,)}),
        ("all layers", {"boundary__layers": "all"}),
    ):
        found[f"{paper}, {name}"] = (paper, 1.0, settings)
    found[ours] = (ours, 1.0, {})
    for factor in (0.1, 10.0):
        found[f"{ours}, logits x {factor:g}"] = (ours, factor, {})
    return found


@dataclass(frozen=True)
class GateStudy(ValidationStudy):
    """The paper's boundary under one change at a time, and our order under budgets beside it.

    Changed are the confidence of the target (its logits scaled), the start of the gates, the
    penalty, the loss of one draw, normalisation, classes that share a gate, the layers that the
    gate reads. Rows say what was restored, how the fit judges itself, and how well gate and
    attribution agree with the truth on validation graphs of label 1 that the target gets right.

    Attributes:
        settings: further changes of every fit, such as ``{"boundary__steps": 10}``.
        only: names of `changes`; by default all.
    """

    name = "gates"
    title = "What becomes of gates under one change at a time"
    max_graphs = 150

    settings: Mapping[str, Any] = field(default_factory=dict)
    only: tuple[str, ...] = ()

    def variants(self, task: Task, target: str) -> Iterable[Variant]:
        for setting, (fit, factor, changed) in changes().items():
            if self.only and setting not in self.only:
                continue
            explainer, mechanism = FITS[fit]
            yield Variant(
                setting=setting,
                explainer=explainer,
                mechanism=mechanism,
                settings={**SMALL, **self.settings, **changed},
                extra={} if factor == 1.0 else {"logits": factor},
            )

    def measure(self, job: Job) -> Iterator[Block]:
        model: nn.Module = job.model
        if "logits" in job.variant.extra:
            model = ScaledLogits(model, job.variant.extra["logits"])
        nice = job.explainer(model=model)
        assert isinstance(nice, NICE)  # the variants name no other
        statuses = job.fit_facts(nice)["fit_classes"]
        yield from fate_of_gates(nice, explained_batch(job), job.seed, statuses)
        yield Block("num_graphs", float(job.positions.numel()))


class ScaledLogits(nn.Module):
    """A model whose logits are multiplied: the same decisions with more or less confidence."""

    def __init__(self, model: nn.Module, factor: float) -> None:
        super().__init__()
        self.model, self.factor = model, factor

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        logits: Tensor = self.factor * self.model(x, edge_index, batch)
        return logits


def fate_of_gates(
    nice: NICE, batch: Batch, seed: int, statuses: Mapping[str, str]
) -> Iterator[Block]:
    """Yields what became of the gates of class 1, and agreement with the truth.

    Args:
        statuses: what the fit says of the gates of each class, by the class as text.
    """
    found = nice.explain(batch, target=1, seed=seed)
    truth = Truth.from_graphs(batch).to(batch.edge_index.device)
    yield Block("restored", float(found.restored.mean()))
    yield Block("risk", float(found.risk_boundary.mean()))
    for metric, score in (("gate_roc_auc", found.bond_gate), ("big_roc_auc", found.bond_big)):
        auc = truth_metrics(score, found.bonds, truth, protocol="strict")["roc_auc"]
        yield Block(metric, float(auc.nanmean()), "strict")
    yield Block("fit_status", 1.0, note=statuses.get("1", "insensitive"))


@dataclass(frozen=True)
class DepthStudy(ValidationStudy):
    """Gates on GINs that differ in readout and depth and in nothing else.

    They are trained here, alike and briefly. Rows: ``setting`` is ``sum, paper`` or the like,
    ``level`` the number of layers; metrics are those of `GateStudy`, how right the target is, and
    how sure it is of the explained graphs.

    Attributes:
        depths: numbers of layers.
        training: of the targets.
        settings: further changes of every fit.
    """

    name = "depth"
    title = "Gates on targets of other readout and depth"
    max_graphs = 150
    datasets = ("benzene",)

    depths: tuple[int, ...] = DEPTHS
    training: TrainConfig = TRAINING
    settings: Mapping[str, Any] = field(default_factory=dict)

    def variants(self, task: Task, target: str) -> Iterable[Variant]:
        for readout in READOUTS:
            for depth in self.depths:
                extra: dict[str, Any] = dict(self.settings)
                if self.training != TRAINING:
                    extra["training"] = vars(self.training)
                yield Variant(setting=readout, level=depth, extra=extra)

    def measure(self, job: Job) -> Iterator[Block]:
        task, readout = molecules_of(job), job.variant.setting
        model = self.new_target(job, readout, int(job.variant.level))
        report = train_classifier(
            model, task.part("train"), task.part("valid"), self.training, progress=False
        )
        model.eval()
        positions = task.explained(model, self.part, limit_of(job, "max_graphs"), True)
        batch = explained_batch(job, positions)
        sure = predict(model, batch.to_data_list())[:, 1].mean()
        for fit, (explainer, mechanism) in FITS.items():
            nice = get_explainer(
                explainer, model, mechanism=mechanism, **{**SMALL, **self.settings}
            )
            assert isinstance(nice, NICE)  # by its name
            fit_again(job, nice, job.seed)
            assert nice.fit_report is not None  # it was fitted
            judged = nice.fit_report.classes.items()
            statuses = {str(label): one.status for label, one in judged}
            for block in (
                *fate_of_gates(nice, batch, job.seed, statuses),
                Block("accuracy", report.valid_accuracy),
                Block("confidence", float(sure)),
            ):
                yield replace(block, setting=f"{readout}, {fit}")

    @staticmethod
    def new_target(job: Job, readout: str, depth: int) -> GraphClassifier:
        """Returns an untrained GIN; weights are the same in every run."""
        features = molecules_of(job).dataset.num_node_features
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(0)
            model = make_model("gin", features, 2, num_layers=depth, readout=readout)
        return model.to(next(job.model.parameters()).device)
