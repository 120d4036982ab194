"""Means as JSON, for a table whose target, metric and protocol can be chosen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nicegnn.metrics import METRICS, REMOVALS
from nicegnn.paper.evidence import Evidence, rank_methods
from nicegnn.paper.methods import Method, datasets_in, methods_in
from nicegnn.report.sources import Source
from nicegnn.tables.cells import stand_ins

_SECONDS = {
    "fit_seconds": "Seconds of the fit",
    "explain_seconds_per_graph": "Seconds per explained graph",
}

#: A metric, and its level as text; empty where it has none.
Point = tuple[str, str]


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
    columns = ["dataset", "target", "method", "protocol", "point"]
    columns += ["mean", "std", "num_seeds", "num_graphs", "num_nan"]
    cells = []
    for dataset, target, method, protocol, point, mean, std, *counts in summary[columns].itertuples(
        index=False
    ):
        source = place.get((str(dataset), str(target), str(method)))
        if source is not None and mean == mean:
            where = source, protocols.index(str(protocol)), points.index(point)
            numbers = _short(mean), None if std != std else _short(std)
            cells.append([*where, *numbers, *(int(count) for count in counts)])
    methods, datasets = methods_in(summary, variants=True), datasets_in(summary)
    return {
        "datasets": datasets,
        "standIns": sorted(stand_ins(evidence.rows)),
        "methods": [{"name": method.label, "group": method.group} for method in methods],
        "targets": sorted({source.target for source in sources}, key=lambda t: t != "gin"),
        "target": evidence.target,
        "protocols": protocols,
        "protocolTitles": [about_protocol(name) for name in protocols],
        "metrics": [{"name": "@".join(p) if p[1] else p[0], **about_metric(*p)} for p in points],
        "sources": [source.to_dict() for source in sources],
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
        table: dict[str, dict[str, float]] = {}
        for dataset, method, mean in some[["dataset", "method", "mean"]].itertuples(index=False):
            if mean == mean:
                table.setdefault(str(method), {})[str(dataset)] = float(mean)
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
