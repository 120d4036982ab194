"""The benchmark: explainers with their settings, and the rows measured from their explanations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from nicegnn.config import Count, check_choice, check_number
from nicegnn.errors import MetricError
from nicegnn.explain.explanation import Explanation
from nicegnn.target.frozen_model import Target
from nicegnn_lab.bench.plan import Tables, settings_of
from nicegnn_lab.bench.rows import Block
from nicegnn_lab.bench.study import Study, Variant, code_hash, without_defaults
from nicegnn_lab.bench.task import Task
from nicegnn_lab.metrics.agreement import PROTOCOLS, Truth, selected_graphs, truth_metrics
from nicegnn_lab.metrics.fidelity import RATIOS, REMOVALS, fidelity_curve
from nicegnn_lab.metrics.metric import Measured, get_metric, own_metrics

if TYPE_CHECKING:
    from nicegnn_lab.bench.job import Job


@dataclass(frozen=True)
class MetricConfig:
    """What is measured of explanations beside their agreement with the truth."""

    removals: tuple[str, ...] = REMOVALS  # how bonds are removed for fidelity; () for no fidelity
    num_draws: int = 4  # draws of the removal "nc"
    own: tuple[str, ...] = ()  # metrics of one's own, see `Metric`

    def __post_init__(self) -> None:
        for name, choices in (("removals", REMOVALS), ("own", own_metrics())):
            for one in getattr(self, name):
                check_choice(name, one, choices)
        check_number("num_draws", self.num_draws, Count)

    def identity(self) -> dict[str, Any]:
        """Returns the settings that change numbers, as plain values."""
        measures = {name: get_metric(name).measure for name in self.own}
        plain = {
            "removals": [name for name in REMOVALS if name in self.removals],
            "num_draws": self.num_draws if "nc" in self.removals else 0,
            "own": {name: code_hash(measure.__module__) for name, measure in measures.items()},
        }
        # keys leave these out, so that new settings change none
        return without_defaults(plain, {"removals": [*REMOVALS], "num_draws": 16, "own": {}})


@dataclass(frozen=True)
class Benchmark(Study):
    """Explainers with their settings, on graphs with known truth.

    Rows: seconds of fit and explanation, and `measure_molecules`.
    """

    name = "bench"
    title = "Explainers on benchmarks with known truth"

    explainers: tuple[str, ...]  # names of `EXPLAINERS`, with "+nc" and so on for a mechanism
    tables: Tables = field(default_factory=dict)  # their settings, see `read_settings`
    metrics: MetricConfig = field(default_factory=MetricConfig)

    def variants(self, task: Task, target: str) -> Iterable[Variant]:
        extra = self.metrics.identity()
        for name in self.explainers:
            settings = settings_of(name, self.tables, task.name, target)
            yield Variant(explainer=name, settings=settings, extra=extra)

    def measure(self, job: Job) -> Iterator[Block]:
        out = job.scores()
        yield Block("fit_seconds", job.fit_seconds)
        yield Block("explain_seconds_per_graph", job.explain_seconds_per_graph)
        yield from measure_molecules(job, out, self.metrics)


def measure_molecules(job: Job, out: Explanation, metrics: MetricConfig) -> Iterator[Block]:
    """Yields agreement with the truth and fidelity of each explained graph, and its curve's mean.

    The job's seed orders equal scores and draws the noise of fidelity. Fidelity is nan where the
    explained class is not the predicted one.
    """
    batch, predicted = job.graphs.batch(job.positions), out.prediction.argmax(1)
    truth, place = Truth.from_graphs(batch), job.positions
    shown = (out.ranking, out.bonds, truth, batch, job.model, out.target, out.prediction)
    own = {name: _own_value(name, Measured(*shown)) for name in metrics.own}
    for protocol in PROTOCOLS:
        chosen = selected_graphs(batch.y, predicted, truth, protocol)
        values = truth_metrics(out.ranking, out.bonds, truth, protocol=protocol, seed=job.seed)
        for metric, value in {**values, **own}.items():
            yield Block(metric, value[chosen], protocol, place[chosen])
    target, draws = Target(job.model), {"num_draws": metrics.num_draws, "seed": job.seed}
    for removal in metrics.removals:
        given: dict[str, Any] = {"removal": removal, "explained": out.target, **draws}
        curve = fidelity_curve(target, batch, out.bonds, out.ranking, **given)
        area, *kept = (
            torch.where(out.target == predicted, row.cpu(), torch.nan)
            for row in (curve.area, *curve.kept)  # [B] each
        )
        yield Block("kept_area", area, removal, place)
        for ratio, value in zip(RATIOS, kept, strict=True):
            yield Block("kept", float(value.nanmean()), removal, level=ratio)


def _own_value(name: str, measured: Measured) -> Tensor:
    measure: Any = get_metric(name).measure
    with torch.no_grad():
        value = torch.as_tensor(measure(measured)).detach().cpu().double()
    num_graphs = measured.truth.num_graphs
    is_one_each = value.shape == (num_graphs,)
    if not is_one_each or bool((value.abs() > 1).any()):
        got = f"{value.abs().max():g}" if is_one_each else f"shape {list(value.shape)}"
        raise MetricError(
            f"Metric {name!r} must return a share per graph, [{num_graphs}], nan where there is "
            f"none (got {got}). Correct its function."
        )
    return value
