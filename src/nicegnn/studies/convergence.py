"""How far BIG on the joint path is converged: nodes, draws, quadrature against a reference."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nicegnn.attribution.joint_path import boundary_integrated_gradient
from nicegnn.bench.nice_run import fit_once
from nicegnn.bench.study_rows import has_part, write_part
from nicegnn.bench.subject import TARGETS_FOLDER, Subject, subjects
from nicegnn.config import AttributionConfig, NICEConfig
from nicegnn.explain.nice import NICE
from nicegnn.graph.case import case_of, find_bonds
from nicegnn.intervention.query import Query
from nicegnn.metrics import Truth, selected_graphs, spearman, truth_metrics
from nicegnn.progress import progress_bar
from nicegnn.seeding import mix
from nicegnn.tables.study_rows import by_subject, mean_and_std, read_one_run
from nicegnn.tables.table import Table

EXPERIMENT = "convergence"
VERSION = 1  # raise it when the same settings give other rows
BASES = {
    "paper": NICEConfig.paper(),
    "nice": NICEConfig(mechanism="nc").with_(attribution__path="joint", score="big"),
}
NODES = (2, 4, 8, 16, 32, 64)
DRAWS = (4, 16, 64)
QUADRATURES = ("riemann", "gauss", "gauss-sine")
NOISE = ("fresh", "shared")

#: Headings of measured columns, the metric behind each, and its digits.
COLUMNS = (
    ("gap", "gap", 4),
    ("error", "error", 3),
    ("rank correlation", "spearman", 3),
    ("AUC", "roc_auc/paper", 3),
    ("AUC, strict", "roc_auc/strict", 3),
    ("ms per graph", "milliseconds", 2),
)


def compute(
    datasets: Sequence[str],
    *,
    targets: Sequence[str] = ("gin",),
    seeds: Sequence[int] = (0,),
    out: str | Path,
    device: str | None = None,
    max_graphs: int | None = 200,
    progress: bool = True,
    targets_folder: str | Path = TARGETS_FOLDER,
    bases: Sequence[str] = tuple(BASES),
    nodes: Sequence[int] = NODES,
    draws: Sequence[int] = DRAWS,
    quadratures: Sequence[str] = QUADRATURES,
    noise: Sequence[str] = NOISE,
    reference_nodes: int = 64,
    reference_draws: int = 512,
    settings: Mapping[str, Any] | None = None,
    fit_graphs: int | None = None,
) -> None:
    """Writes the numbers of every combination; finished parts are skipped.

    Rows: ``setting`` is ``base/quadrature/noise/draws`` and ``level`` the number of nodes; metrics
    are those of `COLUMNS`. ``base/reference`` compares two references that differ in their noise:
    no setting can agree with the reference better than it does with its like.

    Args:
        reference_nodes: of the reference, by Gauss-Legendre with fresh noise.
        reference_draws: of the reference at each node.
        settings: changes of every base, such as ``{"boundary__steps": 200}``.
        fit_graphs: most training graphs to fit on; none for all.
    """
    how = {
        "version": VERSION,
        "fit_graphs": fit_graphs,
        "reference": [reference_nodes, reference_draws],
        "nodes": list(nodes),
        "draws": list(draws),
    }
    ways = [(q, n) for q in quadratures for n in noise]
    total = len(datasets) * len(targets) * len(seeds) * len(bases) * (len(ways) + 1)
    with progress_bar(EXPERIMENT, total, shown=progress) as advance:
        done = 0
        found = subjects(
            datasets, targets, targets_folder=targets_folder, device=device, max_graphs=max_graphs
        )
        for subject in found:
            for seed, base in ((seed, base) for seed in seeds for base in bases):
                config = BASES[base].with_(**(settings or {}))
                best = replace(
                    config.attribution,
                    quadrature="gauss",
                    draws="fresh",
                    num_nodes=reference_nodes,
                    num_draws=reference_draws,
                )
                path = _Path(subject, config, best, seed, out, fit_graphs)
                for way in (None, *ways):
                    name = f"{base}/reference" if way is None else f"{base}/{way[0]}/{way[1]}"
                    advance(done, f"{subject.dataset.name} {subject.target} {name}, seed {seed}")
                    key = subject.key(seed, [how, name, config.to_dict()])
                    if not has_part(out, EXPERIMENT, key):
                        if way is None:
                            rows = list(_reference_rows(path, name))
                        else:
                            rows = list(_rows(path, name, *way, nodes, draws))
                        write_part(out, EXPERIMENT, key, rows)
                    done += 1
        advance(done, "")


def _rows(
    path: _Path,
    name: str,
    quadrature: str,
    noise: str,
    nodes: Sequence[int],
    draws: Sequence[int],
) -> Iterator[dict[str, Any]]:
    for num_draws in draws:
        for num_nodes in nodes:
            config = replace(
                path.config.attribution,
                quadrature=quadrature,
                draws=noise,
                num_nodes=num_nodes,
                num_draws=num_draws,
            )
            numbers = path.compare(path.integrate(config, path.seed), path.reference)
            for metric, value in numbers.items():
                yield path.subject.row(
                    f"{name}/{num_draws}", metric, value, seed=path.seed, level=num_nodes
                )


def _reference_rows(path: _Path, name: str) -> Iterator[dict[str, Any]]:
    again = path.integrate(path.best, mix(path.seed, "reference", "again"))
    for metric, value in path.compare(again, path.reference).items():
        yield path.subject.row(name, metric, value, seed=path.seed, level=path.best.num_nodes)


@dataclass(frozen=True)
class Integral:
    """BIG of all graphs of a subject, with what its sum should be.

    Attributes:
        score: of each bond, ``[M]``.
        gap: distance of a graph's scores from adding up to the fall of risk, ``[B]``.
        fall: :math:`|R(0) - R(\\rho^*)|` by the same draws, ``[B]``.
        seconds: of the integration.
    """

    score: Tensor
    gap: Tensor
    fall: Tensor
    seconds: float


class _Path:
    """The path from corruption to the boundary of each graph, and the reference along it."""

    def __init__(
        self,
        subject: Subject,
        config: NICEConfig,
        best: AttributionConfig,
        seed: int,
        out: str | Path,
        fit_graphs: int | None,
    ) -> None:
        self.subject, self.config, self.best, self.seed = subject, config, best, seed
        self._out, self._fit_graphs = out, fit_graphs

    @cached_property
    def nice(self) -> NICE:
        """The explainer with fitted gates, set to the least work on its own attribution."""
        config = self.config.with_(attribution__num_nodes=1, attribution__num_draws=1)
        return fit_once(self.subject, config, self.seed, self._out, self._fit_graphs).nice

    @cached_property
    def ends(self) -> list[tuple[Query, Tensor]]:
        """Queries of the graphs, batch after batch, with their boundary ``[M]``."""
        target, found = self.nice.target, []
        for chunk in self.subject.chunks(self.config.batch_size):
            batch = self.subject.dataset.test.batch(chunk).to(target.device)
            gate = self.nice.explain(batch, seed=self.seed).bond_gate
            with target.frozen():
                query = Query(
                    target,
                    case_of(batch, undirected=self.config.undirected),
                    self.nice.mechanism,
                    chunk_edges=self.config.chunk_edges,
                )
            found.append((query, gate))
        return found

    @cached_property
    def reference(self) -> Integral:
        """BIG by many nodes and draws, with noise of its own."""
        return self.integrate(self.best, mix(self.seed, "reference"))

    def integrate(self, config: AttributionConfig, seed: int) -> Integral:
        """Returns BIG of all graphs."""
        ends, target = self.ends, self.nice.target
        started = time.perf_counter()
        with target.frozen():
            parts = [boundary_integrated_gradient(q, gate, config, seed) for q, gate in ends]
        if target.device.type == "cuda":
            torch.cuda.synchronize(target.device)
        seconds = time.perf_counter() - started
        fall = [(part.risk_corrupted - part.risk_boundary).abs() for part in parts]
        return Integral(
            torch.cat([part.score for part in parts]).cpu(),
            torch.cat([part.completeness_gap for part in parts]).cpu(),
            torch.cat(fall).cpu(),
            seconds,
        )

    def compare(self, found: Integral, reference: Integral) -> dict[str, float]:
        r"""Returns the numbers of one integration.

        .. math:: gap = \frac{\sum_G |\sum_e s_e - (R(0) - R(\rho^*))|}{\sum_G |R(0) - R(\rho^*)|},
            \qquad error = \frac{\sum_e |s_e - s^{ref}_e|}{\sum_e |s^{ref}_e|}

        Sums over all graphs come first, for the risk of a single one may hardly fall at all.
        """
        test, positions = self.subject.dataset.test, self.subject.positions
        batch = test.batch(positions)
        bonds = find_bonds(batch.edge_index, batch.batch[batch.edge_index[0]])
        num = positions.numel()
        correlation = spearman(found.score, reference.score, bonds.batch, num)
        error = (found.score - reference.score).abs().sum() / reference.score.abs().sum()
        numbers = {
            "gap": float(found.gap.sum() / found.fall.sum()),
            "error": float(error),
            "spearman": float(correlation.nanmean()),
            "milliseconds": 1000 * found.seconds / num,
        }
        truth = Truth.from_dataset(test, positions)
        predicted = torch.cat([query.clean.argmax(1) for query, _ in self.ends]).cpu()
        for protocol in ("paper", "strict"):
            chosen = selected_graphs(test.y[positions], predicted, truth, protocol)
            value = truth_metrics(found.score, bonds, truth, protocol=protocol, seed=self.seed)
            numbers[f"roc_auc/{protocol}"] = float(value["roc_auc"][chosen].nanmean())
        return numbers


def table(out: str | Path) -> Table:
    """Returns all combinations, mean and deviation over datasets, targets and seeds."""
    rows = read_one_run(out, EXPERIMENT)
    lines = []
    for (setting, level), some in rows.groupby(["setting", "level"], sort=False):
        base, *way = setting.split("/")
        if len(way) == 1:
            way = ["reference, other noise", "", ""]
        cells = [mean_and_std(by_subject(some, metric), digits) for _, metric, digits in COLUMNS]
        lines.append(((base, *way), [base, *way, f"{level:g}", *cells]))
    lines.sort(key=lambda line: _order(line[0]))
    return Table(
        name=EXPERIMENT,
        title="Convergence of BIG along the joint path",
        columns=["base", "quadrature", "noise", "draws", "nodes", *(c[0] for c in COLUMNS)],
        rows=[line for _, line in lines],
        notes=(
            "Gap is the relative distance of a graph's scores from completeness, error and rank "
            "correlation are against a reference with many nodes and draws. A gap of shared noise "
            "is quadrature alone; with fresh noise it also holds the noise of both ends.",
        ),
    )


def _order(way: Sequence[str]) -> tuple[Any, ...]:
    base, quadrature, noise, draws = way
    return base, quadrature, noise, int(draws or 0)
