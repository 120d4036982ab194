"""Quality of all methods, a panel per dataset: fidelity curves, effect of confidence, EM and NC."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from nicegnn.errors import StoreError
from nicegnn.figures.drawing import COLOURS, TICK_SIZE, DatasetPanels, axis_label, method_style
from nicegnn.metrics import REMOVALS, get_metric
from nicegnn.paper.methods import Method, datasets_in, methods_in
from nicegnn.tables.cells import rows_by, rows_of
from nicegnn.tables.comparison import LEVEL, compare, mechanism_pairs
from nicegnn.tables.confidence import NUM_PARTS, parts_by_confidence

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

    Args:
        rows: from `read_rows`.
        removal: how the other bonds were removed, see `REMOVALS`.
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


def _by_method(
    rows: pd.DataFrame, methods: Sequence[Method], order: str
) -> Iterator[tuple[Method, pd.DataFrame]]:
    """Yields the rows of each method that has any, in the order of a column."""
    for method in methods:
        some = rows_by(rows, method).sort_values(order)
        if not some.empty:
            yield method, some


def all_fidelity_figures(rows: pd.DataFrame, *, target: str = "gin") -> dict[str, Figure]:
    """Returns the curves of prediction kept by removal, as far as the rows hold them."""
    is_curve = (rows["metric"] == "kept") & (rows["target"] == target)
    there = set(map(str, rows.loc[is_curve, "protocol"].unique()))
    return {
        removal: fidelity_figure(rows, removal, target=target)
        for removal in REMOVALS
        if removal in there
    }


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
    rows: pd.DataFrame, confidence: pd.DataFrame, *, metric: str = "roc_auc", target: str = "gin"
) -> Figure:
    """Returns one panel per dataset: a metric over thirds of graphs, a line per method.

    Args:
        rows, confidence: see `parts_by_confidence`.
    """
    kind = get_metric(metric)
    parts = parts_by_confidence(rows, confidence, metric=metric, target=target)
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


def mechanisms_figure(
    rows: pd.DataFrame, *, metric: str = "roc_auc", protocol: str = "paper", target: str = "gin"
) -> Figure:
    """Returns one panel per dataset: two marks per explainer, joined, with EM and with NC."""
    kind = get_metric(metric)
    chosen = rows_of(rows, metric, protocol=protocol, target=target)
    compared = compare(chosen, mechanism_pairs(chosen), num_resamples=1)  # draws no intervals
    if not compared:
        raise StoreError(
            "The rows hold no explainer that was run with both EM and NC; run one with "
            "`nicegnn bench -e pgexplainer,pgexplainer+nc`."
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
        f"(NC), protocol {protocol}, target {target}; mean over n graphs that both have, each "
        "graph's mean over seeds counting once.",
        f"Full lines join values that differ (Wilcoxon's test over graphs, Holm, {LEVEL}), dotted "
        "lines values that do not.",
    )
