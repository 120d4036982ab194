"""Confidence of the target: clean, under EM and under NC (Appendix G), and its calibration."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from nicegnn.errors import StoreError
from nicegnn.figures.drawing import LABEL_SIZE, TICK_SIZE, DatasetPanels, panels, share_histogram
from nicegnn.paper.methods import datasets_in

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

_GATES = {"gt": "the true bonds", "rand": "as many random bonds as there are true ones"}


def confidence_figure(
    rows: pd.DataFrame, *, gates: str = "gt", target: str = "gin", num_bins: int = 20
) -> Figure:
    """Returns one panel per dataset: histograms of the explained class's probability.

    Args:
        rows: of study ``mechanisms``, one per graph, metric ``confidence``, setting ``clean``,
            ``em/gt``, ``nc/gt``, ...
        gates: ``gt`` for gates open on the true bonds, ``rand`` for random ones.
    """
    chosen = rows[(rows["metric"] == "confidence") & (rows["target"] == target)]
    settings = {"clean": "clean", "EM": f"em/{gates}", "NC": f"nc/{gates}"}
    chosen = chosen[chosen["setting"].isin(list(settings.values()))]
    if chosen.empty:
        raise StoreError(
            f"The rows hold no confidence under gates {gates!r} for target {target!r}; compute "
            "them with `nicegnn experiment mechanisms`."
        )
    by_graph = chosen.groupby(["dataset", "setting", "graph"])["value"].mean()  # over seeds
    found = DatasetPanels(rows, datasets_in(chosen), (3.0, 2.3))
    edges = [k / num_bins for k in range(num_bins + 1)]
    for place, dataset in found:
        num = 0
        for name, setting in settings.items():
            if (dataset, setting) not in by_graph.index:
                continue
            values = by_graph[dataset, setting].dropna().to_numpy()
            num = max(num, len(values))
            label = f"{name}, mean {values.mean():.2f}"
            share_histogram(place, name, values, edges, label)
        found.set_title(place, dataset, num)
        place.set_xlim(0, 1)
        place.legend(frameon=False, fontsize=TICK_SIZE, loc="upper center")
    return found.finish(
        "probability of the explained class",
        "graphs, %",
        f"Probability of the explained class, clean and with gates open on "
        f"{_GATES.get(gates, gates)} only, under element-wise masking (EM) and noise corruption "
        f"(NC); target {target}.",
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
