"""Means as JSON for a table that can be chosen, and the cells of a benchmark behind them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import nicegnn
from nicegnn_lab.bench.rows import FinishedCell
from nicegnn_lab.metrics import METRICS, REMOVALS
from nicegnn_lab.paper.evidence import Evidence, means_in, rank_methods
from nicegnn_lab.paper.methods import Method, datasets_in, methods_in
from nicegnn_lab.rivals import EXPLAINERS
from nicegnn_lab.tables.table import Table, stand_ins

_SECONDS = {
    "fit_seconds": "Seconds of the fit",
    "explain_seconds_per_graph": "Seconds per explained graph",
}

#: A metric, and its level as text; empty where it has none.
Point = tuple[str, str]


@dataclass(frozen=True)
class Source:
    """The rows of one explainer on one dataset and target: what a mean is computed from."""

    dataset: str
    target: str
    explainer: str
    mechanism: str
    seeds: tuple[int, ...]
    keys: tuple[str, ...]  # of its cells, one per seed
    num_graphs: int  # most of any metric

    @property
    def method(self) -> str:
        """Name of the explainer with its mechanism."""
        return Method(self.explainer, self.mechanism).label


def find_sources(evidence: Evidence, cells: Sequence[FinishedCell]) -> list[Source]:
    """Returns what stands behind each mean: the seeds of one method, dataset and target."""
    keys = ["dataset", "target", "method"]
    graphs = evidence.summary.groupby(keys, observed=True)["num_graphs"].max()
    found: dict[tuple[str, str, str, str], dict[str, int]] = {}
    for cell in cells:
        about = cell.description["cell"]
        names = about["dataset"], about["target"], about["explainer"], about["mechanism"]
        found.setdefault(names, {})[cell.key] = int(about["seed"])
    return [
        Source(
            *names,
            seeds=tuple(seeds.values()),
            keys=tuple(seeds),
            num_graphs=int(graphs.get((*names[:2], Method(*names[2:]).label), 0)),
        )
        for names, seeds in found.items()
    ]


def result_data(evidence: Evidence, sources: Sequence[Source]) -> dict[str, Any]:
    """Returns all means with their spread.

    ``cells`` are lists of source, protocol, metric, mean, std, seeds, graphs and undefined values;
    the first three are positions in ``sources``, ``protocols`` and ``metrics``. ``ranks`` holds the
    average rank of ranked methods for each target, protocol and metric.
    """
    summary = evidence.summary
    level = [f"{share:g}" if share == share else "" for share in summary["level"]]
    summary = summary.assign(point=list(zip(summary["metric"].astype(str), level, strict=True)))
    place = {(s.dataset, s.target, s.method): k for k, s in enumerate(sources)}
    protocols = [str(name) for name in dict.fromkeys(summary["protocol"])]
    points: list[Point] = list(dict.fromkeys(summary["point"]))
    cells = []
    for row in summary.itertuples(index=False):
        source = place.get((str(row.dataset), str(row.target), str(row.method)))
        if source is not None and row.mean == row.mean:
            where = source, protocols.index(str(row.protocol)), points.index(row.point)
            numbers = _short(row.mean), None if row.std != row.std else _short(row.std)
            counts = row.num_seeds, row.num_graphs, row.num_nan
            cells.append([*where, *numbers, *map(int, counts)])
    methods, datasets = methods_in(summary, variants=True), datasets_in(summary)
    return {
        "datasets": datasets,
        "standIns": sorted(stand_ins(evidence.rows)),
        "methods": [{"name": method.label, "group": method.group} for method in methods],
        "targets": sorted({source.target for source in sources}, key=lambda t: (t != "gin", t)),
        "target": evidence.target,
        "protocols": protocols,
        "protocolTitles": [about_protocol(name) for name in protocols],
        "metrics": [{"name": "@".join(p) if p[1] else p[0], **about_metric(*p)} for p in points],
        "sources": [{**vars(source), "method": source.method} for source in sources],
        "cells": cells,
        "ranks": _ranks(summary, {m.label for m in methods if m.is_ranked}, protocols, points),
        "paper": _paper(methods, datasets, [metric for metric, share in points if not share]),
    }


def about_metric(name: str, share: str = "") -> dict[str, Any]:
    """Returns title, direction and unit of a metric, also of one point of a fidelity curve.

    Example:
        >>> about_metric("kept", "0.1")["title"]
        'Prediction kept, 10% of bonds'
    """
    if name in _SECONDS:
        return {"title": _SECONDS[name], "better": -1, "percent": False}
    if name not in METRICS:
        return {"title": name, "better": 0, "percent": False}
    metric = METRICS[name]
    title = f"{metric.title}, {100 * float(share):g}% of bonds" if share else metric.title
    better = {True: 1, False: -1, None: 0}[metric.higher_is_better]
    return {"title": title, "better": better, "percent": metric.unit in ("share", "probability")}


def about_protocol(name: str) -> str:
    """Returns what a protocol is called; for fidelity it says how bonds are removed."""
    return f"removal {name}" if name in REMOVALS else f"protocol {name}" if name else "whole run"


def _ranks(
    summary: Any, ranked: set[str], protocols: Sequence[str], points: Sequence[Point]
) -> dict[str, dict[str, float]]:
    """Returns average ranks of ranked methods by ``target/protocol/metric``, as positions."""
    found: dict[str, dict[str, float]] = {}
    known = summary[summary["method"].isin(ranked) & summary["metric"].isin(list(METRICS))]
    for (target, protocol, point), some in known.groupby(["target", "protocol", "point"]):
        table = means_in(some)
        if table:
            name = f"{target}/{protocols.index(str(protocol))}/{points.index(point)}"
            ranks = rank_methods(table, point[0])
            found[name] = {method: round(rank, 2) for method, rank in ranks.items()}
    return found


def _paper(
    methods: Sequence[Method], datasets: Sequence[str], metrics: Sequence[str]
) -> dict[str, dict[str, dict[str, float]]]:
    """Returns the paper's means by metric, method and dataset, in percent; they are about GIN."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    for metric in metrics:
        for method in methods:
            for dataset in datasets:
                value = method.paper(metric, dataset)
                if value is not None:
                    found.setdefault(metric, {}).setdefault(method.label, {})[dataset] = value
    return found


