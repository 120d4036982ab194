"""Shared by studies of molecules: what is explained as a batch, queries, a background."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from torch_geometric.data import Batch

from nicegnn.errors import ConfigError
from nicegnn.explain.nice import NICE
from nicegnn.graph.case import make_case
from nicegnn.intervention.background import Background
from nicegnn.intervention.query import Query
from nicegnn_lab.bench.job import Job
from nicegnn_lab.bench.task import MoleculeTask


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
    for positions in torch.split(job.positions, size):
        yield explained_batch(job, positions)


def fitted_nice(job: Job) -> NICE:
    """Returns `Job.explainer`, which must be NICE."""
    nice = job.explainer
    assert isinstance(nice, NICE)  # the variants of these studies name no other
    return nice


def query_of(nice: NICE, batch: Batch) -> Query:
    """Returns an explainer's query about a batch; the target must be frozen."""
    case = make_case(batch, undirected=nice.config.undirected)
    return Query(nice.target, case, nice.mechanism(), chunk_edges=nice.config.chunk_edges)


def background_of(job: Job) -> Background:
    """Returns the background of the job's target: what its training graphs say."""
    background = molecules_of(job).background(job.model)
    assert background is not None  # these tasks have training graphs
    return background
