"""The paper's NICE with one part changed, and with one setting at several levels."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import torch

from nicegnn.explain.explanation import Explanation
from nicegnn.explain.nice import NICE
from nicegnn.graph.case import make_case
from nicegnn.intervention.mechanisms import NoiseCorruption
from nicegnn.intervention.query import Query
from nicegnn.seeding import mix
from nicegnn_lab.bench.job import Job
from nicegnn_lab.bench.rows import Block, mean_blocks
from nicegnn_lab.bench.study import Study, Variant
from nicegnn_lab.bench.task import Task
from nicegnn_lab.metrics.ranking import spearman

_NO_VARIATION = {"boundary__beta": 0.0}
_NO_COMPACTNESS = {"boundary__penalty": 0.0}

#: The two readings of the paper's noise by name in rows: the explainer.
BASES = {"paper": "nice-paper", "propagated": "nice-propagated"}
#: Changed parts by name in rows: title in tables, and settings that differ from the base. The first
#: word of a name is the base.
PARTS: dict[str, tuple[str, dict[str, Any]]] = {
    "paper": ("Full SRB", {}),
    "paper/no-variation": ("w/o Var.", _NO_VARIATION),
    "paper/no-compactness": ("w/o Comp.", _NO_COMPACTNESS),
    "propagated": ("Full SRB, propagated messages", {}),
    "propagated/no-variation": ("w/o Var., propagated messages", _NO_VARIATION),
    "propagated/no-compactness": ("w/o Comp., propagated messages", _NO_COMPACTNESS),
}


@dataclass(frozen=True)
class Sweep:
    """One setting of the paper's method and its levels."""

    name: str  # in rows
    title: str  # in tables and figures
    settings: tuple[str, ...]  # of NICE that all take the level, see `NICEConfig.with_`
    levels: tuple[float, ...]  # rising


_WEIGHTS = (0.0, 0.1, 0.3, 1.0, 3.0)
_COUNTS = (1, 2, 4, 8, 16, 32)
_DRAWS = ("boundary__num_draws", "attribution__num_draws")
SWEEPS = (
    Sweep("beta", "variation coefficient β", tuple(_NO_VARIATION), _WEIGHTS),
    Sweep("penalty", "compactness coefficient λ", tuple(_NO_COMPACTNESS), (*_WEIGHTS, 10.0)),
    Sweep("num_draws", "noise draws N", _DRAWS, _COUNTS[1:]),
    Sweep("num_nodes", "nodes of the path T", ("attribution__num_nodes",), _COUNTS),
)
#: Quality of every part, beside the numbers of `boundary_quality`.
QUALITY = ("roc_auc", "f1", "kept_area")


@dataclass(frozen=True)
class AblationStudy(Study):
    """The paper's NICE without one of its parts.

    Rows: means over graphs of `QUALITY`, `boundary_quality`, the status of the fit, and seconds.
    """

    name = "ablation"
    title = "What each part of the boundary contributes"

    parts: tuple[str, ...] = tuple(PARTS)
    settings: Mapping[str, Any] = field(default_factory=dict)  # changes of every base
    num_draws: int = 64  # noise draws of `boundary_quality`
    removals: tuple[str, ...] = ("em", "nc")  # how bonds are removed for ``kept_area``

    def variants(self, task: Task, target: str) -> Iterable[Variant]:
        for part in self.parts:
            yield Variant(
                setting=part,
                explainer=BASES[part.partition("/")[0]],
                settings={**self.settings, **PARTS[part][1]},
                extra={"num_draws": self.num_draws, "removals": sorted(self.removals)},
            )

    def measure(self, job: Job) -> Iterator[Block]:
        out = job.scores()
        yield from mean_blocks(job.quality(out, removals=self.removals, metrics=QUALITY))
        yield from boundary_quality(job, out, self.num_draws)
        yield Block("fit_status", 1.0, note=job.facts["fit_status"])
        yield Block("fit_seconds", job.fit_seconds)
        yield Block("explain_seconds", job.explain_seconds_per_graph)


@torch.no_grad()
def boundary_quality(job: Job, out: Explanation, num_draws: int) -> Iterator[Block]:
    r"""Yields mean and spread of the degradation at the boundary, and the restored share.

    .. math:: \mathrm{mean}_G\, \bar d_G, \qquad
        \mathrm{mean}_G \sqrt{\tfrac1N \sum_n (d_{Gn} - \bar d_G)^2}, \qquad
        \mathrm{mean}_G \tfrac1{|E_G|} \sum_e \rho^*_e

    Symbols: :math:`d_{Gn}` -> loss of log-probability under draw n (Eq. 11), also where gates were
    trained with another loss; :math:`\rho^*` -> ``bond_gate``. The fit did not use these draws.
    """
    nice = job.explainer
    assert isinstance(nice, NICE)  # the variants name no other
    config, mean, std, begin = nice.config, [], [], 0
    noise = NoiseCorruption(mix(job.seed, "boundary quality"), anchor=config.anchor)
    with nice.target.frozen():
        for positions in torch.split(job.positions, config.batch_size):
            case = make_case(job.batch(positions), undirected=config.undirected)
            query = Query(nice.target, case, noise, chunk_edges=config.chunk_edges)
            end = begin + query.case.bonds.batch.numel()
            gate = out.bond_gate[begin:end].to(nice.target.device)
            d = query.sample(gate, num_draws, mix(job.seed, "judged draws"))  # [N, B]
            mean.append(d.mean(0))
            std.append(d.std(0, correction=0))
            begin = end
    yield Block("degradation_mean", float(torch.cat(mean).mean()))
    yield Block("degradation_std", float(torch.cat(std).mean()))
    yield Block("restored", float(out.restored.mean()))


@dataclass(frozen=True)
class SensitivityStudy(Study):
    """The paper's NICE with one of its settings at several levels.

    Rows: ``setting`` is ``base/sweep``, ``level`` is that of the sweep. ``agreement_noise`` is the
    rank correlation of two explanations by the same gates with different noise, ``agreement_fit``
    that of two explanations by gates of this seed and of seed 0.
    """

    name = "sensitivity"
    title = "The paper's NICE under other settings"

    sweeps: tuple[Sweep, ...] = SWEEPS
    settings: Mapping[str, Any] = field(default_factory=dict)  # changes of every base
    num_draws: int = 64  # noise draws of `boundary_quality`

    def variants(self, task: Task, target: str) -> Iterable[Variant]:
        extra = {"num_draws": self.num_draws}
        for sweep, (base, explainer) in product(self.sweeps, BASES.items()):
            for level in sweep.levels:
                settings = {**self.settings, **dict.fromkeys(sweep.settings, level)}
                setting = f"{base}/{sweep.name}"
                yield Variant(setting, level, explainer, settings=settings, extra=extra)

    def measure(self, job: Job) -> Iterator[Block]:
        out = job.scores()
        yield from mean_blocks(job.quality(out, metrics=("roc_auc", "f1")))
        yield from boundary_quality(job, out, self.num_draws)
        again = job.scores(mix(job.seed, "again"))
        yield Block("agreement_noise", _agreement(out, again))
        yield Block("fit_seconds", job.fit_seconds)
        milliseconds = 1000 * job.explain_seconds_per_graph  # the second time: caches are warm
        yield Block("explain_milliseconds", milliseconds)
        if job.seed != 0:
            yield Block("agreement_fit", _agreement(out, job.at_seed(0).scores()))


def _agreement(first: Explanation, second: Explanation) -> float:
    batch, num = first.bonds.batch, first.num_graphs
    return float(spearman(first.ranking, second.ranking, batch, num).nanmean())