def _short(value: float) -> float:
    return float(f"{value:.6g}")


class SourceFinder:
    """Tells which source stands behind a number: its row and heading name dataset and method."""

    def __init__(self, sources: Sequence[Source], target: str) -> None:
        self._place = {(s.dataset, s.target, s.method): k for k, s in enumerate(sources)}
        self._datasets = {s.dataset for s in sources}
        self._methods = {s.method for s in sources}
        self._target = target

    def __call__(self, table: Table, row: int, column: int) -> int | None:
        heading, cells = table.columns[column], list(table.rows[row])
        if cells[column] in self._datasets | self._methods:
            return None
        datasets = self._among(self._datasets, heading, cells)
        if heading in ("EM", "NC"):
            methods = {Method(cells[0], heading.lower()).label} & self._methods
        else:
            methods = self._among(self._methods, heading, cells)
        if len(datasets) != 1 or len(methods) != 1:
            return None
        return self._place.get((datasets.pop(), self._target, methods.pop()))

    def _among(self, names: set[str], heading: str, cells: Sequence[str]) -> set[str]:
        """Returns the name in the heading, or else those in the row."""
        plain = heading.removesuffix(" (stand-in)")
        if plain in names:
            return {plain}
        return {text.removesuffix(" (stand-in)") for text in cells} & names


def source_table(sources: Sequence[Source]) -> Table:
    """Returns the cells behind every mean."""
    return Table(
        name="sources",
        title="Cells behind the numbers",
        columns=["dataset", "target", "explainer", "mechanism", "seeds", "graphs", "keys"],
        rows=[
            [
                *(source.dataset, source.target, source.explainer, source.mechanism or "none"),
                " ".join(map(str, source.seeds)),
                str(source.num_graphs),
                " ".join(source.keys),
            ]
            for source in sources
        ],
    )


def explainer_table(evidence: Evidence) -> Table:
    """Returns what the explainers of a benchmark are."""
    names = set(evidence.summary["explainer"])
    return Table(
        name="explainers",
        title="Explainers",
        columns=["name", "what it is", "cost", "group", "after"],
        rows=[
            [entry.name, entry.summary, entry.cost, entry.group, entry.citation]
            for entry in EXPLAINERS.values()
            if entry.name in names
        ],
    )


def facts_of_run(evidence: Evidence, cells: Sequence[FinishedCell]) -> dict[str, str]:
    """Returns what was run and by what, name by name; what no cell tells is left out."""
    about = [cell.description["cell"] for cell in cells]
    told = [cell.description.get("facts", {}) for cell in cells]
    identities = [cell.description.get("identity", {}) for cell in cells]
    scores = [identity.get("scores", identity) for identity in identities]
    each = list(zip(about, scores, strict=True))
    found = {
        "datasets": _listed(datasets_in(evidence.summary)),
        "stand-ins": _listed(cell["dataset"] for cell in about if cell["stand_in"]),
        "targets": _listed(cell["target"] for cell in about),
        "explainers": _listed(m.label for m in methods_in(evidence.summary, variants=True)),
        "seeds": _listed(cell["seed"] for cell in about),
        "finished cells": str(len(cells)),
        "graphs": _listed(_graphs(score) for score in scores if score),
        "split": _listed(f"{c['dataset']}: {s['split']}" for c, s in each if "split" in s),
        **{
            name: _listed(fact[name] for fact in told if name in fact)
            for name in ("nicegnn", "torch", "device")
        },
        "code of the scores": _listed(filter(None, (c.description.get("code") for c in cells))),
        "data": _listed(f"{c['dataset']}: {s['data']}" for c, s in each if "data" in s),
        "target models": _listed(
            f"{c['dataset']} {c['target']}: {s['model']}" for c, s in each if "model" in s
        ),
        "studies": _listed(evidence.studies),
        "page made by": f"nicegnn {nicegnn.__version__}",
    }
    return {name: text for name, text in found.items() if text}


def _graphs(scores: Mapping[str, Any]) -> str:
    """Returns what was explained, by what scores depend on; defaults are not among it."""
    most, fit = scores.get("max_graphs"), scores.get("fit_graphs")
    explained = "all graphs" if most is None else f"at most {most} graphs"
    fitted = "all training graphs" if fit is None else f"at most {fit} training graphs"
    return f"{explained} of the {scores.get('part', 'test')} part, fitted on {fitted}"


def _listed(values: Iterable[object]) -> str:
    return ", ".join(str(value) for value in dict.fromkeys(values))
