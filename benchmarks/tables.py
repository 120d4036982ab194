"""Results of the suite as Markdown."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

Run = Mapping[str, Any]
_ROUGH = 2**20


def all_runs(folder: Path) -> str:
    """Returns every run of a folder as Markdown, also those with times alone.

    Files of other measurements are passed over.
    """
    found = [json.loads(file.read_text()) for file in sorted(folder.glob("*.json"))]
    runs = [run for run in found if "explainers" in run]
    return "\n".join(["# Speed of all explainers", "", *(markdown(run) for run in runs)])


def markdown(run: Run) -> str:
    """Returns one run: times of all contenders, the floor, and growth."""
    parts = [
        f"## {run['machine']}",
        f"{run['dataset']}, target {run['target']}; {run['graphs']} graphs explained in one batch, "
        f"fitted on {run['train']} graphs; torch {run['torch']}. Time of fitting is measured over "
        "a few steps and scaled to all steps.",
        times_table(run["explainers"]),
    ]
    if run.get("floor"):
        parts.append(floor_table(run["floor"], run["explainers"]))
    if run.get("growth"):
        parts.append(growth_table(run["growth"]))
    return "\n\n".join(parts) + "\n"


def times_table(rows: Mapping[str, Mapping[str, Any]]) -> str:
    """Returns fit and explanation times, each with its ratio."""
    base = rows.get("occlusion", rows.get("nice", {}))
    whole = rows.get("nice", {})
    lines = []
    for name, row in rows.items():
        lines.append(
            [
                name,
                _number(row["fit"]) if row["steps"] else "-",
                _ratio(row["fit"], whole.get("fit")) if row["steps"] else "-",
                _number(1e3 * row["explain"]),
                _ratio(row["explain"], base.get("explain")),
                _number(1e3 * row["one"]) if "one" in row else "-",
                _ratio(row["one"], base.get("one")) if "one" in row else "-",
                _number(row["memory"] / _ROUGH) if "memory" in row else "-",
            ]
        )
    unit = "occlusion" if "occlusion" in rows else "nice"
    header = [
        *("explainer", "fit, s", "x nice", "batch, ms per graph", f"x {unit}"),
        *("one graph, ms", f"x {unit}", "peak, MiB"),
    ]
    return _table(header, lines)


def floor_table(floor: Mapping[str, Any], rows: Mapping[str, Mapping[str, Any]]) -> str:
    """Returns work and its seconds at the machine's peaks, beside what was measured."""
    peaks, lines = floor["peaks"], []
    for name, row in floor["rows"].items():
        plain = name.removesuffix(" fit").partition(",")[0]
        key = "fit" if name.endswith(" fit") else "explain"
        measured = rows[plain][key] if plain in rows else None
        least = row["seconds_at_layer_shapes"]
        lines.append(
            [
                name,
                *(_number(row["madds"] / 1e6), _number(row["bytes"] / 1e6)),
                *(_number(1e3 * row["seconds_at_gemm_peak"]), _number(1e3 * least)),
                _number(1e3 * row["seconds_of_copying"]),
                _ratio(measured, least),
            ]
        )
    text = (
        f"Floor. This machine: {_number(peaks['gemm'] / 1e9)} G multiply-adds/s on large matrices, "
        f"{_number(peaks['layer_gemm'] / 1e9)} G at the target's layer shapes, "
        f"{_number(peaks['copy'] / 1e9)} GB/s copied."
    )
    header = [
        *("per graph, or whole fit", "M multiply-adds", "MB", "ms at GEMM peak"),
        *("ms at layer shapes", "ms of copying", "measured, x layer shapes"),
    ]
    return f"{text}\n\n{_table(header, lines)}"


def growth_table(growth: Mapping[str, Mapping[str, Any]]) -> str:
    """Returns the slope of each varied number, with its points."""
    lines = []
    for name, axes in growth.items():
        for axis, found in axes.items():
            points = ", ".join(f"{n}: {_number(1e3 * s)}" for n, s in found["seconds"].items())
            peak = _number(max(found["memory"].values()) / _ROUGH)
            slopes = (f"{found[key]:.2f}" for key in ("slope", "end_slope"))
            lines.append([name, axis, *slopes, points, peak])
    header = ["explainer", "grows with", "slope", "at the end", "ms at each value", "peak, MiB"]
    return f"Growth, slope in log-log.\n\n{_table(header, lines)}"


def _table(header: list[str], lines: Iterable[list[str]]) -> str:
    rule = ["---"] + ["---:"] * (len(header) - 1)
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (header, rule, *lines))


def _ratio(value: float | None, base: float | None) -> str:
    return _number(value / base) if value is not None and base else "-"


def _number(value: float) -> str:
    """Three digits that count, without an exponent."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
