"""Why our numbers differ from the paper's: settings of rivals, targets, noise and masking."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Batch

from nicegnn.attribution.bond_by_bond import loss_without_each
from nicegnn.explain.nice import NICE
from nicegnn.graph.case import make_case
from nicegnn.intervention.mechanisms import ElementMask
from nicegnn.intervention.query import Query
from nicegnn.target.frozen_model import Target
from nicegnn.target.training import predict
from nicegnn_lab.bench.job import Job
from nicegnn_lab.bench.plan import CHOSEN_FILE, read_settings, settings_for
from nicegnn_lab.bench.rows import Block
from nicegnn_lab.bench.study import Variant
from nicegnn_lab.bench.targets import TARGETS
from nicegnn_lab.bench.task import Task
from nicegnn_lab.datasets import MoleculeDataset
from nicegnn_lab.metrics import Truth, truth_metrics
from nicegnn_lab.metrics.ranking import graph_sum
from nicegnn_lab.studies.bond_scores import (
    ChangedAnswers,
    ValidationStudy,
    explained_batch,
    judge,
    molecules_of,
    query_of,
)

PYG_GNNEXPLAINER = {"learning_rate": 0.01, "steps": 100, "size": 0.005, "entropy": 1.0}
PYG_PGEXPLAINER = {
    "learning_rate": 0.003,
    "size": 0.05,
    "entropy": 1.0,
    "last_temperature": 2.0,
    "layers": "last",
}
#: Settings of the best tuning trial of ProxyExplainer with all pairs.
ALL_PAIRS = {"pairs": "auto", "learning_rate": 0.001, "size": 0.0005}
#: Factors of all messages.
ALIKE = (0.0, 0.25, 0.5, 0.75, 0.9, 1.0)
MANY_RINGS = 4  # graphs of label 1 in Rings-Count have more rings


def rival_changes(tuned: dict[str, dict[str, Any]]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yields name in rows, explainer and settings; `tuned` are those of the benchmark."""
    for name in ("saliency", "guided-backprop", "gnnexplainer", "pgexplainer", "confexplainer"):
        yield f"{name}, as benchmarked", name, tuned.get(name, {})
    yield "saliency of the probability", "saliency", {"absolute": True}
    yield "saliency with its sign", "saliency", {"absolute": False}
    yield "gnnexplainer, PyG's settings", "gnnexplainer", PYG_GNNEXPLAINER
    yield "pgexplainer, PyG's settings", "pgexplainer", PYG_PGEXPLAINER
    yield "pgexplainer, PyG's settings, 30 steps", "pgexplainer", PYG_PGEXPLAINER | {"steps": 30}
    yield "confexplainer, released weights", "confexplainer", {"size": 3e-4}
    proxy = tuned.get("proxyexplainer", {})
    yield "proxyexplainer, as benchmarked", "proxyexplainer", proxy
    yield "proxyexplainer, all pairs", "proxyexplainer", proxy | ALL_PAIRS
    yield "proxyexplainer, released noise", "proxyexplainer", proxy | {"noise_scale": 0.01}
    for steps in (0, 20):
        fine_tuned = tuned.get("refine", {}) | {"fine_tune_steps": steps}
        yield f"refine, {steps} steps of fine-tuning", "refine", fine_tuned


