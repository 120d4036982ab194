"""Cost against quality: seconds per graph and agreement with the truth, all methods."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from nicegnn.errors import StoreError
from nicegnn_lab.figures.panels import DatasetPanels, axis_label, method_style
from nicegnn_lab.metrics import get_metric
from nicegnn_lab.paper.methods import Method, datasets_in, methods_in
from nicegnn_lab.tables.table import rows_of

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

SECONDS = {"explain": "explain_seconds_per_graph", "fit": "fit_seconds"}
_LEAST = 1e-7  # seconds; a clock that shows nothing would fall off a log axis


@dataclass(frozen=True)
class Speed:
    """Times of all explainers, measured one after another on one machine."""

    machine: str
    dataset: str  # whose graphs were explained
    explain: Mapping[str, float]  # seconds per graph, by the method's name in tables
    fit: Mapping[str, float]  # seconds of a fit, 0 without one


def read_speed(path: str | Path) -> Speed:
    """Reads what ``benchmarks/suite.py --only all`` wrote."""
    try:
        found = json.loads(Path(path).read_text(encoding="utf-8"))
        items = found["explainers"].items()
        return Speed(
            machine=str(found["machine"]),
            dataset=str(found["dataset"]),
            explain={name: float(times["explain"]) for name, times in items},
            fit={name: float(times["fit"]) for name, times in items},
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise StoreError(
            f"Cannot read times from {path} ({error}); write them with "
            "`python benchmarks/suite.py --only all --no-growth --out FILE`."
        ) from error


def cost_figure(rows: pd.DataFrame, *, speed: Speed | None = None, target: str = "gin") -> Figure:
    """Returns one panel per dataset: AUC against seconds per graph, a mark per method.

    Args:
        speed: times of one machine to take instead of those in the rows, which may come from
            several; methods without a time are left out.
    """
    kind = get_metric("roc_auc")
    points = cost_points(rows, target=target, speed=speed)
    methods = methods_in(points)
    found = DatasetPanels(rows, datasets_in(points), (3.0, 2.7))
    for place, dataset in found:
        here = points[points["dataset"] == dataset].set_index(["explainer", "mechanism"])
        for method in methods:
            key = method.explainer, method.mechanism
            if key not in here.index:
                continue
            point = here.loc[key]
            style = method_style(method) | {"linestyle": "none"}
            x, y = max(float(point["explain"]), _LEAST), 100 * float(point["value"])
            if point["with_fit"] > x:  # false for nan
                ends = [x, float(point["with_fit"])]
                place.plot(ends, [y, y], color=style["color"], linewidth=1, linestyle=":", zorder=2)
                place.plot(ends[1:], [y], color=style["color"], marker="|", markersize=6, zorder=2)
            (found.handles[method.label],) = place.plot([x], [y], **style)
        place.set_xscale("log")
        found.set_title(place, dataset, int(here["num_graphs"].max()))
    return found.finish(
        "seconds per graph ←",
        axis_label(kind),
        f"{kind.title} (protocol paper, target {target}, mean over n graphs and seeds) against the "
        "time of one explanation, log axis.",
        "Where a method is fitted first, a dotted line leads to its time with the fit shared out "
        "over the n graphs.",
        "Times are of the devices on which the rows were made."
        if speed is None
        else f"Times were measured on graphs of {speed.dataset}, on one machine: {speed.machine}.",
        names=[method.label for method in methods],
    )


def cost_points(
    rows: pd.DataFrame, *, speed: Speed | None = None, target: str = "gin"
) -> pd.DataFrame:
    r"""Returns AUC and seconds per graph of each dataset and method.

    .. math:: t_{with\ fit} = t_{explain} + t_{fit} / n

    Columns ``value``, ``explain``, ``with_fit`` are means over seeds; ``num_graphs`` is n.
    """
    chosen = rows_of(rows, "roc_auc", protocol="paper", target=target).astype({"value": "float64"})
    keys = ["dataset", "explainer", "mechanism"]
    by_seed = chosen.groupby([*keys, "seed"], observed=True)["value"].agg(["mean", "count"])
    over_seeds = by_seed.groupby(keys, observed=True)
    points = over_seeds.agg(value=("mean", "mean"), num_graphs=("count", "max"))
    if speed is None:
        for name, metric in SECONDS.items():
            seconds = rows_of(rows, metric, target=target).astype({"value": "float64"})
            points[name] = seconds.groupby(keys, observed=True)["value"].mean()
    else:
        labels = [Method(str(explainer), str(way)).label for _, explainer, way in points.index]
        for name, times in (("explain", speed.explain), ("fit", speed.fit)):
            points[name] = [times.get(label, float("nan")) for label in labels]
    points["with_fit"] = points["explain"] + points["fit"] / points["num_graphs"]
    found: pd.DataFrame = points.dropna(subset=["value", "explain"]).reset_index()
    return found
