"""Convergence of BIG on the joint path in nodes, draws and quadrature."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

import torch
from torch import Tensor

from nicegnn.attribution.joint_path import boundary_integrated_gradient
from nicegnn.config import AttributionConfig
from nicegnn.explain.nice import NICE
from nicegnn.graph.case import make_case
from nicegnn.intervention.query import Query
from nicegnn.seeding import mix
from nicegnn_lab.bench.job import Job, wait_for
from nicegnn_lab.bench.rows import Block
from nicegnn_lab.bench.study import Study, Variant
from nicegnn_lab.bench.task import Task
from nicegnn_lab.metrics import Truth, selected_graphs, spearman, truth_metrics
from nicegnn_lab.studies.ablation import BASES
from nicegnn_lab.studies.bond_scores import batches, explained_batch, fitted_nice, query_of

#: Names in rows, and the configurations of `BASES` whose path is integrated.
PATHS = {"paper": "paper", "propagated": "propagated", "nice": "nice-joint"}
#: Settings that make NICE's own attribution cheap: this study computes its own.
_LEAST_WORK = {"attribution__num_nodes": 1, "attribution__num_draws": 1}


@dataclass(frozen=True)
class ConvergenceStudy(Study):
    """BIG with few nodes and draws against BIG with many, on the same gates.

    Rows: ``setting`` is ``base/quadrature/noise/draws`` and ``level`` the number of nodes.
    ``base/reference`` compares two references with different noise: no setting can be expected to
    agree better.
    """

    name = "convergence"
    title = "Convergence of the attribution"
    max_graphs = 200

    paths: tuple[str, ...] = tuple(PATHS)
    nodes: tuple[int, ...] = (2, 4, 8, 16, 32, 64)
    draws: tuple[int, ...] = (4, 16, 64)
    quadratures: tuple[str, ...] = ("riemann", "gauss", "gauss-sine")
    noise: tuple[str, ...] = ("fresh", "shared")
    reference_nodes: int = 64  # by Gauss-Legendre with fresh noise
    reference_draws: int = 512  # at each node
    settings: Mapping[str, Any] = field(default_factory=dict)  # changes of every base

    def variants(self, task: Task, target: str) -> Iterable[Variant]:
        for path in self.paths:
            explainer, mechanism, settings = BASES[PATHS[path]]
            yield Variant(
                setting=path,
                explainer=explainer,
                mechanism=mechanism,
                settings={**settings, **self.settings, **_LEAST_WORK},
                extra={
                    "nodes": list(self.nodes),
                    "draws": list(self.draws),
                    "quadratures": list(self.quadratures),
                    "noise": list(self.noise),
                    "reference": [self.reference_nodes, self.reference_draws],
                },
            )

    def measure(self, job: Job) -> Iterator[Block]:
        nice = fitted_nice(job)
        own = nice.config.attribution
        many = {"num_nodes": self.reference_nodes, "num_draws": self.reference_draws}
        best = own.with_(quadrature="gauss", draws="fresh", **many)
        paths = ends_of_paths(job, nice)
        reference = integrate(paths, best, mix(job.seed, "reference"))
        again = integrate(paths, best, mix(job.seed, "reference", "again"))
        base = job.variant.setting
        for block in compare(job, paths, again, reference):
            yield replace(block, setting=f"{base}/reference", level=float(best.num_nodes))
        for quadrature, noise, draws, nodes in product(
            self.quadratures, self.noise, self.draws, self.nodes
        ):
            config = own.with_(quadrature=quadrature, draws=noise, num_nodes=nodes, num_draws=draws)
            found = integrate(paths, config, job.seed)
            for block in compare(job, paths, found, reference):
                setting = f"{base}/{quadrature}/{noise}/{draws}"
                yield replace(block, setting=setting, level=float(nodes))


@dataclass(frozen=True)
class Integral:
    """BIG of all explained graphs."""

    score: Tensor  # of each bond, [M]
    gap: Tensor  # |sum of a graph's scores - fall of its risk|, [B]
    fall: Tensor  # |R(0) - R(rho*)| by the same draws, [B]
    seconds: float  # of the integration


#: Queries of the graphs, batch after batch, each with its boundary ``[M]``.
Paths = list[tuple[Query, Tensor]]


def ends_of_paths(job: Job, nice: NICE) -> Paths:
    """Returns queries and the ends of their paths, the boundaries of the fitted gates."""
    found = []
    for batch in batches(job, nice.config.batch_size):
        gate = nice.explain(batch, seed=job.seed, boundary=True).bond_gate
        with nice.target.frozen():
            found.append((query_of(nice, batch), gate))
    return found


def integrate(paths: Paths, config: AttributionConfig, seed: int) -> Integral:
    """Returns BIG of all graphs."""
    target = paths[0][0].target
    started = time.perf_counter()
    with target.frozen():
        parts = [boundary_integrated_gradient(query, gate, config, seed) for query, gate in paths]
    wait_for(target.device)
    seconds = time.perf_counter() - started
    fall = [(part.risk_corrupted - part.risk_boundary).abs() for part in parts]
    return Integral(
        torch.cat([part.score for part in parts]).cpu(),
        torch.cat([part.completeness_gap for part in parts]).cpu(),
        torch.cat(fall).cpu(),
        seconds,
    )


def compare(job: Job, paths: Paths, found: Integral, reference: Integral) -> Iterator[Block]:
    r"""Yields the numbers of one integration.

    .. math:: gap = \frac{\sum_G |\sum_e s_e - (R(0) - R(\rho^*))|}{\sum_G |R(0) - R(\rho^*)|},
        \qquad error = \frac{\sum_e |s_e - s^{ref}_e|}{\sum_e |s^{ref}_e|}

    Sums over all graphs come first, because the risk of a single graph may barely fall.
    """
    batch = explained_batch(job).to("cpu")
    bonds, num = make_case(batch).bonds, int(batch.num_graphs)
    correlation = spearman(found.score, reference.score, bonds.batch, num)
    error = (found.score - reference.score).abs().sum() / reference.score.abs().sum()
    yield Block("gap", float(found.gap.sum() / found.fall.sum()))
    yield Block("error", float(error))
    yield Block("spearman", float(correlation.nanmean()))
    yield Block("milliseconds", 1000 * found.seconds / num)
    truth = Truth.from_graphs(batch)
    predicted = torch.cat([query.clean.argmax(1) for query, _ in paths]).cpu()
    for protocol in ("paper", "strict"):
        chosen = selected_graphs(batch.y, predicted, truth, protocol)
        value = truth_metrics(found.score, bonds, truth, protocol=protocol, seed=job.seed)
        yield Block("roc_auc", float(value["roc_auc"][chosen].nanmean()), protocol)