@dataclass(frozen=True)
class RivalStudy(ValidationStudy):
    """Each rival as benchmarked, and with one change from released code or PyG's defaults.

    Rows: the numbers of `judge`; ``own_mask`` is the probability of class 1 under a learned mask,
    ``probability`` that with all messages times one of `ALIKE`. Where ``probability`` is 0,
    objectives in the probability have no gradient.
    """

    name = "rivals"
    title = "Rivals as benchmarked, and with one thing changed"
    max_graphs = 200

    tuned: Path = CHOSEN_FILE  # settings that the benchmark uses
    only: tuple[str, ...] = ()  # names of `rival_changes`; () for all

    def variants(self, task: Task, target: str) -> Iterable[Variant]:
        tuned = settings_for(read_settings(self.tuned), task.name, target)
        for setting, explainer, settings in rival_changes(tuned):
            if not self.only or setting in self.only:
                yield Variant(setting=setting, explainer=explainer, settings=settings)
        for factor in ALIKE:
            yield Variant(setting=f"all messages times {factor:g}", extra={"factor": factor})

    def measure(self, job: Job) -> Iterator[Block]:
        batch = explained_batch(job)
        yield Block("num_graphs", float(batch.num_graphs))
        if "factor" in job.variant.extra:
            mask = torch.full((batch.num_edges,), job.variant.extra["factor"])
            kept = kept_under(job.model, batch, mask.to(batch.edge_index.device))
            yield Block("probability", float(kept.mean()))
            return
        of_probability = job.variant.setting == "saliency of the probability"
        probability = ChangedAnswers(job.model, lambda logits: logits.softmax(1))
        rival = job.explainer(model=probability if of_probability else None)
        score = job.scores(rival).bond_score.to(batch.edge_index.device)
        yield from judge(Target(job.model), batch, score, num_draws=16)
        if rival.learns:  # scores are the logits of masks
            mask = score.sigmoid()[make_case(batch).bonds.edge_bond]
            yield Block("own_mask", float(kept_under(job.model, batch, mask).mean()))


@torch.no_grad()
def kept_under(model: nn.Module, batch: Batch, mask: Tensor) -> Tensor:
    """Returns the probability of class 1 with messages times a mask ``[E]``, ``[B]``."""
    query = Query(Target(model), make_case(batch), ElementMask(), explained=1)
    with query.target.frozen():
        return query.answers(mask.unsqueeze(0), 0)[0, :, 1].exp()


class TruthStudy(ValidationStudy):
    """Log-odds that a target loses without a true bond, and without another bond.

    Where both losses are equal, the target does not use the truth, and a faithful explainer will
    not find it. Rows of `counted_rings` compare the number of rings with label and log-odds.
    """

    name = "truth"
    title = "Losses without a true bond, and without another bond"
    max_graphs = 100
    targets = tuple(TARGETS)

    def variants(self, task: Task, target: str) -> Iterable[Variant]:
        yield Variant(setting="one bond out")

    def measure(self, job: Job) -> Iterator[Block]:
        batch, nice = explained_batch(job), NICE(job.model)
        with nice.target.frozen():
            query = query_of(nice, batch)
            lost = loss_without_each(query, "signed-margin")
        bonds = query.case.bonds
        truth = Truth.from_graphs(batch).to(lost.device)
        is_true = bonds.mean(truth.edge_truth.to(lost)) > 0.5
        num = int(batch.num_graphs)
        for metric, chosen in (("lost_true", is_true), ("lost_other", ~is_true)):
            total = graph_sum(torch.where(chosen, lost, 0.0), bonds.batch, num)
            number = graph_sum(chosen.to(lost), bonds.batch, num)
            yield Block(metric, float((total / number)[number > 0].mean()))  # a mean of means
        auc = truth_metrics(lost, bonds, truth, protocol="strict")["roc_auc"]
        yield Block("roc_auc", float(auc.nanmean()), "strict")
        yield from counted_rings(job.model, molecules_of(job).part(self.part))
        yield Block("num_graphs", float(num))


def counted_rings(model: nn.Module, graphs: MoleculeDataset) -> Iterator[Block]:
    """Yields how often the number of rings gives the label, and its correlation with log-odds.

    A connected molecule has bonds - atoms + 1 rings, so a target can count rings without seeing
    them.
    """
    from scipy.stats import spearmanr

    batch = graphs.batch(torch.arange(len(graphs)))
    atoms = torch.bincount(batch.batch, minlength=len(graphs))
    edges = torch.bincount(batch.batch[batch.edge_index[0]], minlength=len(graphs))
    rings = edges // 2 - atoms + 1
    probability = predict(model, graphs).softmax(1).cpu()
    odds = torch.logit(probability[:, 1].double(), eps=1e-12)
    right = (rings > MANY_RINGS) == (graphs.y == 1)
    yield Block("label_by_count", float(right.double().mean()))
    yield Block("odds_by_count", float(spearmanr(rings.numpy(), odds.numpy()).statistic))
