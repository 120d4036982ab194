"""Cost against quality: seconds per graph and agreement with the truth, all methods."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from nicegnn.experiments.methods import (
    dataset_title,
    datasets_in,
    methods_in,
    rows_of,
    stand_in_note,
    stand_ins,
)
from nicegnn.metrics import get_metric
from nicegnn.plots.style import (
    LABEL_SIZE,
    TITLE_SIZE,
    axis_label,
    legend_below,
    method_style,
    panels,
    set_caption,
)

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

SECONDS = ("explain_seconds_per_graph", "fit_seconds")
#: Metrics of the figure; hand them to `read_rows` as ``where={"metric": COST_METRICS}``.
COST_METRICS = ("roc_auc", *SECONDS)
_LEAST = 1e-7  # seconds; a clock that shows nothing would fall off a log axis


def cost_figure(
    rows: pd.DataFrame,
    *,
    metric: str = "roc_auc",
    protocol: str = "paper",
    target: str = "gin",
    explainers: Sequence[str] | None = None,
    variants: bool = False,
    marked: Collection[str] | None = None,
) -> Figure:
    """Returns one panel per dataset: a metric against seconds per graph, a mark per method.

    Args:
        explainers: names as in `quality_table`; by default all.
        variants: also explainers with a mechanism that is not their own.
        marked: datasets to call stand-ins; by default by the files in the data folder.
    """
    kind = get_metric(metric)
    points = cost_points(rows, metric, protocol=protocol, target=target)
    methods = methods_in(points, explainers, variants=variants)
    datasets = datasets_in(points)
    marked = stand_ins(datasets) if marked is None else marked
    figure, places = panels(len(datasets), height=2.7)
    handles = {}
    for place, dataset in zip(places, datasets, strict=True):
        here = points[points["dataset"] == dataset].set_index(["explainer", "mechanism"])
        for method in methods:
            if (method.explainer, method.mechanism) not in here.index:
                continue
            point = here.loc[(method.explainer, method.mechanism)]
            style = method_style(method) | {"linestyle": "none"}
            x, y = max(float(point["explain"]), _LEAST), 100 * float(point["value"])
            if point["with_fit"] > x:  # false for nan
                ends = [x, float(point["with_fit"])]
                place.plot(ends, [y, y], color=style["color"], linewidth=1, linestyle=":", zorder=2)
                place.plot(ends[1:], [y], color=style["color"], marker="|", markersize=6, zorder=2)
            (handles[method.label],) = place.plot([x], [y], **style)
        place.set_xscale("log")
        num = int(here["num_graphs"].max())
        place.set_title(f"{dataset_title(dataset, marked)}, n = {num}", fontsize=TITLE_SIZE)
        place.set_xlabel("seconds per graph ←", fontsize=LABEL_SIZE)
    for place in places[::4]:
        place.set_ylabel(axis_label(kind), fontsize=LABEL_SIZE)
    legend_below(figure, {m.label: handles[m.label] for m in methods if m.label in handles})
    set_caption(
        figure,
        f"{kind.title} (protocol {protocol}, target {target}, mean over n graphs and seeds) "
        "against the time of one explanation, log axis.",
        "Where a method is fitted first, a dotted line leads to its time with the fit shared out "
        "over the n graphs. Times are of the devices on which the rows were made.",
        *stand_in_note(datasets, marked),
    )
    return figure


def cost_points(
    rows: pd.DataFrame, metric: str = "roc_auc", *, protocol: str = "paper", target: str = "gin"
) -> pd.DataFrame:
    r"""Returns quality and seconds per graph of each dataset and method.

    .. math:: t_{with\ fit} = t_{explain} + t_{fit} / n

    Columns ``value``, ``explain``, ``with_fit`` are means over seeds; ``num_graphs`` is n.
    """
    chosen = rows_of(rows, metric, protocol=protocol, target=target).astype({"value": "float64"})
    keys = ["dataset", "explainer", "mechanism"]
    by_seed = chosen.groupby([*keys, "seed"], observed=True)["value"].agg(["mean", "count"])
    parts = {
        "value": by_seed["mean"].groupby(level=keys, observed=True).mean(),
        "num_graphs": by_seed["count"].groupby(level=keys, observed=True).max(),
    }
    for name, metric_name in zip(("explain", "fit"), SECONDS, strict=True):
        seconds = rows_of(rows, metric_name, target=target).astype({"value": "float64"})
        parts[name] = seconds.groupby(keys, observed=True)["value"].mean()
    points = parts["value"].to_frame("value")
    for name, column in parts.items():
        points[name] = column
    points["with_fit"] = points["explain"] + points["fit"] / points["num_graphs"]
    found: pd.DataFrame = points.dropna(subset=["value", "explain"]).reset_index()
    return found
