"""Quality of all methods and confidence of targets, a panel per dataset."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nicegnn.errors import StoreError
from nicegnn_lab.figures.panels import (
    COLOURS,
    LABEL_SIZE,
    TICK_SIZE,
    DatasetPanels,
    axis_label,
    method_style,
    panels,
    share_histogram,
)
from nicegnn_lab.metrics import REMOVALS, get_metric
from nicegnn_lab.paper.methods import Method, datasets_in, methods_in
from nicegnn_lab.tables.comparison import LEVEL, compare, mechanism_pairs
from nicegnn_lab.tables.quality import NUM_PARTS, parts_by_confidence
from nicegnn_lab.tables.table import read_study, rows_by, rows_of

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

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
    points = curve_points(rows, removal, target=target)
    methods = methods_in(points)
    found = DatasetPanels(rows, datasets_in(points))
    for place, dataset in found:
        here = points[points["dataset"] == dataset]
        for method, some in _by_method(here, methods, "level"):
            x, mean, std = (some[name].to_numpy() * 100 for name in ("level", "mean", "std"))
            style = method_style(method)
            (found.handles[method.label],) = place.plot(x, mean, **style)
            if method.group == "ours":
                low, high, colour = mean - std, mean + std, style["color"]
                place.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0)
        found.set_title(place, dataset, int(here["num_graphs"].max()))
        place.set_xticks([100 * share for share in sorted(here["level"].unique())][::2])
    seeds = int(points["num_seeds"].max())
    return found.finish(
        "bonds, %",
        axis_label(kind),
        f"{kind.description} The share of bonds runs over the axis, {_WAYS.get(removal, removal)}.",
        f"Mean over n test graphs and up to {seeds} seed(s), target {target}; bands of our methods "
        "are one standard deviation over seeds.",
        names=[method.label for method in methods],
    )


def all_fidelity_figures(rows: pd.DataFrame, *, target: str = "gin") -> dict[str, Figure]:
    """Returns the curves of prediction kept by removal, as far as the rows hold them."""
    is_curve = (rows["metric"] == "kept") & (rows["target"] == target)
    there = set(map(str, rows.loc[is_curve, "protocol"].unique()))
    chosen = [removal for removal in REMOVALS if removal in there]
    return {removal: fidelity_figure(rows, removal, target=target) for removal in chosen}


def curve_points(rows: pd.DataFrame, removal: str, *, target: str = "gin") -> pd.DataFrame:
    """Returns mean and deviation over seeds for each dataset, method and share of bonds."""
    chosen = rows_of(rows, "kept", protocol=removal, target=target).astype({"value": "float64"})
    keys = ["dataset", "explainer", "mechanism", "level"]
    by_seed = chosen.groupby([*keys, "seed"], observed=True)["value"].agg(["mean", "count"])
    over_seeds = by_seed.groupby(keys, observed=True)
    table: pd.DataFrame = over_seeds.agg(
        mean=("mean", "mean"),
        std=("mean", "std"),
        num_seeds=("mean", "size"),
        num_graphs=("count", "max"),
    ).reset_index()
    return table.fillna({"std": 0.0})


def by_confidence_figure(
    rows: pd.DataFrame, confidence: pd.DataFrame, *, target: str = "gin"
) -> Figure:
    """Returns one panel per dataset: AUC over thirds of graphs, a line per method.

    For the arguments see `parts_by_confidence`.
    """
    kind = get_metric("roc_auc")
    parts = parts_by_confidence(rows, confidence, target=target)
    methods = methods_in(parts)
    found = DatasetPanels(rows, datasets_in(parts))
    for place, dataset in found:
        here = parts[parts["dataset"] == dataset]
        for method, some in _by_method(here, methods, "part"):
            line = place.plot(some["part"], 100 * some["value"], **method_style(method))
            found.handles[method.label] = line[0]
        by_part = here.groupby("part")
        sure = 100 * by_part["confidence"].mean()
        found.set_title(place, dataset, int(by_part["num_graphs"].max().sum()))
        place.set_xticks(list(sure.index), [f"{value:.1f}" for value in sure], fontsize=TICK_SIZE)
        place.set_xlim(-0.25, NUM_PARTS - 0.75)
    return found.finish(
        "mean probability of the third, %",
        axis_label(kind),
        f"{kind.description} Graphs are cut into thirds by the probability that target {target} "
        "gives the explained class, least sure on the left; protocol paper.",
        "n correctly classified test graphs of label 1; each graph's mean over seeds counts once.",
        names=[method.label for method in methods],
    )


def mechanisms_figure(rows: pd.DataFrame, *, target: str = "gin") -> Figure:
    """Returns one panel per dataset: AUC of each explainer with EM and with NC, joined."""
    kind = get_metric("roc_auc")
    chosen = rows_of(rows, kind.name, protocol="paper", target=target)
    compared = compare(chosen, mechanism_pairs(chosen), num_resamples=1)  # draws no intervals
    if not compared:
        raise StoreError(
            "The rows hold no explainer that was run with both EM and NC; run one with "
            "`nicegnn lab bench -e pgexplainer,pgexplainer+nc`."
        )
    names = list(dict.fromkeys(item.first.explainer for item in compared))
    known = {item.dataset for item in compared}
    datasets = [name for name in datasets_in(chosen) if name in known]
    found = DatasetPanels(rows, datasets, (3.2, 0.28 * len(names) + 1.1), sharey=True)
    for place, dataset in found:
        here = [item for item in compared if item.dataset == dataset]
        for item in here:
            y = names.index(item.first.explainer)
            ends = [100 * item.second_mean, 100 * item.first_mean]
            line = "-" if item.is_different else ":"
            place.plot(ends, [y, y], color="#999999", linestyle=line, linewidth=1.6, zorder=2)
            for x, way, mark in ((ends[0], "EM", "o"), (ends[1], "NC", "s")):
                (found.handles[way],) = place.plot(
                    [x], [y], color=COLOURS[way], marker=mark, linestyle="none", zorder=3
                )
        found.set_title(place, dataset, max(item.test.difference.num for item in here))
        place.set_yticks(range(len(names)), names)
        place.set_ylim(len(names) - 0.5, -0.5)
        place.grid(axis="y", color="#eeeeee", zorder=0)
    return found.finish(
        axis_label(kind).replace("↑", "→").replace("↓", "←"),
        "",
        f"{kind.title} of explainers with element-wise masking (EM) and with noise corruption "
        f"(NC), protocol paper, target {target}; mean over n graphs that both have, each "
        "graph's mean over seeds counting once.",
        f"Full lines join values that differ (Wilcoxon's test over graphs, Holm, {LEVEL}), dotted "
        "lines values that do not.",
    )


def confidence_figure(studies: str | Path, *, target: str = "gin", is_clean: bool = True) -> Figure:
    """Returns one panel per dataset: histograms of the explained class's probability (Appendix G).

    Gates are open on the true bonds; damage is done to clean messages, or to propagated ones.
    """
    rows, added = read_study(studies, "mechanisms"), "-clean" if is_clean else ""
    settings = {"clean": "clean", "EM": f"em{added}/gt", "NC": f"nc{added}/gt"}
    chosen = rows[(rows["metric"] == "confidence") & (rows["target"] == target)]
    chosen = chosen[chosen["setting"].isin(list(settings.values()))]
    if not chosen["setting"].isin([f"nc{added}/gt"]).any():
        raise StoreError(
            f"The rows hold no confidence under gates 'gt' for target {target!r}; compute "
            "them with `nicegnn lab experiment mechanisms`."
        )
    by_graph = chosen.groupby(["dataset", "setting", "graph"])["value"].mean()  # over seeds
    found = DatasetPanels(rows, datasets_in(chosen), (3.0, 2.3))
    edges = [k / 20 for k in range(21)]
    for place, dataset in found:
        num = 0
        for name, setting in settings.items():
            if (dataset, setting) in by_graph.index:
                values = by_graph[dataset, setting].dropna().to_numpy()
                num = max(num, len(values))
                share_histogram(place, name, values, edges, f"{name}, mean {values.mean():.2f}")
        found.set_title(place, dataset, num)
        place.set_xlim(0, 1)
        place.legend(frameon=False, fontsize=TICK_SIZE, loc="upper center")
    return found.finish(
        "probability of the explained class",
        "graphs, %",
        "Probability of the explained class, clean and with gates open on the true bonds only, "
        f"under element-wise masking (EM) and noise corruption (NC) of "
        f"{'clean' if is_clean else 'propagated'} messages; target {target}.",
        "n correctly classified test graphs of label 1; each graph's mean over noise draws, "
        "alternatives of its truth and seeds counts once.",
    )


def calibration_figure(manifests: Sequence[dict[str, Any]]) -> Figure:
    """Returns the confidence histogram of each target, one panel per dataset, with its ECE."""
    titles = {manifest["dataset"]: manifest["title"] for manifest in manifests}
    figure, places = panels(len(titles), height=2.7, sharey=True)
    for place, (name, title) in zip(places, titles.items(), strict=True):
        for manifest in manifests:
            if manifest["dataset"] == name:
                test = manifest["test"]
                label = f"{manifest['target']}, ECE {test['ece']:.3f}"
                place.stairs(test["histogram"], test["edges"], label=label, linewidth=1.6)
        place.set_title(title, fontsize=LABEL_SIZE)
        place.set_xlabel("confidence", fontsize=TICK_SIZE)
        place.legend(frameon=False, fontsize=TICK_SIZE)
    places[0].set_ylabel("share of test graphs", fontsize=TICK_SIZE)
    return figure


def _by_method(
    rows: pd.DataFrame, methods: Sequence[Method], order: str
) -> Iterator[tuple[Method, pd.DataFrame]]:
    """Yields the rows of each method that has any, in the order of a column."""
    for method in methods:
        some = rows_by(rows, method).sort_values(order)
        if not some.empty:
            yield method, some
