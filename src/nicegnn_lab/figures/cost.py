"""Cost against quality: seconds per graph and agreement with the truth, all methods."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nicegnn_lab.bench import summarise
from nicegnn_lab.figures.panels import DatasetPanels, axis_label, method_style
from nicegnn_lab.metrics import get_metric
from nicegnn_lab.paper.methods import datasets_in, methods_in
from nicegnn_lab.tables.table import rows_of

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

SECONDS = {"explain": "explain_seconds_per_graph", "fit": "fit_seconds"}
_LEAST = 1e-7  # seconds; a clock that shows nothing would fall off a log axis


def cost_figure(rows: pd.DataFrame, *, target: str = "gin") -> Figure:
    """Returns one panel per dataset: AUC against seconds per graph, a mark per method."""
    kind = get_metric("roc_auc")
    points = cost_points(rows, target=target)
    methods = methods_in(points)
    panels = DatasetPanels(rows, datasets_in(points), (3.0, 2.7))
    for place, dataset in panels:
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
            (panels.handles[method.label],) = place.plot([x], [y], **style)
        place.set_xscale("log")
        panels.set_title(place, dataset, int(here["num_graphs"].max()))
    return panels.finish(
        "seconds per graph ←",
        axis_label(kind),
        f"{kind.title} (protocol paper, target {target}, mean over n graphs and seeds) against the "
        "time of one explanation, log axis.",
        "Where a method is fitted first, a dotted line leads to its time with the fit shared out "
        "over the n graphs.",
        "Times are of the devices on which the rows were made.",
        names=[method.label for method in methods],
    )


def cost_points(rows: pd.DataFrame, *, target: str = "gin") -> pd.DataFrame:
    r"""Returns AUC and seconds per graph of each dataset and method.

    .. math:: t_{with\ fit} = t_{explain} + t_{fit} / n

    Columns ``value``, ``explain``, ``with_fit`` are means over seeds; ``num_graphs`` is n.
    """
    keys = ["dataset", "explainer", "mechanism"]
    quality = summarise(rows_of(rows, "roc_auc", protocol="paper", target=target)).set_index(keys)
    points = quality[["mean", "num_graphs"]].rename(columns={"mean": "value"})
    for name, metric in SECONDS.items():
        points[name] = summarise(rows_of(rows, metric, target=target)).set_index(keys)["mean"]
    points["with_fit"] = points["explain"] + points["fit"] / points["num_graphs"]
    measured: pd.DataFrame = points.dropna(subset=["value", "explain"]).reset_index()
    return measured
