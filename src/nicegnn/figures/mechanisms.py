"""Rivals with masking (EM) against the same rivals with noise corruption (NC)."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from nicegnn.errors import StoreError
from nicegnn.figures.drawing import COLOURS
from nicegnn.figures.style import (
    LABEL_SIZE,
    TITLE_SIZE,
    axis_label,
    legend_below,
    panels,
    set_caption,
)
from nicegnn.metrics import get_metric
from nicegnn.tables.comparison import LEVEL, compare, mechanism_pairs
from nicegnn.tables.methods import (
    dataset_title,
    datasets_in,
    rows_of,
    stand_in_note,
    stand_ins,
)

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


def mechanisms_figure(
    rows: pd.DataFrame,
    *,
    metric: str = "roc_auc",
    protocol: str = "paper",
    target: str = "gin",
    marked: Collection[str] | None = None,
) -> Figure:
    """Returns one panel per dataset: two marks per explainer, joined, with EM and with NC."""
    kind = get_metric(metric)
    chosen = rows_of(rows, metric, protocol=protocol, target=target)
    found = compare(chosen, mechanism_pairs(chosen), num_resamples=1)  # no intervals are drawn
    if not found:
        raise StoreError("The rows hold no explainer that was run with both EM and NC.")
    names = list(dict.fromkeys(item.first.explainer for item in found))
    datasets = [name for name in datasets_in(chosen) if any(i.dataset == name for i in found)]
    marked = stand_ins(datasets) if marked is None else marked
    figure, places = panels(len(datasets), width=3.2, height=0.28 * len(names) + 1.1, sharey=True)
    handles = {}
    for place, dataset in zip(places, datasets, strict=True):
        here = [item for item in found if item.dataset == dataset]
        for item in here:
            y = names.index(item.first.explainer)
            ends = [100 * item.second_mean, 100 * item.first_mean]
            line = "-" if item.is_different else ":"
            place.plot(ends, [y, y], color="#999999", linestyle=line, linewidth=1.6, zorder=2)
            for x, way, mark in ((ends[0], "EM", "o"), (ends[1], "NC", "s")):
                (handles[way],) = place.plot(
                    [x], [y], color=COLOURS[way], marker=mark, linestyle="none", zorder=3
                )
        num = max((item.test.difference.num for item in here), default=0)
        place.set_title(f"{dataset_title(dataset, marked)}, n = {num}", fontsize=TITLE_SIZE)
        place.set_yticks(range(len(names)), names)
        place.set_ylim(len(names) - 0.5, -0.5)
        place.grid(axis="y", color="#eeeeee", zorder=0)
        place.set_xlabel(axis_label(kind).replace("↑", "→").replace("↓", "←"), fontsize=LABEL_SIZE)
    legend_below(figure, {way: handles[way] for way in ("EM", "NC")})
    set_caption(
        figure,
        f"{kind.title} of explainers with element-wise masking (EM) and with noise corruption "
        f"(NC), protocol {protocol}, target {target}; mean over n graphs that both have, each "
        "graph's mean over seeds counting once.",
        f"Full lines join values that differ (Wilcoxon's test over graphs, Holm, {LEVEL}), dotted "
        "lines values that do not.",
        *stand_in_note(datasets, marked),
    )
    return figure
