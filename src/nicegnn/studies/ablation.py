"""What each part of NICE is worth: the paper's ablation of SRB, and one of our own defaults."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from nicegnn.bench.job import Job
from nicegnn.bench.rows import Block, mean_blocks
from nicegnn.bench.scores import Scores
from nicegnn.bench.study import Study, Variant
from nicegnn.bench.task import Task
from nicegnn.errors import ConfigError
from nicegnn.explain.nice import NICE
from nicegnn.intervention.mechanisms import NoiseCorruption
from nicegnn.seeding import mix
from nicegnn.studies.bond_scores import batches, query_of

_NO_VARIATION = {"boundary__beta": 0.0, "attribution__beta": 0.0}
_LOG_PROB = {"boundary__degradation": "log-prob", "attribution__degradation": "log-prob"}
_CLEAN_JOINT_PATH = {"attribution__path": "joint", "attribution__context": "clean"}

#: What is changed, by its name in rows: title in tables, and settings that differ from the base,
#: which is ``nice-paper`` where the name begins with ``paper``, else ``nice``.
PARTS: dict[str, tuple[str, dict[str, Any]]] = {
    "paper": ("Full SRB", {}),
    "paper/no-variation": ("w/o Var.", _NO_VARIATION),
    "paper/no-compactness": ("w/o Comp.", {"boundary__penalty": 0.0}),
    "nice": ("our defaults", {}),
    "nice/noise-alone": ("noise alone, without masking", {"mechanism": "nc"}),
    "nice/masking-alone": ("masking alone, without noise", {"mechanism": "em"}),
    "nice/no-variation": ("without variation (beta 0)", _NO_VARIATION),
    "nice/log-prob": ("log-probability instead of margin", _LOG_PROB),
    "nice/one-gate-for-all": (
        "one gate network for all classes",
        {"boundary__class_gates": False},
    ),
    "nice/no-context": ("without graph context", {"boundary__graph_context": False}),
    "nice/contrast": ("contrast 0.5 instead of 0", {"boundary__contrast": 0.5}),
    "nice/score-gate": ("score: gate alone", {"score": "gate"}),
    "nice/score-big": ("score: attribution alone", {"score": "big"}),
    "nice/joint-path": ("joint path, corrupted context", {"attribution__path": "joint"}),
    "nice/joint-path-clean": ("joint path, clean context", _CLEAN_JOINT_PATH),
    "nice/joint-path-big": (
        "joint path, attribution alone",
        {"attribution__path": "joint", "score": "big"},
    ),
}
#: Quality of every variant, beside the numbers of `boundary_quality`.
QUALITY = ("roc_auc", "f1", "kept_area")


@dataclass(frozen=True)
class AblationStudy(Study):
    """NICE without one of its parts at a time.

    Rows: means over graphs of agreement with the truth and of the area of prediction kept, the
    numbers of `boundary_quality`, what the fit says of itself, and seconds.

    Attributes:
        parts: names of `PARTS`.
        settings: changes of every base, such as ``{"boundary__steps": 200}``.
        num_draws: noise draws by which boundaries are judged.
        removals: of the area of prediction kept.
    """

    name = "ablation"
    title = "What each part of NICE is worth"

    parts: tuple[str, ...] = tuple(PARTS)
    settings: Mapping[str, Any] = field(default_factory=dict)
    num_draws: int = 64
    removals: tuple[str, ...] = ("em", "nc")

    def __post_init__(self) -> None:
        unknown = sorted(set(self.parts) - set(PARTS))
        if unknown:
            raise ConfigError(f"`parts` must be names of {tuple(PARTS)} (got {unknown}).")

    def variants(self, task: Task, target: str) -> Iterable[Variant]:
        for part in self.parts:
            _, changes = PARTS[part]
            plain = {name: value for name, value in changes.items() if name != "mechanism"}
            yield Variant(
                setting=part,
                explainer="nice-paper" if part.startswith("paper") else "nice",
                mechanism=changes.get("mechanism", ""),
                settings={**self.settings, **plain},
                extra={"num_draws": self.num_draws, "removals": sorted(self.removals)},
            )

    def measure(self, job: Job) -> Iterator[Block]:
        nice = job.explainer()
        assert isinstance(nice, NICE)  # the variants name no other
        scores = job.scores(nice)
        found = job.quality(
            scores, protocols=("paper", "strict"), removals=self.removals, metrics=QUALITY
        )
        yield from mean_blocks(found)
        yield from boundary_quality(job, nice, scores, self.num_draws)
        yield Block("fit_status", 1.0, note=scores.facts["fit_status"])
        yield Block("fit_seconds", scores.fit_seconds)
        yield Block("explain_seconds", scores.explain_seconds_per_graph)


@torch.no_grad()
def boundary_quality(job: Job, nice: NICE, scores: Scores, num_draws: int) -> Iterator[Block]:
    r"""Yields mean and spread of the degradation at the boundary, and the restored share.

    .. math:: \mathrm{mean}_G\, \bar d_G, \qquad
        \mathrm{mean}_G \sqrt{\tfrac1N \sum_n (d_{Gn} - \bar d_G)^2}, \qquad
        \mathrm{mean}_G \tfrac1{|E_G|} \sum_e \rho^*_e

    Symbols: :math:`d_{Gn}` -> loss of log-probability under draw n (Eq. 11), whatever loss the
    gates were trained with, so that all can be compared; :math:`\rho^*` -> ``bond_gate``. The draws
    are other ones than those by which the gates were fitted and placed.
    """
    noise = NoiseCorruption(mix(job.seed, "boundary quality"))
    mean, std = [], []
    begin = 0
    with nice.target.frozen():
        for batch in batches(job, nice.config.batch_size):
            query = query_of(nice, batch).under(noise)
            end = begin + query.case.bonds.batch.numel()
            gate = scores.extras["bond_gate"][begin:end].to(nice.target.device)
            d = query.sample(gate, num_draws, mix(job.seed, "judged draws"))  # [N, B]
            mean.append(d.mean(0))
            std.append(d.std(0, correction=0))
            begin = end
    yield Block("degradation_mean", float(torch.cat(mean).mean()))
    yield Block("degradation_std", float(torch.cat(std).mean()))
    yield Block("restored", float(scores.extras["restored"].mean()))
