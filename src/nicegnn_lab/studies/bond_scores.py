"""Shared by studies: explained molecules as a batch, queries of them, quality of a score."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Batch

from nicegnn.errors import ConfigError
from nicegnn.explain.explainer import Explainer
from nicegnn.explain.nice import NICE
from nicegnn.graph.case import make_case
from nicegnn.intervention.query import Query
from nicegnn.target.frozen_model import Target
from nicegnn_lab.bench.job import Job
from nicegnn_lab.bench.rows import Block
from nicegnn_lab.bench.study import Study
from nicegnn_lab.bench.task import MoleculeTask
from nicegnn_lab.metrics import Truth, fidelity_curve, truth_metrics

#: Removals by which a score is judged without truth.
JUDGES = ("em", "nc", "delete")


class ValidationStudy(Study):
    """A study on validation graphs of label 1 that the target predicts right."""

    part = "valid"
    needs_right = True


class ChangedAnswers(nn.Module):
    """A model whose logits go through a function, such as a factor or softmax."""

    def __init__(self, model: nn.Module, change: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.model, self.change = model, change

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        return self.change(self.model(x, edge_index, batch))


def molecules_of(job: Job) -> MoleculeTask:
    """Returns the task of a job, which must be a `MoleculeTask`."""
    if not isinstance(job.task, MoleculeTask):
        raise ConfigError(
            f"`dataset` must be one of `nicegnn lab data ls` for this study (got "
            f"{job.task.name!r})."
        )
    return job.task


def explained_batch(job: Job, positions: Tensor | None = None) -> Batch:
    """Returns the explained molecules, or those at other positions, on the target's device."""
    graphs = molecules_of(job).part(job.part)
    device = next(job.model.parameters()).device
    return graphs.batch(job.positions if positions is None else positions).to(device)


def batches(job: Job, size: int) -> Iterator[Batch]:
    """Yields the explained molecules in batches of at most `size`."""
    for some in torch.split(job.positions, size):
        yield explained_batch(job, some)


def fitted_nice(job: Job, *, model: nn.Module | None = None, **changes: Any) -> NICE:
    """Returns `Job.explainer`, which must be NICE."""
    nice = job.explainer(model=model, **changes)
    assert isinstance(nice, NICE)  # the variants of these studies name no other
    return nice


def limit_of(job: Job, name: str) -> int | None:
    """Returns ``max_graphs`` or ``fit_graphs`` of a job; none for no limit."""
    found: int | None = job.cell.identity["scores"].get(name)
    return found


def fit_again(job: Job, explainer: Explainer, seed: int) -> None:
    """Fits an explainer that `Job.explainer` did not make, on the job's training graphs."""
    job.task.fit(explainer, limit_of(job, "fit_graphs"), seed)


def query_of(nice: NICE, batch: Batch, degradation: str = "log-prob") -> Query:
    """Returns an explainer's query about a batch; the target must be frozen."""
    return Query(
        nice.target,
        make_case(batch, undirected=nice.config.undirected),
        nice.mechanism,
        chunk_edges=nice.config.chunk_edges,
        degradation=degradation,
    )


def judge(
    target: Target,
    batch: Batch,
    score: Tensor,
    *,
    setting: str | None = None,
    removals: Sequence[str] = ("em", "nc"),
    num_draws: int = 8,
) -> Iterator[Block]:
    r"""Yields means over graphs of agreement with the truth and of ``kept`` and ``needed``.

    .. math:: kept = \tfrac1{|Q|} \sum_{q \in Q} p_1(S_q), \qquad
        needed = 1 - \tfrac1{|Q|} \sum_{q \in Q} p_1(G \setminus S_q)

    Symbols: :math:`S_q` -> the best share :math:`q` of a graph's bonds by ``score``, ``[M]``;
    :math:`p_1` -> probability of class 1, all other bonds being removed. Graphs have label 1.
    """
    bonds = make_case(batch, undirected=True).bonds
    truth = Truth.from_graphs(batch).to(score.device)
    paper = truth_metrics(score, bonds, truth, protocol="paper")
    strict = truth_metrics(score, bonds, truth, protocol="strict")
    values = {
        ("roc_auc", "strict"): strict["roc_auc"],
        ("roc_auc", "paper"): paper["roc_auc"],
        ("f1", "paper"): paper["f1"],
    }
    for removal in removals:
        curve = fidelity_curve(
            target, batch, bonds, score, removal=removal, num_draws=num_draws, explained=1
        )
        values["kept", removal] = curve.prob_kept
        values["needed", removal] = 1 - curve.prob_dropped
    for (metric, protocol), value in values.items():
        yield Block(metric, float(value.nanmean()), protocol, setting=setting)
