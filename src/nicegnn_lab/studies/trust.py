"""Are warnings right? Agreement with the truth with and without them; overlap of two seeds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch_geometric.data import Batch

from nicegnn.explain.explanation import ADVICE, Explanation, Flag, concatenate
from nicegnn.explain.nice import NICE
from nicegnn.explain.trust import TOP, Part, bond_slots, judge_scores
from nicegnn.seeding import mix, slot_numbers
from nicegnn_lab.bench.job import Job
from nicegnn_lab.bench.rows import Block
from nicegnn_lab.bench.study import Variant
from nicegnn_lab.bench.task import Task
from nicegnn_lab.metrics import Truth, truth_metrics
from nicegnn_lab.studies.bond_scores import (
    ValidationStudy,
    batches,
    explained_batch,
    fitted_nice,
    query_of,
)

#: Names in rows, with explainer and settings. The fit is that of `NICEConfig.quick`.
WAYS: dict[str, tuple[str, dict[str, int]]] = {
    "instant": ("nice-instant", {}),
    "eight draws": ("nice-instant", {"attribution__num_draws": 8}),
    "quick": (
        "nice",
        {"boundary__steps": 150, "boundary__batch_size": 64, "boundary__fit_draws": 4},
    ),
}


@dataclass(frozen=True)
class TrustStudy(ValidationStudy):
    """Every graph is explained with two seeds; what the first says of itself is checked.

    Rows of each graph: ``roc_auc`` with the truth, ``flags`` as a number, ``overlap`` as it was
    expected and ``overlap_seen`` with the second seed, the other numbers of `Trust`, and
    ``random_warned``: whether random scores would have been warned of.
    """

    name = "trust"
    title = "Warnings beside the truth"
    version = 3
    max_graphs = 60
    targets = ("gin", "gcn")

    ways: tuple[str, ...] = tuple(WAYS)

    def variants(self, task: Task, target: str) -> Iterable[Variant]:
        for way in self.ways:
            explainer, settings = WAYS[way]
            yield Variant(way, explainer=explainer, settings=settings)

    def measure(self, job: Job) -> Iterator[Block]:
        nice = fitted_nice(job)
        first, second = (
            concatenate([nice.explain(b, seed=seed) for b in batches(job, nice.config.batch_size)])
            for seed in (job.seed, mix(job.seed, "again"))
        )
        assert first.trust is not None  # these explainers go bond by bond
        truth = Truth.from_graphs(explained_batch(job)).to(first.bond_score.device)
        values = {
            "roc_auc": truth_metrics(first.bond_score, first.bonds, truth)["roc_auc"],
            "flags": torch.tensor([int(flag) for flag in first.status.flags]),
            "overlap_seen": overlap(first, second),
            "random_warned": torch.cat(
                [random_warned(nice, b, job.seed) for b in batches(job, nice.config.batch_size)]
            ),
            **first.trust.columns(),
        }
        for metric, value in values.items():
            yield Block(metric, value, graph=job.positions)


def overlap(first: Explanation, second: Explanation) -> Tensor:
    """Returns the share of the top bonds of one explanation that another has too, ``[B]``."""
    one, other = first.top(TOP), second.top(TOP)
    batch, num = first.bonds.batch, first.num_graphs
    size = torch.bincount(batch[one], minlength=num)
    return torch.bincount(batch[one & other], minlength=num) / size


def random_warned(nice: NICE, batch: Batch, seed: int) -> Tensor:
    """Returns whether random scores would be no better than random, ``[B]``."""
    with nice.target.frozen():
        query = query_of(nice, batch)
        stream = mix(seed, "random scores")
        chance = slot_numbers(stream, bond_slots(query.case), kind="uniform")
        trust = judge_scores(query, chance, [Part(chance)], seed)
    flags = [float(Flag.NO_BETTER_THAN_RANDOM in flag) for flag in trust.flags]
    return torch.tensor(flags)


def warned(flags: Iterable[float], flag: Flag) -> list[bool]:
    """Returns whether numbers of flags in rows hold one of some flags."""
    return [bool(flag & Flag(int(value))) for value in flags]


#: Flags in the order of their advice, without those of graphs that have nothing to explain.
JUDGED = tuple(flag for flag in ADVICE if flag is not Flag.NO_EDGES)
