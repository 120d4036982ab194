"""Candidates for NICE's score, compared on validation graphs of label 1 that are predicted right.

Rows hold the numbers of `judge`. The probability that the best bonds keep chooses a candidate
without truth; agreement with the truth shows whether the choice was good.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any, ClassVar

import torch
from nicegnn.explain.score_parts import View, combine, standardise
from torch import Tensor
from torch_geometric.data import Batch

from nicegnn.attribution.bond_by_bond import bond_wise_gradient, loss_without_each, removal_loss
from nicegnn.attribution.joint_path import boundary_integrated_gradient
from nicegnn.boundary.fit import gate_logits
from nicegnn.boundary.objective import corrupted_risk, find_boundary
from nicegnn.config import NICEConfig
from nicegnn.explain.nice import NICE
from nicegnn.graph.case import Case, make_case
from nicegnn.intervention.intervene import Mechanism, Site
from nicegnn.intervention.mechanisms import ElementMask, NoiseCorruption
from nicegnn.target.frozen_model import Target
from nicegnn_lab.bench.job import Job
from nicegnn_lab.bench.rows import Block
from nicegnn_lab.bench.study import Variant
from nicegnn_lab.bench.targets import TARGETS
from nicegnn_lab.bench.task import Task
from nicegnn_lab.studies.bond_scores import (
    JUDGES,
    ValidationStudy,
    explained_batch,
    fit_again,
    fitted_nice,
    judge,
    query_of,
)

#: The short fit of `NICEConfig.quick`.
QUICK = {"boundary__steps": 150, "boundary__batch_size": 64, "boundary__fit_draws": 4}
#: Ways to learn the order of bonds: explainer, mechanism, settings.
FITS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "paper": ("nice-paper", "nc", {}),
    "propagated": ("nice-propagated", "nc", {}),
    "log-prob": ("nice", "nc", {"boundary__degradation": "log-prob"}),
    "margin": ("nice", "nc", {}),
    "margin, short fit": ("nice", "nc", {**QUICK, "boundary__steps": 300}),
    "margin, contrast": ("nice", "nc", {"boundary__contrast": 0.5}),
    "margin, em": ("nice", "em", {}),
    "margin, one gate for all classes": ("nice", "nc", {"boundary__class_gates": False}),
}
#: Ways to attribute along a joint path: context, degradation.
PATHS = {
    "from corruption, hinged log-probability": ("corrupted", "log-prob"),
    "from corruption, hinged margin": ("corrupted", "margin"),
    "from corruption, signed margin": ("corrupted", "signed-margin"),
    "among clean bonds, signed margin": ("clean", "signed-margin"),
}
#: Parts of the default score.
FOUR = ("order nc", "bond nc", "order em", "bond em")
NUM_NETWORKS = 4
#: Damage under which `JoinStudy` learns orders of bonds.
DAMAGE: dict[str, Mechanism] = {
    "nc": NoiseCorruption(antithetic=True),
    "em": ElementMask(),
    "nc-clean": NoiseCorruption(antithetic=True, anchor="clean"),
    "em-clean": ElementMask(anchor="clean"),
}
_LOSSES = ("loss nc", "loss em", "loss delete")
_FEW = ("loss nc, 4 draws", "loss em", "loss delete")
#: Parts that `JoinStudy` joins: orders, and losses without a bond. The first is the default's.
JOINS: tuple[tuple[str, ...], ...] = (
    ("order em", *_LOSSES),
    ("order nc", "order em", *_LOSSES),
    *((f"order {name}", *_LOSSES) for name in DAMAGE if name != "em"),
    ("order nc-clean", "order em-clean", *_LOSSES),
    ("order em, long fit", *_LOSSES),
    ("order em, long fit", *_FEW),
    ("order em", "loss nc"),
    ("order em", "loss em", "loss delete"),
    ("order em", "loss nc", "loss delete"),
    ("order em", "loss nc", "loss em"),
    _LOSSES,
    _FEW,
    *((one,) for one in (*_LOSSES, "order em, long fit")),
    *((f"order {name}",) for name in DAMAGE),
)


@dataclass(frozen=True)
class CandidateStudy(ValidationStudy):
    """Shared by studies of candidates."""

    judges: ClassVar[tuple[str, ...]] = JUDGES

    settings: Mapping[str, Any] = field(default_factory=dict)  # changes of every fit

    @abstractmethod
    def candidates(self, job: Job, batch: Batch) -> Mapping[str, Tensor]:
        """Returns a score of each bond, ``[M]``, by the name of the candidate."""

    def measure(self, job: Job) -> Iterator[Block]:
        batch, target = explained_batch(job), Target(job.model)
        for setting, score in self.candidates(job, batch).items():
            yield from judge(target, batch, score, setting=setting, removals=self.judges)
        yield Block("num_graphs", float(batch.num_graphs))


class ScoreStudy(CandidateStudy):
    """Every way to learn the order of bonds with every way to attribute."""

    name = "scores"
    title = "Candidate scores, compared without truth"
    max_graphs = 250
    judges = ("em", "nc")

    def variants(self, task: Task, target: str) -> Iterable[Variant]:
        for fit, (explainer, mechanism, settings) in FITS.items():
            changes = {**self.settings, **settings}
            yield Variant(fit, explainer=explainer, mechanism=mechanism, settings=changes)

    def candidates(self, job: Job, batch: Batch) -> Mapping[str, Tensor]:
        nice, fit, seed = fitted_nice(job), job.variant.setting, job.seed
        config = nice.config
        order = _order(nice, batch)
        found = {f"{fit}: order": order}
        with nice.target.frozen():
            query = query_of(nice, batch, config.boundary.degradation)
            reference = corrupted_risk(query, config.boundary, seed)
            boundary = find_boundary(query, order, config.boundary, seed, reference)
            joint = config.attribution.with_(path="joint", num_draws=64)
            for name, (context, degradation) in PATHS.items():
                along = joint.with_(context=context, degradation=degradation)
                score = boundary_integrated_gradient(query, boundary.gate, along, seed).score
                found[f"{fit}: path {name}"] = score
            bond_by_bond = config.attribution.with_(path="bond", degradation="signed-margin")
            alone = bond_wise_gradient(query, bond_by_bond, seed).score
        found[f"{fit}: bond by bond"] = alone
        found[f"{fit}: order and bond by bond"] = combine(query.case, order, alone)
        return found


class PartStudy(CandidateStudy):
    """Scores of several parts, each by noise, masking, or both.

    Parts are a learned order of bonds, and the loss when one bond alone is damaged.
    """

    name = "parts"
    title = "Parts of the score, by noise and by masking"
    max_graphs = 250
    judges = ("em", "nc")
    targets = tuple(TARGETS)

    def variants(self, task: Task, target: str) -> Iterable[Variant]:
        yield Variant(explainer="nice", settings=self.settings)

    def candidates(self, job: Job, batch: Batch) -> Mapping[str, Tensor]:
        parts = {}
        for name in ("nc", "em"):
            nice = fitted_nice(job, mechanism=name)
            parts[f"order {name}"] = _order(nice, batch)
            parts[f"bond {name}"] = _losses(nice, batch, job.seed)[0]
        config = NICEConfig().with_(**job.variant.settings)
        both = NICE(job.model, config, mechanism=NoiseAndMask())
        fit_again(job, both, job.seed)
        parts["order both"] = _order(both, batch)
        return joined(parts, make_case(batch))


class JoinStudy(CandidateStudy):
    """Sets of parts joined into a score, orders being learned under clean and propagated damage.

    All orders are learned in one fit; fits are short, but for one more under masking.
    """

    name = "joins"
    title = "Parts joined into a score"
    max_graphs = 100
    targets = tuple(TARGETS)

    def variants(self, task: Task, target: str) -> Iterable[Variant]:
        yield Variant(explainer="nice", settings={**QUICK, **self.settings})

    def candidates(self, job: Job, batch: Batch) -> Mapping[str, Tensor]:
        settings = job.variant.settings
        nice = NICE(job.model, NICEConfig().with_(**settings))
        nice.views = [View(mechanism, mechanism) for mechanism in DAMAGE.values()]
        fit_again(job, nice, job.seed)
        long = NICE(job.model, NICEConfig(mechanism="em").with_(**self.settings))
        fit_again(job, long, job.seed)
        case = make_case(batch)
        losses = _losses(nice, batch, job.seed)[:2]
        with nice.target.frozen(), torch.no_grad():
            query, how = query_of(nice, batch), nice.config.attribution
            losses.append(removal_loss(query, how.degradation, losses[1]))
            few = bond_wise_gradient(query, how.with_(num_draws=4), job.seed).score
        parts = dict(zip(_LOSSES, losses, strict=True))
        parts |= {f"order {name}": _order(nice, batch, k) for k, name in enumerate(DAMAGE)}
        parts |= {"order em, long fit": _order(long, batch), "loss nc, 4 draws": few}
        return {" + ".join(names): combine(case, *(parts[n] for n in names)) for names in JOINS}


class NoiseAndMask:
    """Noise in two draws of four (an antithetic pair), masking in the other two."""

    is_random = True

    def __init__(self) -> None:
        self.noise = NoiseCorruption(antithetic=True)
        self.mask = ElementMask()

    def __call__(self, message: Tensor, gate: Tensor, site: Site) -> Tensor:
        noised = self.noise(message, gate, site)
        masked = self.mask(message, gate, site)
        return torch.where((site.draw % 4 < 2).unsqueeze(1), noised, masked)


def joined(parts: Mapping[str, Tensor], case: Case) -> dict[str, Tensor]:
    """Returns a score for every set of parts in which no other order is beside "order both"."""
    scores = {}
    for size in range(1, len(parts)):
        for names in combinations(parts, size):
            if "order both" in names and sum("order" in name for name in names) > 1:
                continue
            scores[" + ".join(names)] = combine(case, *(parts[name] for name in names))
    return scores


class RemovalStudy(CandidateStudy):
    """Masking a bond's messages, and taking the bond out of the graph.

    The two differ where a layer divides by degrees or weighs neighbours, so not in GIN. Fits are
    short.
    """

    name = "removal"
    title = "Bonds masked or taken out of the graph"
    max_graphs = 100
    targets = ("gcn", "gat")

    def variants(self, task: Task, target: str) -> Iterable[Variant]:
        yield Variant(explainer="nice", settings={**QUICK, **self.settings})

    def candidates(self, job: Job, batch: Batch) -> Mapping[str, Tensor]:
        nice = fitted_nice(job)
        case = make_case(batch)
        noise, masked = _losses(nice, batch, job.seed)
        others = [_order(nice, batch), noise]
        with nice.target.frozen(), torch.no_grad():
            out = loss_without_each(query_of(nice, batch), nice.config.attribution.degradation)
        both = standardise(case, masked) + standardise(case, out)
        return {
            "masked": combine(case, *others, masked),
            "taken out": combine(case, *others, out),
            "masked and taken out, mean loss": combine(case, *others, masked + out),
            "masked and taken out, mean of standardised": combine(case, *others, both),
            "masked and taken out, as two parts": combine(case, *others, masked, out),
            "masked, alone": masked,
            "taken out, alone": out,
        }


class EnsembleStudy(CandidateStudy):
    """The mean order of several gate networks, and one network with as many steps in all.

    Each network has its own seed. Fits are short.
    """

    name = "ensembles"
    title = "One gate network or several"
    max_graphs = 100

    def variants(self, task: Task, target: str) -> Iterable[Variant]:
        yield Variant(explainer="nice", settings={**QUICK, **self.settings})

    def candidates(self, job: Job, batch: Batch) -> Mapping[str, Tensor]:
        config = NICEConfig().with_(**job.variant.settings)
        found = []
        for member in range(NUM_NETWORKS):
            nice = NICE(job.model, config)
            fit_again(job, nice, NUM_NETWORKS * job.seed + member)
            found.append(_standard_order(nice, batch))
        long = NICE(job.model, config.with_(boundary__steps=NUM_NETWORKS * config.boundary.steps))
        fit_again(job, long, NUM_NETWORKS * job.seed)
        learned = {f"one network, seed {member}": one for member, one in enumerate(found)}
        learned["one network, as long as all"] = _standard_order(long, batch)
        for size in (2, NUM_NETWORKS):
            learned[f"mean of {size} networks"] = torch.stack(found[:size]).mean(0)
        case, lost = make_case(batch), _losses(nice, batch, job.seed)
        scores = {}
        for setting, order in learned.items():
            scores[setting] = combine(case, order, *lost)
            scores[f"{setting}, order alone"] = combine(case, order)
        return scores


@torch.no_grad()
def _order(nice: NICE, batch: Batch, view: int = 0) -> Tensor:
    """Returns the order of bonds in one of the views that learned one, ``[M]``."""
    chosen = [one for one in nice.views if one.gates is not None][view]
    assert chosen.gates is not None  # it was fitted
    with nice.target.frozen():
        query = query_of(nice, batch).under(chosen.mechanism)
        return gate_logits(chosen.gates, query, nice.config)


def _standard_order(nice: NICE, batch: Batch) -> Tensor:
    """Returns the learned order of bonds, standardised within graphs, ``[M]``."""
    return standardise(make_case(batch), _order(nice, batch))


def _losses(nice: NICE, batch: Batch, seed: int) -> list[Tensor]:
    """Returns the loss without each bond in each view, ``[M]``; gates are not used."""
    with nice.target.frozen():
        query = query_of(nice, batch)
        return [
            bond_wise_gradient(query.under(view.mechanism), nice.config.attribution, seed).score
            for view in nice.views
        ]
