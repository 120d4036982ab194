"""What was run: datasets, targets, explainers, seeds, versions, dates, and what failed."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import nicegnn
from nicegnn.report.evidence import Evidence
from nicegnn.report.sources import Source
from nicegnn.rivals.registry import EXPLAINERS
from nicegnn.tables.methods import datasets_in, methods_in
from nicegnn.tables.table import Table


def tiles(evidence: Evidence) -> list[tuple[str, str]]:
    """Returns key numbers of a benchmark."""
    sources = evidence.sources
    return [
        (str(len({s.dataset for s in sources})), "datasets"),
        (str(len({s.target for s in sources})), "target models"),
        (str(len({s.explainer for s in sources})), "explainers"),
        (str(len({s.method for s in sources})), "with their mechanisms"),
        (str(len({s.seed for s in sources})), "seeds"),
        (str(len(sources)), "finished cells"),
    ]


def lead(evidence: Evidence) -> str:
    """Returns what the page is about, in two sentences."""
    days = [_day(source.written_ns) for source in evidence.sources]
    first, last = min(days), max(days)
    when = first if first == last else f"{first} to {last}"
    return (
        f"Explanations of graph neural networks on molecules, measured against known truths; rows "
        f"of {when}. Claims are judged on target {evidence.target}."
    )


def facts(evidence: Evidence, folder: str | Path) -> dict[str, str]:
    """Returns what was run, name by name."""
    sources = evidence.sources
    told = [source.facts for source in sources]
    known = [source.identity for source in sources]
    failed = read_failures(folder)
    return {
        "datasets": _listed(datasets_in(evidence.rows)),
        "targets": _listed(s.target for s in sources),
        "explainers": _listed(m.label for m in methods_in(evidence.rows, variants=True)),
        "seeds": _listed(s.seed for s in sources),
        "graphs": _listed(
            f"{i['part']} part, {_limit(i['max_graphs'])}, fitted on {_limit(i['fit_graphs'])}"
            for i in known
            if i
        ),
        "split": _listed(f"{i['dataset']}: {i['split']}" for i in known if i),
        "settings of metrics": _listed(json.dumps(s.metrics, sort_keys=True) for s in sources),
        "rows written": _span(sources),
        "nicegnn": _listed(fact.get("nicegnn", "unknown") for fact in told),
        "torch": _listed(fact.get("torch", "unknown") for fact in told),
        "device": _listed(fact.get("device", "unknown") for fact in told),
        "code of the scores": _listed(s.code or "unknown" for s in sources),
        "data": _listed(f"{i['dataset']}: {i['data']}" for i in known if i),
        "target models": _listed(f"{i['dataset']} {i['target']}: {i['model']}" for i in known if i),
        "experiments": _listed(evidence.experiments) or "none given",
        "failed cells": "; ".join(failed) or "none",
        "page made by": f"nicegnn {nicegnn.__version__}",
    }


def read_failures(folder: str | Path) -> list[str]:
    """Returns cells that failed and why, in a line each."""
    found = []
    for path in sorted((Path(folder) / "failed").glob("*.json")):
        try:
            content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            cell = " ".join(str(value) for value in content["cell"].values() if value != "")
            found.append(f"{cell}: {content['error']}, {content['message']}")
        except (OSError, ValueError, KeyError, AttributeError) as error:
            found.append(f"{path.name} cannot be read ({error})")
    return found


def explainer_table(evidence: Evidence) -> Table:
    """Returns what the explainers of a benchmark are."""
    names = {source.explainer for source in evidence.sources}
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


def source_table(groups: Sequence[dict[str, Any]]) -> Table:
    """Returns the files behind every mean, see `group_sources`."""
    return Table(
        name="sources",
        title="Files behind the numbers",
        columns=[
            *("dataset", "target", "explainer", "mechanism", "seeds", "graphs"),
            *("keys of rows", "keys of scores"),
        ],
        rows=[
            [
                group["dataset"],
                group["target"],
                group["explainer"],
                group["mechanism"] or "none",
                " ".join(map(str, group["seeds"])),
                str(group["graphs"]),
                " ".join(group["rows"]),
                " ".join(group["scores"]),
            ]
            for group in groups
        ],
    )


def _listed(values: Iterable[object]) -> str:
    return ", ".join(str(value) for value in dict.fromkeys(values))


def _limit(number: int | None) -> str:
    return "all graphs" if number is None else f"{number} graphs"


def _day(written_ns: int) -> str:
    return time.strftime("%Y-%m-%d", time.gmtime(written_ns / 1e9))


def _span(sources: Sequence[Source]) -> str:
    times = sorted(source.written_ns for source in sources)
    first, last = (
        time.strftime("%Y-%m-%d %H:%M", time.gmtime(one / 1e9)) for one in (times[0], times[-1])
    )
    return f"{first} to {last} UTC"
