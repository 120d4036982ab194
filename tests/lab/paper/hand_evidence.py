"""Evidence from rows written by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from nicegnn_lab.bench import COLUMNS
from nicegnn_lab.paper.evidence import Evidence, summary_of
from nicegnn_lab.paper.methods import own_mechanism

Row = Mapping[str, Any]
_BLANK: dict[str, Any] = {
    "study": "bench",
    "stand_in": False,
    "target": "gin",
    "setting": "",
    "level": float("nan"),
    "explainer": "",
    "mechanism": "",
    "seed": 0,
    "graph": 0,
    "protocol": "",
    "note": "",
}


def frame(rows: Sequence[Row]) -> pd.DataFrame:
    """Rows with all columns; what is left out is filled in."""
    found = pd.DataFrame([{**_BLANK, **row} for row in rows], columns=list(COLUMNS))
    return found.astype({"level": "float64", "stand_in": "bool"})


def hand_rows(
    values: Mapping[str, Mapping[str, float]], metric: str = "roc_auc", protocol: str = "paper"
) -> list[dict[str, Any]]:
    """Rows of one graph and seed: the value of each method (``name`` or ``name+nc``) by dataset.

    A metric such as ``kept@0.1`` is that metric at a level.
    """
    name, _, level = metric.partition("@")
    rows = []
    for label, row in values.items():
        explainer, _, mechanism = label.partition("+")
        about = {"explainer": explainer, "mechanism": mechanism or own_mechanism(explainer)}
        about |= {"metric": name, "protocol": protocol, "level": float(level or "nan")}
        rows += [{**about, "dataset": dataset, "value": value} for dataset, value in row.items()]
    return rows


def gate_rows(
    dataset: str,
    status: str,
    values: Mapping[str, float],
    method: str = "nice-paper",
    seed: int = 0,
) -> list[dict[str, Any]]:
    """Rows about the gates of one cell: the fit's status, then metrics of two graphs each."""
    about = {"explainer": method, "mechanism": own_mechanism(method), "dataset": dataset}
    about |= {"seed": seed}
    rows = [{**about, "metric": "fit_status", "graph": -1, "value": 1.0, "note": status}]
    for metric, value in values.items():
        protocol = "paper" if metric.endswith("auc") else ""
        rows += [
            {**about, "metric": metric, "protocol": protocol, "graph": g, "value": value + shift}
            for g, shift in enumerate((-0.1, 0.1))
        ]
    return rows


def hand_evidence(
    rows: Sequence[Row] = (), *, studies: Mapping[str, Sequence[Row]] | None = None
) -> Evidence:
    """Evidence from rows of a benchmark and of studies."""
    bench = frame(rows)
    return Evidence(
        rows=bench,
        summary=summary_of(bench),
        studies={
            name: frame([{"study": name, **row} for row in some])
            for name, some in (studies or {}).items()
        },
    )
