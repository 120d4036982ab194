"""Means as JSON, for a table whose metric and protocol can be chosen, and the files behind them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nicegnn.metrics import METRICS, REMOVALS
from nicegnn.report.comparing import rank_methods
from nicegnn.report.evidence import Evidence
from nicegnn.tables.methods import datasets_in, methods_in

_SECONDS = {
    "fit_seconds": "Seconds of the fit",
    "explain_seconds_per_graph": "Seconds per explained graph",
}


def result_data(evidence: Evidence) -> dict[str, Any]:
    """Returns all means with their spread.

    ``cells`` are lists of source, protocol, metric, mean, std, seeds, graphs and undefined values;
    the first three are positions in ``sources``, ``protocols`` and ``metrics``. ``ranks`` holds the
    average rank of ranked methods for each target, protocol and metric.
    """
    summary = evidence.summary
    sources = group_sources(evidence)
    place = {(s["dataset"], s["target"], s["method"]): k for k, s in enumerate(sources)}
    protocols = [str(name) for name in dict.fromkeys(summary["protocol"])]
    metrics = [str(name) for name in dict.fromkeys(summary["metric"])]
    columns = ["dataset", "target", "method", "protocol", "metric"]
    columns += ["mean", "std", "num_seeds", "num_graphs", "num_nan"]
    cells = []
    for dataset, target, method, protocol, metric, mean, std, *counts in summary[
        columns
    ].itertuples(index=False):
        source = place.get((str(dataset), str(target), str(method)))
        if source is not None and mean == mean:
            where = source, protocols.index(str(protocol)), metrics.index(str(metric))
            numbers = _short(mean), None if std != std else _short(std)
            cells.append([*where, *numbers, *(int(count) for count in counts)])
    return {
        "datasets": datasets_in(evidence.rows),
        "methods": [
            {"name": method.label, "group": method.group}
            for method in methods_in(evidence.rows, variants=True)
        ],
        "targets": sorted({source["target"] for source in sources}, key=lambda t: t != "gin"),
        "target": evidence.target,
        "protocols": protocols,
        "metrics": [{"name": name, **about_metric(name)} for name in metrics],
        "sources": sources,
        "cells": cells,
        "ranks": _ranks(evidence, protocols, metrics),
        "paper": _paper(evidence, metrics),
    }


def group_sources(evidence: Evidence) -> list[dict[str, Any]]:
    """Returns what stands behind each mean: the seeds of one method, dataset and target."""
    summary = evidence.summary
    graphs = summary.groupby(["dataset", "target", "method"], observed=True)["num_graphs"].max()
    found: dict[tuple[str, str, str], dict[str, Any]] = {}
    for source in evidence.sources:
        name = (source.dataset, source.target, source.method.label)
        group = found.setdefault(
            name,
            {
                "dataset": source.dataset,
                "target": source.target,
                "method": source.method.label,
                "explainer": source.explainer,
                "mechanism": source.mechanism,
                "graphs": int(graphs.get(name, 0)),
                "seeds": [],
                "rows": [],
                "scores": [],
            },
        )
        group["seeds"].append(source.seed)
        group["rows"].append(source.rows)
        group["scores"].append(source.scores)
    return list(found.values())


def about_metric(name: str) -> dict[str, Any]:
    """Returns title, direction and unit of a metric, also of one point of a fidelity curve.

    Example:
        >>> about_metric("kept@0.1")["title"]
        'Prediction kept, 10% of bonds'
    """
    if name in _SECONDS:
        return {"title": _SECONDS[name], "better": -1, "percent": False}
    plain, _, share = name.partition("@")
    if plain not in METRICS:
        return {"title": name, "better": 0, "percent": False}
    metric = METRICS[plain]
    title = f"{metric.title}, {100 * float(share):g}% of bonds" if share else metric.title
    better = {True: 1, False: -1, None: 0}[metric.higher_is_better]
    return {"title": title, "better": better, "percent": metric.unit in ("share", "probability")}


def about_protocol(name: str) -> str:
    """Returns what a protocol is called; for fidelity it says how bonds are removed."""
    return f"removal {name}" if name in REMOVALS else f"protocol {name}" if name else "whole run"


def _ranks(
    evidence: Evidence, protocols: Sequence[str], metrics: Sequence[str]
) -> dict[str, dict[str, float]]:
    """Returns average ranks of ranked methods by ``target/protocol/metric``, as positions."""
    ranked = {m.label for m in methods_in(evidence.rows, variants=True) if m.is_ranked}
    summary = evidence.summary[evidence.summary["method"].isin(ranked)]
    found: dict[str, dict[str, float]] = {}
    keys = ["target", "protocol", "metric"]
    for (target, protocol, metric), some in summary.groupby(keys, observed=True):
        if str(metric).partition("@")[0] not in METRICS:
            continue
        table: dict[str, dict[str, float]] = {}
        for dataset, method, mean in some[["dataset", "method", "mean"]].itertuples(index=False):
            if mean == mean:
                table.setdefault(str(method), {})[str(dataset)] = float(mean)
        if table:
            name = f"{target}/{protocols.index(str(protocol))}/{metrics.index(str(metric))}"
            ranks: Mapping[str, float] = rank_methods(table, str(metric))
            found[name] = {method: round(rank, 2) for method, rank in ranks.items()}
    return found


def _paper(evidence: Evidence, metrics: Sequence[str]) -> dict[str, dict[str, dict[str, float]]]:
    """Returns the paper's means by metric, method and dataset, in percent; they are about GIN."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    for metric in metrics:
        for method in methods_in(evidence.rows):
            for dataset in datasets_in(evidence.rows):
                value = method.paper(metric, dataset)
                if value is not None:
                    found.setdefault(metric, {}).setdefault(method.label, {})[dataset] = value
    return found


def _short(value: float) -> float:
    return float(f"{value:.6g}")
