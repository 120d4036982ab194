"""The tables of the page: explanation quality, experiments, and which source a number has."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from nicegnn.errors import NicegnnError
from nicegnn.metrics import METRICS, PROTOCOLS
from nicegnn.report.evidence import Evidence
from nicegnn.tables.methods import Method, datasets_in, methods_in
from nicegnn.tables.table import Table

log = logging.getLogger(__name__)


def quality_tables(evidence: Evidence) -> list[Table]:
    """Returns the tables of explanation quality, or plain ones where the first cannot be had."""
    try:
        quality = import_module("nicegnn.tables.quality")
    except ImportError:
        return plain_tables(evidence)
    rows, target = evidence.rows, evidence.target
    there = set(rows["protocol"].astype(str))
    protocols = [name for name in PROTOCOLS if name in there]
    found: list[Table] = quality.all_quality_tables(rows, protocols=protocols, target=target)
    for make in (
        quality.rank_table,
        quality.ceiling_table,
        quality.comparison_table,
        quality.mechanism_table,
        quality.criterion_table,
    ):
        try:
            table = make(rows, target=target)
        except NicegnnError as error:  # the rows do not hold what it compares
            log.info("%s is left out: %s", make.__name__, error)
            continue
        found += [table] if table.rows else []
    return found or plain_tables(evidence)


def plain_tables(evidence: Evidence) -> list[Table]:
    """Returns methods by datasets for every protocol and metric of agreement with the truth."""
    summary = evidence.summary[evidence.summary["target"] == evidence.target]
    methods = methods_in(evidence.rows, variants=True)
    datasets = datasets_in(evidence.rows)
    found = []
    for (protocol, metric), some in summary.groupby(["protocol", "metric"], observed=True):
        if protocol not in PROTOCOLS or metric not in METRICS:
            continue
        cells = {
            (str(row.method), str(row.dataset)): _cell(float(row.mean), float(row.std))
            for row in some.itertuples(index=False)
        }
        title = METRICS[str(metric)].title
        found.append(
            Table(
                name=f"summary-{metric}-{protocol}",
                title=f"{title} in percent, protocol {protocol}, target {evidence.target}",
                columns=["method", *datasets],
                rows=[
                    [method.label, *(cells.get((method.label, d), "-") for d in datasets)]
                    for method in methods
                ],
                notes=["Mean ± standard deviation over seeds of the mean over graphs."],
            )
        )
    return found


def experiment_tables(folder: str | Path | None, names: Sequence[str]) -> dict[str, list[Table]]:
    """Returns the tables of experiments by name: what ``table(out)`` or ``tables(out)`` gives."""
    found = {}
    for name in names:
        try:
            moved = {"mechanism_comparison": "mechanisms", "scale_study": "scale"}.get(name, name)
            module: Any = import_module(f"nicegnn.studies.{moved}")
            if hasattr(module, "tables"):
                found[name] = list(module.tables(folder))
            elif hasattr(module, "table"):
                found[name] = [module.table(folder)]
        except ImportError:
            log.info("There is no module for the experiment %s.", name)
        except NicegnnError as error:
            log.warning("Tables of %s are left out: %s", name, error)
    return found


class SourceFinder:
    """Tells which source stands behind a number: its row and heading name dataset and method.

    Args:
        sources: as `group_sources` returns them.
    """

    def __init__(self, sources: Sequence[Mapping[str, Any]], target: str) -> None:
        self._place = {(s["dataset"], s["target"], s["method"]): k for k, s in enumerate(sources)}
        self._datasets = {s["dataset"] for s in sources}
        self._methods = {s["method"] for s in sources}
        self._target = target

    def __call__(self, table: Table, row: int, column: int) -> int | None:
        heading, cells = table.columns[column], list(table.rows[row])
        if column < len(cells) and cells[column] in self._datasets | self._methods:
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


def _cell(mean: float, std: float) -> str:
    if math.isnan(mean):
        return "nan"
    return f"{100 * mean:.1f}" if math.isnan(std) else f"{100 * mean:.1f} ± {100 * std:.1f}"
