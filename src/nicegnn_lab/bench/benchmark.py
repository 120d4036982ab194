"""The benchmark: explainers, their settings, agreement with the truth and fidelity."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from nicegnn.config import check_count
from nicegnn.errors import ConfigError
from nicegnn_lab.bench.job import Job
from nicegnn_lab.bench.measure import (
    GALLERY_SEED,
    GALLERY_SIZE,
    MetricConfig,
    measure_boundary,
    measure_gallery,
)
from nicegnn_lab.bench.plan import (
    TARGETS_FOLDER,
    check_seeds,
    check_tables,
    choose,
    make_cells,
    settings_for,
)
from nicegnn_lab.bench.rows import Block
from nicegnn_lab.bench.run import RunReport, run_cells
from nicegnn_lab.bench.study import Cell, Study, Variant
from nicegnn_lab.bench.task import MoleculeTask, Task, draw

BENCH_FOLDER = Path("results/bench")


@dataclass(frozen=True)
class Benchmark(Study):
    """Explainers with their settings, on graphs with known truth.

    Rows: seconds of fit and explanation, the status of the fit, agreement and fidelity of each
    graph; `measure_boundary` for explainers with gates; `measure_gallery` for one seed.
    """

    name = "bench"
    title = "Explainers on benchmarks with known truth"

    explainers: tuple[str, ...]  # names of `EXPLAINERS`, with "+nc" and so on for a mechanism
    tables: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # see `read_settings`
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
        yield from job.task.measure(scores, job.model, self.metrics, job.seed)
        if status := scores.facts.get("fit_status"):
            yield Block("fit_status", 1.0, note=status)
        if isinstance(job.task, MoleculeTask):
            part = job.task.part(job.part)
            if self.metrics.protocols:
                yield from measure_boundary(scores, part, job.seed)
            if job.seed == GALLERY_SEED:
                shown = draw(scores.num_graphs, GALLERY_SIZE, "gallery")
                yield from measure_gallery(scores, part, shown)


@dataclass(frozen=True)
class BenchConfig:
    """Which explainers run on which graphs; every combination with every seed is a cell."""

    datasets: tuple[str, ...]  # names of `DATASETS` with true bonds
    explainers: tuple[str, ...]  # names of `EXPLAINERS`, with "+nc" and so on for a mechanism
    targets: tuple[str, ...] = ("gin",)  # names of `TARGETS`
    seeds: tuple[int, ...] = (0,)  # seeds of the explainers
    out: Path = BENCH_FOLDER  # folder of scores, rows and failures
    targets_folder: Path = TARGETS_FOLDER  # trained targets, see `nicegnn lab train-targets`
    max_graphs: int | None = None  # most graphs to explain, the same in every cell; none for all
    fit_graphs: int | None = None  # most training graphs of a fit, likewise
    device: str | None = None  # "cpu" or "cuda"; none: "cuda" where there is a GPU
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # see `read_settings`
    metrics: MetricConfig = field(default_factory=MetricConfig)  # what is computed from scores

    def __post_init__(self) -> None:
        for name in ("datasets", "explainers", "targets", "seeds"):
            given = getattr(self, name)
            values = tuple(dict.fromkeys((given,) if isinstance(given, str | int) else given))
            if not values:
                raise ConfigError(f"`{name}` must name at least one (got none).")
            object.__setattr__(self, name, values)
        check_seeds(self.seeds)
        check_count(self, "max_graphs", "fit_graphs", optional=True)
        try:
            torch.device(self.device or "cpu")
        except RuntimeError:
            raise ConfigError(f"`device` must be 'cpu' or 'cuda' (got {self.device!r}).") from None
        for name in ("out", "targets_folder"):
            object.__setattr__(self, name, Path(getattr(self, name)).expanduser())

    @property
    def study(self) -> Benchmark:
        """The study whose cells these settings choose."""
        return Benchmark(self.explainers, self.settings, self.metrics)

    def cells(self) -> list[Cell]:
        """Returns all cells; see `make_cells`."""
        names = ("targets_folder", "device", "max_graphs", "fit_graphs")
        given = {name: getattr(self, name) for name in names}
        return make_cells(self.study, self.datasets, self.targets, self.seeds, **given)


def run_bench(
    config: BenchConfig,
    *,
    progress: bool = False,
    say: Callable[[str], None] | None = None,
) -> RunReport:
    """Runs the cells of a benchmark that have no rows yet; see `run_study` for the arguments."""
    return run_cells(
        config.study,
        config.cells(),
        config.out,
        targets_folder=config.targets_folder,
        device=config.device,
        progress=progress,
        say=say,
    )
