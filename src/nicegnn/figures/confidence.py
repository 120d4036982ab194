"""Confidence of the target under EM and NC with the same true gates (Appendix G of the paper)."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from nicegnn.errors import StoreError
from nicegnn.figures.drawing import COLOURS
from nicegnn.figures.style import LABEL_SIZE, TICK_SIZE, TITLE_SIZE, panels, set_caption
from nicegnn.tables.methods import dataset_title, datasets_in, stand_in_note, stand_ins

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

_GATES = {"gt": "the true bonds", "rand": "as many random bonds as there are true ones"}


def confidence_figure(
    rows: pd.DataFrame,
    *,
    gates: str = "gt",
    target: str = "gin",
    num_bins: int = 20,
    marked: Collection[str] | None = None,
) -> Figure:
    """Returns one panel per dataset: histograms of the explained class's probability.

    Args:
        rows: of experiment ``mechanism_comparison``, one per graph, metric ``confidence``, setting
            ``clean``, ``em/gt``, ``nc/gt``, ...
        gates: ``gt`` for gates open on the true bonds, ``rand`` for random ones.
    """
    chosen = rows[(rows["metric"] == "confidence") & (rows["target"] == target)]
    settings = {"clean": "clean", "EM": f"em/{gates}", "NC": f"nc/{gates}"}
    chosen = chosen[chosen["setting"].isin(list(settings.values()))]
    if chosen.empty:
        raise StoreError(
            f"The rows hold no confidence under gates {gates!r} for target {target!r}; compute "
            "them with `nicegnn experiment mechanism_comparison`."
        )
    by_graph = chosen.groupby(["dataset", "setting", "level"])["value"].mean()  # over seeds
    datasets = datasets_in(chosen)
    marked = stand_ins(datasets) if marked is None else marked
    figure, places = panels(len(datasets), height=2.3)
    edges = [k / num_bins for k in range(num_bins + 1)]
    for place, dataset in zip(places, datasets, strict=True):
        num = 0
        for name, setting in settings.items():
            if (dataset, setting) not in by_graph.index:
                continue
            values = by_graph[dataset, setting].dropna().to_numpy()
            num = max(num, len(values))
            place.hist(
                values,
                bins=edges,
                weights=[100 / len(values)] * len(values),
                histtype="stepfilled" if name == "clean" else "step",
                color="#cccccc" if name == "clean" else COLOURS[name],
                linestyle="--" if name == "EM" else "-",
                linewidth=1.8,
                label=f"{name}, mean {values.mean():.2f}",
            )
        place.set_title(f"{dataset_title(dataset, marked)}, n = {num}", fontsize=TITLE_SIZE)
        place.set_xlabel("probability of the explained class", fontsize=LABEL_SIZE)
        place.set_xlim(0, 1)
        place.legend(frameon=False, fontsize=TICK_SIZE, loc="upper center")
    for place in places[::4]:
        place.set_ylabel("graphs, %", fontsize=LABEL_SIZE)
    set_caption(
        figure,
        f"Probability of the explained class, clean and with gates open on "
        f"{_GATES.get(gates, gates)} only, under element-wise masking (EM) and noise corruption "
        f"(NC); target {target}.",
        "n correctly classified test graphs of label 1; each graph's mean over noise draws, "
        "alternatives of its truth and seeds counts once.",
        *stand_in_note(datasets, marked),
    )
    return figure
