"""Agreement with the truth against the target's confidence, on every dataset."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from nicegnn.figures.style import (
    LABEL_SIZE,
    TICK_SIZE,
    TITLE_SIZE,
    axis_label,
    legend_below,
    method_style,
    panels,
    set_caption,
)
from nicegnn.metrics import get_metric
from nicegnn.tables.by_confidence import NUM_PARTS, parts_by_confidence
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


def by_confidence_figure(
    rows: pd.DataFrame,
    confidence: pd.DataFrame,
    *,
    metric: str = "roc_auc",
    protocol: str = "paper",
    target: str = "gin",
    explainers: Sequence[str] | None = None,
    marked: Collection[str] | None = None,
) -> Figure:
    """Returns one panel per dataset: a metric over thirds of graphs, a line per method.

    Args:
        rows, confidence: see `parts_by_confidence`.
        explainers: names as in `quality_table`; by default all, each with its own mechanism.
    """
    kind = get_metric(metric)
    parts = parts_by_confidence(rows, confidence, metric=metric, protocol=protocol, target=target)
    methods, datasets = methods_in(parts, explainers), datasets_in(parts)
    marked = stand_ins(datasets) if marked is None else marked
    figure, places = panels(len(datasets))
    handles = {}
    for place, dataset in zip(places, datasets, strict=True):
        here = parts[parts["dataset"] == dataset]
        for method in methods:
            some = rows_by(here, method).sort_values("part")
            if not some.empty:
                y = 100 * some["value"].to_numpy()
                (handles[method.label],) = place.plot(some["part"], y, **method_style(method))
        sure = 100 * here.groupby("part")["confidence"].mean()
        num = int(here.groupby("part")["num_graphs"].max().sum())
        place.set_title(f"{dataset_title(dataset, marked)}, n = {num}", fontsize=TITLE_SIZE)
        place.set_xticks(list(sure.index), [f"{value:.1f}" for value in sure], fontsize=TICK_SIZE)
        place.set_xlim(-0.25, NUM_PARTS - 0.75)
        place.set_xlabel("mean probability of the third, %", fontsize=LABEL_SIZE)
    for place in places[::4]:
        place.set_ylabel(axis_label(kind), fontsize=LABEL_SIZE)
    legend_below(figure, {m.label: handles[m.label] for m in methods if m.label in handles})
    set_caption(
        figure,
        f"{kind.description} Graphs are cut into thirds by the probability that target {target} "
        "gives the explained class, least sure on the left; protocol "
        f"{protocol}.",
        "n correctly classified test graphs of label 1; each graph's mean over seeds counts once.",
        *stand_in_note(datasets, marked),
    )
    return figure
