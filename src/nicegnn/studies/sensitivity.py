"""How NICE depends on beta, lambda (or the stated risk), noise draws and nodes of the path."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from nicegnn.bench.job import Job
from nicegnn.bench.rows import Block, mean_blocks
from nicegnn.bench.scores import Scores
from nicegnn.bench.study import Study, Variant
from nicegnn.bench.task import Task
from nicegnn.explain.nice import NICE
from nicegnn.graph.case import make_case
from nicegnn.metrics import spearman
from nicegnn.seeding import mix
from nicegnn.studies.ablation import boundary_quality
from nicegnn.studies.bond_scores import explained_batch

#: Configurations that are varied: explainer, mechanism, settings. What is swept is about noise.
#: The bond-wise path of our defaults has no nodes and needs no boundary, so our boundary is also
#: looked at with the joint path alone.
BASES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "paper": ("nice-paper", "nc", {}),
    "nice": ("nice", "nc", {}),
    "nice-joint": ("nice", "nc", {"attribution__path": "joint", "score": "big"}),
}


@dataclass(frozen=True)
class Sweep:
    """One quantity and the levels it takes.

    Attributes:
        name: in rows.
        title: in tables and figures.
        settings: of NICE that take the level together, see `NICEConfig.with_`.
        levels: rising.
        bases: names of `BASES` that it is varied in.
    """

    name: str
    title: str
    settings: tuple[str, ...]
    levels: tuple[float, ...]
    bases: tuple[str, ...]


SWEEPS = (
    Sweep(
        "beta",
        "variation coefficient β",
        ("boundary__beta", "attribution__beta"),
        (0.0, 0.1, 0.3, 1.0, 3.0),
        ("paper", "nice"),
    ),
    Sweep(
        "penalty",
        "compactness coefficient λ",
        ("boundary__penalty",),
        (0.0, 0.1, 0.3, 1.0, 3.0, 10.0),
        ("paper",),
    ),
    Sweep(
        "risk_target",
        "stated risk of the boundary",
        ("boundary__risk_target",),
        (0.01, 0.02, 0.05, 0.1, 0.2, 0.4),
        ("nice-joint",),
    ),
    Sweep(
        "num_draws",
        "noise draws N",
        ("boundary__num_draws", "boundary__fit_draws", "attribution__num_draws"),
        (2, 4, 8, 16, 32),
        ("paper", "nice"),
    ),
    Sweep(
        "num_nodes",
        "nodes of the path T",
        ("attribution__num_nodes",),
        (1, 2, 4, 8, 16, 32),
        ("paper", "nice-joint"),
    ),
)


@dataclass(frozen=True)
class SensitivityStudy(Study):
    """NICE with one of its settings at several levels.

    Rows: ``setting`` is ``base/sweep`` and ``level`` its number. ``agreement_noise`` is the rank
    correlation of two explanations by the same gates with other noise, ``agreement_fit`` that with
    the explanation by the gates of seed 0.

    Attributes:
        sweeps: what is varied.
        settings: changes of every base, such as ``{"boundary__steps": 200}``.
        num_draws: noise draws by which boundaries are judged.
    """

    name = "sensitivity"
    title = "NICE under other settings"

    sweeps: tuple[Sweep, ...] = SWEEPS
    settings: Mapping[str, Any] = field(default_factory=dict)
    num_draws: int = 64

    def variants(self, task: Task, target: str) -> Iterable[Variant]:
        for sweep in self.sweeps:
            for base in sweep.bases:
                explainer, mechanism, settings = BASES[base]
                for level in sweep.levels:
                    changes = dict.fromkeys(sweep.settings, level)
                    yield Variant(
                        setting=f"{base}/{sweep.name}",
                        level=level,
                        explainer=explainer,
                        mechanism=mechanism,
                        settings={**settings, **self.settings, **changes},
                        extra={"num_draws": self.num_draws},
                    )

    def measure(self, job: Job) -> Iterator[Block]:
        nice = job.explainer()
        assert isinstance(nice, NICE)  # the variants name no other
        scores = job.scores(nice)
        again = job.scores(nice, seed=mix(job.seed, "again"))
        yield from mean_blocks(job.quality(scores, metrics=("roc_auc", "f1")))
        yield from boundary_quality(job, nice, scores, self.num_draws)
        yield Block("agreement_noise", _agreement(job, scores, again))
        yield Block("fit_seconds", scores.fit_seconds)
        # caches are warm by now
        yield Block("explain_milliseconds", 1000 * again.explain_seconds_per_graph)
        if job.seed != 0:
            yield Block("agreement_fit", _agreement(job, scores, _of_seed_0(job).scores()))


def _of_seed_0(job: Job) -> Job:
    """Returns the same work with seed 0."""
    identity = job.cell.identity
    first = {**identity, "scores": {**identity["scores"], "seed": 0}}
    return replace(job, cell=replace(job.cell, seed=0, identity=first))


def _agreement(job: Job, first: Scores, second: Scores) -> float:
    """Returns the rank correlation of two scorings, mean over graphs that have one."""
    bonds = make_case(explained_batch(job)).bonds
    batch = bonds.batch.to(first.bond_score.device)
    found = spearman(first.bond_score, second.bond_score, batch, first.num_graphs)
    return float(found.nanmean())
