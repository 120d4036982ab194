"""Message scale layer by layer, clean, under EM and under NC, for datasets and backbones."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from nicegnn.figures.drawing import COLOURS, new_figure
from nicegnn.figures.style import LABEL_SIZE, TITLE_SIZE, legend_below, plain, set_caption
from nicegnn.studies.scale import targets_in
from nicegnn.tables.methods import dataset_title, datasets_in, stand_in_note, stand_ins

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Name, setting and mark of each line.
WAYS = (("clean", "clean", "D"), ("EM", "em", "o"), ("NC", "nc", "s"))
BAND = (0.1, 0.9)  # quantiles over graphs


def layer_scale_figure(
    scales: pd.DataFrame,
    *,
    datasets: Sequence[str] | None = None,
    targets: Sequence[str] | None = None,
    marked: Collection[str] | None = None,
) -> Figure:
    """Returns a grid, backbones by datasets, of mean message scale per layer on a log axis.

    Args:
        scales: from `nicegnn.studies.scale.read_scales`.
        datasets, targets: only these, in this order; by default all.
    """
    datasets = datasets_in(scales) if datasets is None else list(datasets)
    targets = targets_in(scales) if targets is None else list(targets)
    marked = stand_ins(datasets) if marked is None else marked
    figure = new_figure(2.1 * len(datasets) + 0.8, 1.9 * len(targets) + 0.6)
    grid = figure.subplots(len(targets), len(datasets), squeeze=False)
    handles: dict[str, Any] = {}
    for line, target in zip(grid, targets, strict=True):
        for place, dataset in zip(line, datasets, strict=True):
            plain(place)
            here = scales[(scales["dataset"] == dataset) & (scales["target"] == target)]
            if here.empty:
                place.set_axis_off()
                continue
            handles |= draw_layers(place, here)
            place.set_title(f"n = {here['graph'].nunique()}", fontsize=LABEL_SIZE)
        line[0].set_axis_on()
        line[0].set_ylabel(f"{target}\nmessage scale", fontsize=LABEL_SIZE)
    for place, dataset in zip(grid[0], datasets, strict=True):
        title = dataset_title(dataset, marked).replace(" (", "\n(")
        place.set_title(f"{title}\n{place.get_title()}", fontsize=TITLE_SIZE)
    for place in grid[-1]:
        place.set_xlabel("layer", fontsize=LABEL_SIZE)
    legend_below(figure, handles)
    set_caption(
        figure,
        "Mean squared message norm of each message-passing layer, clean and with gates open on the "
        "true bonds only, under element-wise masking (EM) and noise corruption (NC), log axis.",
        "Mean over n correctly classified test graphs of label 1; bands run from the 10th to the "
        "90th percentile of graphs.",
        *stand_in_note(datasets, marked),
    )
    return figure


def draw_layers(axes: Axes, scales: pd.DataFrame) -> dict[str, Any]:
    """Draws mean scale and its spread over graphs against the layer; returns the lines by name."""
    handles: dict[str, Any] = {}
    layers = sorted(int(layer) for layer in scales["layer"].unique())
    for name, setting, mark in WAYS:
        grouped = scales[scales["setting"] == setting].groupby("layer")["value"]
        if grouped.ngroups == 0:
            continue
        mean = grouped.mean()
        low, high = (grouped.quantile(q) for q in BAND)
        axes.fill_between(mean.index, low, high, color=COLOURS[name], alpha=0.15, linewidth=0)
        (handles[name],) = axes.plot(
            mean.index, mean, color=COLOURS[name], marker=mark, markersize=4, linewidth=1.6
        )
    axes.set_yscale("log")
    axes.set_xticks(layers)
    return handles
