"""Effect of the target's confidence: agreement with the truth where it is least and most sure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nicegnn.errors import StoreError
from nicegnn.metrics import get_metric
from nicegnn.paper.methods import Method, methods_in
from nicegnn.tables.cells import MISSING, dataset_titles, rows_of
from nicegnn.tables.table import Table

if TYPE_CHECKING:
    import pandas as pd

NUM_PARTS = 3
PROTOCOL = "paper"


def parts_by_confidence(
    rows: pd.DataFrame, confidence: pd.DataFrame, *, metric: str = "roc_auc", target: str = "gin"
) -> pd.DataFrame:
    """Returns the mean of a metric over the graphs of each third of confidence, by method.

    Graphs of a dataset are ordered by the probability that the target gives the explained class
    and cut into `NUM_PARTS` parts of equal size. Graphs without a known probability (those that
    the target gets wrong) are left out.

    Args:
        rows: of the benchmark, from `read_rows`.
        confidence: rows of study ``mechanisms``, of which metric ``confidence`` and setting
            ``clean`` are used.

    Returns:
        Columns ``dataset``, ``explainer``, ``mechanism``, ``part`` (0 is least sure), ``value``,
        ``confidence`` and ``num_graphs``.
    """
    known = confidence[
        (confidence["metric"] == "confidence")
        & (confidence["setting"] == "clean")
        & (confidence["target"] == target)
    ]
    chosen = rows_of(rows, metric, protocol=PROTOCOL, target=target)
    plain = chosen[chosen["graph"] >= 0].astype(
        {"value": "float64", "dataset": "str", "graph": "int64"}
    )
    sure = (
        known.astype({"dataset": "str", "graph": "int64"})
        .groupby(["dataset", "graph"])["value"]
        .mean()
        .rename("confidence")
        .reset_index()
    )
    explained = plain[["dataset", "graph"]].drop_duplicates().merge(sure)
    if explained.empty:
        raise StoreError(
            f"No graph of the benchmark has a known confidence of target {target!r}; compute it "
            "with `nicegnn experiment mechanisms`."
        )
    order = explained.groupby("dataset")["confidence"].rank(method="first") - 1
    size = explained.groupby("dataset")["confidence"].transform("size")
    explained["part"] = (order * NUM_PARTS // size).astype(int)
    keys = ["dataset", "explainer", "mechanism"]
    by_graph = plain.groupby([*keys, "graph"], observed=True)["value"].mean().reset_index()
    found: pd.DataFrame = (
        by_graph.merge(explained)
        .groupby([*keys, "part"], observed=True)
        .agg(
            value=("value", "mean"), confidence=("confidence", "mean"), num_graphs=("graph", "size")
        )
        .reset_index()
    )
    return found


def confidence_table(
    rows: pd.DataFrame, confidence: pd.DataFrame, *, metric: str = "roc_auc", target: str = "gin"
) -> Table:
    """Returns a method per row: the metric on the least and on the most sure third of graphs."""
    parts = parts_by_confidence(rows, confidence, metric=metric, target=target)
    methods = methods_in(parts)
    titles, marks = dataset_titles(rows[rows["dataset"].isin(parts["dataset"])])
    value = parts.set_index(["explainer", "mechanism", "dataset", "part"])["value"]

    def ends(method: Method, dataset: str) -> tuple[float, float] | None:
        key = (method.explainer, method.mechanism, dataset)
        both = [(*key, part) for part in (0, NUM_PARTS - 1)]
        if not all(one in value.index for one in both):
            return None
        return float(value[both[0]]), float(value[both[1]])

    lines = []
    for method in methods:
        found = [ends(method, dataset) for dataset in titles]
        there = [high - low for low, high in (pair for pair in found if pair is not None)]
        lines.append(
            [
                method.label,
                *(MISSING if p is None else f"{100 * p[0]:.1f}, {100 * p[1]:.1f}" for p in found),
                f"{100 * sum(there) / len(there):+.1f}" if there else MISSING,
            ]
        )
    means = parts.groupby(["dataset", "part"])["confidence"].mean()
    sure = ", ".join(
        f"{title} {100 * means[name, 0]:.1f} and {100 * means[name, NUM_PARTS - 1]:.1f}"
        for name, title in titles.items()
    )
    return Table(
        name=f"confidence-{metric.replace('_', '-')}-{PROTOCOL}-{target}",
        title=(
            f"Effect of the target's confidence: {get_metric(metric).title} in percent, protocol "
            f"{PROTOCOL}, target {target}"
        ),
        columns=["method", *titles.values(), "mean change"],
        rows=lines,
        notes=[
            "Mean over the third of graphs of which the target is least sure, then of which it is "
            "most sure; each graph's mean over seeds counts once. Mean change is the second minus "
            f"the first, mean over datasets. Mean probability of the two thirds, percent: {sure}.",
            "Graphs with more true bonds, or more alternatives, are often those that the target is "
            "most sure of, and easier to hit by chance: compare with random.",
            *marks,
        ],
    )
