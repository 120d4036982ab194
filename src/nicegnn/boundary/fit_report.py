"""Judges without ground truth whether the order of fitted gates is useful, and if not, why."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from nicegnn.boundary.objective import RISK_FLOOR, budget_gates, sampled_risk
from nicegnn.config import BoundaryConfig
from nicegnn.graph.case import Case
from nicegnn.intervention.query import Query
from nicegnn.seeding import mix

_WORST_FIRST = ("inverted", "saturated-high", "saturated-low", "uninformative", "ok", "insensitive")
FIT_ADVICE = {
    "ok": "The learned order of bonds restores the prediction better than a shuffled one.",
    "insensitive": (
        "Corrupting every message hardly changes these predictions: they do not depend on edges, "
        "and no order of bonds restores them better than another."
    ),
    "saturated-high": (
        "All gates are open and give no ranking: the penalty is too small beside the risk. Use "
        "objective='budget', or normalise_risk=True, or a larger penalty."
    ),
    "saturated-low": (
        "All gates are closed and give no ranking: the penalty is too large beside the risk, and "
        "a closed gate has hardly any gradient. Use objective='budget', or start=0.95 with a "
        "smaller penalty."
    ),
    "uninformative": (
        "The learned order is no better than a shuffled one. Fit longer, use layers='all' and "
        "class_gates=True, or check that the model's predictions depend on edges at all."
    ),
    "inverted": (
        "The learned order is worse than a shuffled one: training ended in a local optimum that "
        "restores the wrong bonds. Start with open gates (start=0.95) or use objective='budget'."
    ),
}


@dataclass(frozen=True)
class Judgement:
    """How useful the learned order of bonds is for one class, judged without ground truth."""

    status: str  # a key of `FIT_ADVICE`
    num_graphs: int  # graphs it was judged on
    risk: dict[str, float]  # of each order with half the edges restored, relative to corruption


@dataclass(frozen=True)
class FitReport:
    """Course and result of a fit."""

    classes: dict[int, Judgement]  # of each explained class
    history: list[dict[str, float]] = field(repr=False)  # loss, risk, restored share at each step
    num_graphs: int  # graphs used
    num_left_out: int  # graphs left out: no edges, or none of the wanted classes
    seconds: float  # wall-clock time

    @property
    def status(self) -> str:
        """The worst status of any class; ``ok`` if all classes that depend on edges are ok."""
        statuses = [judgement.status for judgement in self.classes.values()]
        return next(status for status in _WORST_FIRST if status in statuses)

    @property
    def advice(self) -> str:
        """Meaning of the status, and what to do."""
        return FIT_ADVICE[self.status]


@torch.no_grad()
def judge_order(
    query: Query, logit: Tensor, reference: Tensor, config: BoundaryConfig, seed: int
) -> Judgement:
    """Judges gate logits by how well their order restores the prediction.

    Saturation is read from the gates. The order is useful if it leaves a lower risk, with half of
    the edges restored, than the same logits shuffled among the bonds of each graph.
    """
    scale = reference.clamp(min=RISK_FLOOR)
    half = torch.full_like(scale, 0.5)
    risks = {}
    for name, order in (
        ("learned", logit),
        ("shuffled", shuffle_within_graphs(logit, query.case, seed)),
        ("reversed", -logit),
    ):
        gate = budget_gates(order, half, query.case)
        risks[name] = sampled_risk(query, gate, config, mix(seed, "judge")) / scale
    status = _saturation(logit) if config.objective == "penalty" else None
    if status is None and float(reference.median()) < RISK_FLOOR:
        status = "insensitive"
    status = status or _usefulness(risks["shuffled"] - risks["learned"])
    means = {name: float(value.mean()) for name, value in risks.items()}
    return Judgement(status, query.case.num_graphs, means)


def _saturation(logit: Tensor) -> str | None:
    gate = logit.sigmoid()
    if float((gate > 0.97).float().mean()) > 0.95:
        return "saturated-high"
    if float((gate < 0.03).float().mean()) > 0.95:
        return "saturated-low"
    return None


def _usefulness(gain: Tensor) -> str:
    """Returns the status for the fall of risk from the shuffled to the learned order."""
    mean = float(gain.mean())
    error = float(gain.std()) / gain.numel() ** 0.5 if gain.numel() > 1 else abs(mean)
    if mean < -2 * error:
        return "inverted"
    return "ok" if mean > 2 * error else "uninformative"


def shuffle_within_graphs(value: Tensor, case: Case, seed: int) -> Tensor:
    """Permutes bond values among the bonds of each graph, ``[M]``."""
    generator = torch.Generator().manual_seed(mix(seed, "shuffle"))
    order = torch.rand(value.numel(), generator=generator).to(value.device).argsort()
    shuffled = order[case.bonds.batch[order].argsort(stable=True)]
    home = case.bonds.batch.argsort(stable=True)
    out = torch.empty_like(value)
    out[home] = value[shuffled]
    return out
