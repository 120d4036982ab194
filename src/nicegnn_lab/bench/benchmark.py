"""The benchmark: explainers, their settings, agreement with the truth and fidelity."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from nicegnn_lab.bench.job import Job
from nicegnn_lab.bench.measure import (
    GALLERY_SEED,
    GALLERY_SIZE,
    MetricConfig,
    measure_boundary,
    measure_gallery,
)
from nicegnn_lab.bench.plan import Tables, check_tables, choose, settings_for
from nicegnn_lab.bench.rows import Block
from nicegnn_lab.bench.study import Study, Variant
from nicegnn_lab.bench.task import Task, draw


@dataclass(frozen=True)
class Benchmark(Study):
    """Explainers with their settings, on graphs with known truth.

    Rows: seconds of fit and explanation, the status of the fit, agreement and fidelity of each
    graph; `measure_boundary` for explainers with gates; `measure_gallery` for one seed.
    """

    name = "bench"
    title = "Explainers on benchmarks with known truth"

    explainers: tuple[str, ...]  # names of `EXPLAINERS`, with "+nc" and so on for a mechanism
    tables: Tables = field(default_factory=dict)  # their settings, see `read_settings`
    metrics: MetricConfig = field(default_factory=MetricConfig)

    def variants(self, task: Task, target: str) -> Iterable[Variant]:
        check_tables(self.tables)
        tables = settings_for(self.tables, task.name, target)
        extra = self.metrics.identity()
        for name in self.explainers:
            explainer, mechanism, settings = choose(name, tables)
            yield Variant(explainer=explainer, mechanism=mechanism, settings=settings, extra=extra)

    def measure(self, job: Job) -> Iterator[Block]:
        scores = job.scores()
        yield Block("fit_seconds", scores.fit_seconds)
        yield Block("explain_seconds_per_graph", scores.explain_seconds_per_graph)
        yield from job.measured(scores, self.metrics)
        if status := scores.facts.get("fit_status"):
            yield Block("fit_status", 1.0, note=status)
        if self.metrics.protocols:
            yield from measure_boundary(scores, job.graphs, job.seed)
        if job.seed == GALLERY_SEED:
            shown = draw(scores.num_graphs, GALLERY_SIZE, "gallery")
            yield from measure_gallery(scores, job.graphs, shown)
