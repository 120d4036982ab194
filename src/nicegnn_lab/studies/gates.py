"""When gates saturate or invert: under one change at a time, and on deeper targets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch_geometric.data import Batch

from nicegnn.explain.nice import NICE
from nicegnn.target.training import TrainConfig, predict, train_classifier
from nicegnn.target.zoo import GraphClassifier, make_model
from nicegnn_lab.bench.job import Job
from nicegnn_lab.bench.rows import Block
from nicegnn_lab.bench.study import Variant
from nicegnn_lab.bench.task import Task
from nicegnn_lab.metrics import Truth, truth_metrics
from nicegnn_lab.rivals import get_explainer
from nicegnn_lab.studies.bond_scores import (
    ChangedAnswers,
    ValidationStudy,
    explained_batch,
    fit_again,
    fitted_nice,
    limit_of,
    molecules_of,
)

#: A short fit, the same for all changes.
SMALL = {
    "boundary__steps": 300,
    "boundary__batch_size": 128,
    "boundary__fit_draws": 8,
    "boundary__num_draws": 8,
    "attribution__num_draws": 16,
}
#: Ways to fit gates: explainer and mechanism.
FITS = {
    "paper": ("nice-paper", "nc"),
    "propagated": ("nice-propagated", "nc"),
    "order under budgets": ("nice", "nc"),
}
TRAINING = TrainConfig(batch_size=256, epochs=40, patience=10, stop_after=20)


def changes() -> dict[str, tuple[str, float, dict[str, Any]]]:
    """Returns changes by their names in rows: fit, factor of the logits, settings."""
    *readings, ours = FITS
    settings: dict[str, dict[str, Any]] = {
        **{f"start {start:g}": {"boundary__start": start} for start in (0.05, 0.95)},
        **{f"penalty {p:g}": {"boundary__penalty": p} for p in (0.01, 0.1, 0.3, 3.0)},
        "no spread": {"boundary__beta": 0.0},
        "loss of log-odds": {"boundary__degradation": "margin"},
        "relative risk": {"boundary__normalise_risk": True},
        "a gate per class": {"boundary__class_gates": True},
        "class 1 alone": {"boundary__classes": (1,)},
        "all layers": {"boundary__layers": "all"},
    }
    found: dict[str, tuple[str, float, dict[str, Any]]] = {}
    for paper in readings:
        found[paper] = (paper, 1.0, {})
        found |= {f"{paper}, logits x {x:g}": (paper, x, {}) for x in (0.1, 0.3, 3.0, 10.0)}
        found |= {f"{paper}, {name}": (paper, 1.0, some) for name, some in settings.items()}
    return {
        **found,
        ours: (ours, 1.0, {}),
        **{f"{ours}, logits x {x:g}": (ours, x, {}) for x in (0.1, 10.0)},
    }


@dataclass(frozen=True)
class GateStudy(ValidationStudy):
    """The paper's boundary under one of `changes` at a time, and our order under budgets.

    Rows: the restored share, risk and status of the fit, and agreement of gate and attribution with
    the truth.
    """

    name = "gates"
    title = "Gates under one change at a time"
    max_graphs = 150

    settings: Mapping[str, Any] = field(default_factory=dict)  # that differ from `SMALL`
    only: tuple[str, ...] = ()  # names of `changes`; () for all

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
        factor = job.variant.extra.get("logits", 1.0)
        scaled = ChangedAnswers(job.model, lambda logits: factor * logits)
        nice = fitted_nice(job, model=job.model if factor == 1.0 else scaled)
        statuses = job.fit_facts(nice)["fit_classes"]
        yield from fate_of_gates(nice, explained_batch(job), job.seed, statuses)
        yield Block("num_graphs", float(job.positions.numel()))


def fate_of_gates(
    nice: NICE, batch: Batch, seed: int, statuses: Mapping[str, str]
) -> Iterator[Block]:
    """Yields restored share, risk, agreement with the truth and status of the gates of class 1."""
    found = nice.explain(batch, target=1, seed=seed, boundary=True)
    truth = Truth.from_graphs(batch).to(batch.edge_index.device)
    yield Block("restored", float(found.restored.mean()))
    yield Block("risk", float(found.risk_boundary.mean()))
    for metric, score in (("gate_roc_auc", found.bond_gate), ("big_roc_auc", found.bond_big)):
        auc = truth_metrics(score, found.bonds, truth, protocol="strict")["roc_auc"]
        yield Block(metric, float(auc.nanmean()), "strict")
    yield Block("fit_status", 1.0, note=statuses.get("1", "insensitive"))


@dataclass(frozen=True)
class DepthStudy(ValidationStudy):
    """Gates on GINs that differ in readout and depth alone, trained briefly here.

    Rows: ``setting`` is readout and fit, ``sum, paper``, ``level`` the number of layers; metrics
    are those of `GateStudy`, and the target's accuracy and mean confidence.
    """

    name = "depth"
    title = "Gates on targets of other readout and depth"
    version = 2  # version 1 had no fit "paper"
    max_graphs = 150
    datasets = ("benzene",)

    depths: tuple[int, ...] = (1, 2, 3, 5)  # numbers of layers
    training: TrainConfig = TRAINING  # of the targets
    settings: Mapping[str, Any] = field(default_factory=dict)  # that differ from `SMALL`

    def variants(self, task: Task, target: str) -> Iterable[Variant]:
        training = {} if self.training == TRAINING else {"training": vars(self.training)}
        for readout in ("sum", "mean"):
            for depth in self.depths:
                yield Variant(setting=readout, level=depth, extra={**self.settings, **training})

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
            settings = {**SMALL, **self.settings}
            nice = get_explainer(explainer, model, mechanism=mechanism, **settings)
            fit_again(job, nice, job.seed)
            assert isinstance(nice, NICE)  # by its name
            assert nice.fit_report is not None  # it was fitted
            statuses = {str(label): one.status for label, one in nice.fit_report.classes.items()}
            for block in (
                *fate_of_gates(nice, batch, job.seed, statuses),
                Block("accuracy", report.valid_accuracy),
                Block("confidence", float(sure)),
            ):
                yield replace(block, setting=f"{readout}, {fit}")

    @staticmethod
    def new_target(job: Job, readout: str, depth: int) -> GraphClassifier:
        """Returns an untrained GIN with the same weights in every run."""
        features = molecules_of(job).dataset.num_node_features
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(0)
            model = make_model("gin", features, 2, num_layers=depth, readout=readout)
        return model.to(next(job.model.parameters()).device)
