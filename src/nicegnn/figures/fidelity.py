"""Fidelity curves: prediction kept when only the best bonds are left, on every dataset."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from nicegnn.errors import StoreError
from nicegnn.figures.style import (
    LABEL_SIZE,
    TITLE_SIZE,
    axis_label,
    legend_below,
    method_style,
    panels,
    set_caption,
)
from nicegnn.metrics import RATIOS, REMOVALS, get_metric
from nicegnn.tables.methods import (
    dataset_title,
    datasets_in,
    methods_in,
    rows_by,
    stand_in_note,
    stand_ins,
)

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

#: Metrics of the curves; hand them to `read_rows` as ``where={"metric": CURVE_METRICS}``.
CURVE_METRICS = tuple(f"kept@{ratio:g}" for ratio in RATIOS)
_WAYS = {
    "em": "the messages of the others being masked",
    "nc": "the messages of the others being turned into noise",
    "delete": "the others being taken out of the graph",
}


def fidelity_figure(
    rows: pd.DataFrame,
    removal: str = "em",
    *,
    metric: str = "kept",
    target: str = "gin",
    explainers: Sequence[str] | None = None,
    marked: Collection[str] | None = None,
) -> Figure:
    """Returns one panel per dataset: a metric against the share of bonds, a line per method.

    Args:
        rows: from `read_rows`.
        removal: how bonds were removed, see `REMOVALS`.
        metric: of a fidelity curve, ``kept``, ``fid_plus``, ``prob_fid_minus``, ...
        explainers: names as in `quality_table`; by default all, each with its own mechanism.
        marked: datasets to call stand-ins; by default by the files in the data folder.
    """
    kind = get_metric(metric)
    points = curve_points(rows, removal, metric=metric, target=target)
    methods, datasets = methods_in(points, explainers), datasets_in(points)
    marked = stand_ins(datasets) if marked is None else marked
    figure, places = panels(len(datasets))
    handles = {}
    for place, dataset in zip(places, datasets, strict=True):
        here = points[points["dataset"] == dataset]
        for method in methods:
            some = rows_by(here, method).sort_values("ratio")
            if some.empty:
                continue
            x, mean, std = (some[name].to_numpy() * 100 for name in ("ratio", "mean", "std"))
            style = method_style(method)
            (handles[method.label],) = place.plot(x, mean, **style)
            if method.group == "ours":
                place.fill_between(
                    x, mean - std, mean + std, color=style["color"], alpha=0.15, linewidth=0
                )
        num = int(here["num_graphs"].max())
        place.set_title(f"{dataset_title(dataset, marked)}, n = {num}", fontsize=TITLE_SIZE)
        place.set_xticks([100 * ratio for ratio in sorted(here["ratio"].unique())][::2])
        place.set_xlabel("bonds, %", fontsize=LABEL_SIZE)
    for place in places[::4]:
        place.set_ylabel(axis_label(kind), fontsize=LABEL_SIZE)
    legend_below(figure, {m.label: handles[m.label] for m in methods if m.label in handles})
    seeds = int(points["num_seeds"].max())
    set_caption(
        figure,
        f"{kind.description} The share of bonds runs over the axis, {_WAYS.get(removal, removal)}.",
        f"Mean over n test graphs and up to {seeds} seed(s), target {target}; bands of our methods "
        "are one standard deviation over seeds.",
        *stand_in_note(datasets, marked),
    )
    return figure


def all_fidelity_figures(
    rows: pd.DataFrame,
    *,
    target: str = "gin",
    explainers: Sequence[str] | None = None,
    marked: Collection[str] | None = None,
) -> dict[str, Figure]:
    """Returns the curves of prediction kept by removal, as far as the rows hold them."""
    is_curve = rows["metric"].isin(_shares(rows, "kept")) & (rows["target"] == target)
    there = set(map(str, rows.loc[is_curve, "protocol"].unique()))
    return {
        removal: fidelity_figure(rows, removal, target=target, explainers=explainers, marked=marked)
        for removal in REMOVALS
        if removal in there
    }


def curve_points(
    rows: pd.DataFrame, removal: str, *, metric: str = "kept", target: str = "gin"
) -> pd.DataFrame:
    """Returns mean and deviation over seeds for each dataset, method and share of bonds."""
    chosen = rows[
        rows["metric"].isin(_shares(rows, metric))
        & (rows["protocol"] == removal)
        & (rows["target"] == target)
    ]
    if chosen.empty:
        raise StoreError(
            f"The rows hold no curve of {metric!r} under removal {removal!r} for target {target!r}."
        )
    keys = ["dataset", "explainer", "mechanism", "metric"]
    chosen = chosen.astype({"value": "float64"})
    by_seed = chosen.groupby([*keys, "seed"], observed=True)["value"].agg(["mean", "count"])
    found = (
        by_seed.groupby(keys, observed=True)
        .agg(
            mean=("mean", "mean"),
            std=("mean", "std"),
            num_seeds=("mean", "size"),
            num_graphs=("count", "max"),
        )
        .reset_index()
    )
    ratio = found["metric"].astype(str).str.partition("@")[2].astype(float)
    table: pd.DataFrame = found.assign(ratio=ratio)
    return table.fillna({"std": 0.0})


def _shares(rows: pd.DataFrame, metric: str) -> list[str]:
    """Returns the names of a curve's metrics, ``kept@0.1`` and so on."""
    return [str(name) for name in rows["metric"].unique() if str(name).startswith(f"{metric}@")]
