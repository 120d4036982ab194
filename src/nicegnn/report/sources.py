"""What stands behind the numbers: cells of a benchmark, and how they were made."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import nicegnn
from nicegnn.bench.rows import FinishedCell
from nicegnn.paper.evidence import Evidence
from nicegnn.paper.methods import Method, datasets_in, methods_in
from nicegnn.rivals.registry import EXPLAINERS
from nicegnn.tables.table import Table


@dataclass(frozen=True)
class Source:
    """The rows of one explainer on one dataset and target: what a mean is computed from.

    Attributes:
        keys: of its cells, one per seed.
        num_graphs: most graphs of any metric.
    """

    dataset: str
    target: str
    explainer: str
    mechanism: str
    seeds: tuple[int, ...]
    keys: tuple[str, ...]
    num_graphs: int

    @property
    def method(self) -> str:
        """Name of the explainer with its mechanism."""
        return Method(self.explainer, self.mechanism).label

    def to_dict(self) -> dict[str, Any]:
        """Returns plain values."""
        return {**vars(self), "method": self.method}


def find_sources(evidence: Evidence, cells: Sequence[FinishedCell]) -> list[Source]:
    """Returns what stands behind each mean: the seeds of one method, dataset and target."""
    keys = ["dataset", "target", "method"]
    graphs = evidence.summary.groupby(keys, observed=True)["num_graphs"].max()
    found: dict[tuple[str, str, str, str], list[tuple[int, str]]] = {}
    for cell in cells:
        about = cell.description["cell"]
        names = about["dataset"], about["target"], about["explainer"], about["mechanism"]
        found.setdefault(names, []).append((int(about["seed"]), cell.key))
    return [
        Source(
            *names,
            seeds=tuple(seed for seed, _ in pairs),
            keys=tuple(key for _, key in pairs),
            num_graphs=int(graphs.get((*names[:2], Method(*names[2:]).label), 0)),
        )
        for names, pairs in found.items()
    ]


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
        "nicegnn": _listed(fact["nicegnn"] for fact in told if "nicegnn" in fact),
        "torch": _listed(fact["torch"] for fact in told if "torch" in fact),
        "device": _listed(fact["device"] for fact in told if "device" in fact),
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
