"""Quality of all methods and confidence of targets, a panel per dataset."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from nicegnn.errors import StoreError
from nicegnn_lab.bench.rows import summarise
from nicegnn_lab.figures.panels import (
    TICK_SIZE,
    DatasetPanels,
    axis_label,
    damaged,
    method_style,
    share_histogram,
)
from nicegnn_lab.metrics.fidelity import REMOVALS
from nicegnn_lab.metrics.metric import get_metric
from nicegnn_lab.paper.methods import datasets_in, methods_in
from nicegnn_lab.studies.mechanisms import DAMAGES
from nicegnn_lab.tables.studies import TITLES
from nicegnn_lab.tables.table import read_study, rows_by, rows_of

_WAYS = {
    "em": "the messages of the others being masked",
    "nc": "the messages of the others being turned into noise",
    "delete": "the others being taken out of the graph",
}


def fidelity_figure(rows: pd.DataFrame, removal: str = "em", *, target: str = "gin") -> Figure:
    """Returns one panel per dataset: prediction kept by the best bonds, a line per method.

    The other bonds were removed by `removal`, one of `REMOVALS`.
    """
    kind = get_metric("kept")
    chosen = rows_of(rows, "kept", protocol=removal, target=target)
    points = summarise(chosen).fillna({"std": 0.0})
    methods = methods_in(points)
    panels = DatasetPanels(rows, datasets_in(points))
    for place, dataset in panels:
        here = points[points["dataset"] == dataset]
        for method in methods:
            curve = rows_by(here, method).sort_values("level")
            if curve.empty:
                continue
            x, mean, std = (curve[name].to_numpy() * 100 for name in ("level", "mean", "std"))
            style = method_style(method)
            (panels.handles[method.label],) = place.plot(x, mean, **style)
            if method.group == "ours":
                low, high, colour = mean - std, mean + std, style["color"]
                place.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0)
        panels.set_title(place, dataset, int(here["num_graphs"].max()))
        place.set_xticks([100 * share for share in sorted(here["level"].unique())][::2])
    seeds = int(points["num_seeds"].max())
    return panels.finish(
        "bonds, %",
        axis_label(kind),
        f"{kind.description} The share of bonds runs over the axis, {_WAYS.get(removal, removal)}.",
        f"Mean over n test graphs and up to {seeds} seed(s), target {target}; bands of our methods "
        "are one standard deviation over seeds.",
        names=[method.label for method in methods],
    )


def fidelity_figures(rows: pd.DataFrame, *, target: str = "gin") -> dict[str, Figure]:
    """Returns the curves of prediction kept by removal, as far as the rows hold them."""
    is_curve = (rows["metric"] == "kept") & (rows["target"] == target)
    there = set(map(str, rows.loc[is_curve, "protocol"].unique()))
    chosen = [removal for removal in REMOVALS if removal in there]
    return {f"fidelity-{one}": fidelity_figure(rows, one, target=target) for one in chosen}


def confidence_figure(studies: str | Path, *, target: str = "gin", is_clean: bool = True) -> Figure:
    """Returns one panel per dataset: histograms of the explained class's probability (Appendix G).

    Gates are open on the true bonds; damage is done to clean messages, or to propagated ones.
    """
    rows, added = read_study(studies, "mechanisms"), "-clean" if is_clean else ""
    settings = {"clean": "clean", **{TITLES[name]: f"{name}{added}/gt" for name in DAMAGES}}
    chosen = rows[(rows["metric"] == "confidence") & (rows["target"] == target)]
    chosen = chosen[chosen["setting"].isin(list(settings.values()))]
    if not chosen["setting"].isin([f"nc{added}/gt"]).any():
        raise StoreError(
            f"The rows hold no confidence under gates 'gt' for target {target!r}; compute "
            "them with `nicegnn lab experiment mechanisms`."
        )
    by_graph = chosen.groupby(["dataset", "setting", "graph"])["value"].mean()  # over seeds
    panels = DatasetPanels(rows, datasets_in(chosen), 2.3)
    edges = [k / 20 for k in range(21)]
    for place, dataset in panels:
        num = 0
        for name, setting in settings.items():
            if (dataset, setting) in by_graph.index:
                values = by_graph[dataset, setting].dropna().to_numpy()
                num = max(num, len(values))
                share_histogram(place, name, values, edges, f"{name}, mean {values.mean():.2f}")
        panels.set_title(place, dataset, num)
        place.set_xlim(0, 1)
        place.legend(frameon=False, fontsize=TICK_SIZE, loc="upper center")
    return panels.finish(
        "probability of the explained class",
        "graphs, %",
        "Probability of the explained class, clean and with gates open on the true bonds only, "
        f"{damaged(is_clean, rows)}; target {target}.",
        "n correctly classified test graphs of label 1; each graph's mean over noise draws, "
        "alternatives of its truth and seeds counts once.",
    )
