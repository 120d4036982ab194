"""All metrics: name, title, direction and meaning."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor, nn

from nicegnn.errors import MetricError

if TYPE_CHECKING:
    from torch_geometric.data import Batch

    from nicegnn.graph.case import Bonds
    from nicegnn_lab.metrics.agreement import Truth


@dataclass(frozen=True)
class Metric:
    """A measured quantity; tables use its title, direction and description.

    One of one's own, put into `METRICS`, has a function of `Measured` that returns a share per
    graph. ``nicegnn lab bench --metric name`` measures it, and tables of quality show it.
    """

    name: str  # key in `METRICS` and in tables of results
    title: str  # short heading for tables and figures
    higher_is_better: bool | None  # None if neither is better
    description: str  # what it measures, in a sentence
    measure: Callable[[Measured], Tensor] | None = None  # of one's own


@dataclass(frozen=True)
class Measured:
    """What one's own metric is computed from: explanations of B graphs with M bonds."""

    bond_score: Tensor  # what ranks the bonds, [M]
    bonds: Bonds  # their ends, and the graph of each
    truth: Truth  # true explanations
    graphs: Batch  # the explained graphs
    model: nn.Module  # the target
    explained: Tensor  # explained class of each graph, [B]
    prediction: Tensor  # log-probabilities on the whole graph, [B, C]


_AUC = "Chance that a true bond of a graph scores above a false one."
_AP = "Precision at the score of a true bond, averaged over the true bonds of a graph."
_KEPT = "Chance that the explained class is still predicted when only the best bonds are left."
_AREA = "Mean of prediction kept over the share of bonds that is left."
#: All metrics by name.
METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric("precision", "Precision", True, "Share of true bonds among the selected ones."),
        Metric("recall", "Recall", True, "Share of the true bonds that are selected."),
        Metric("f1", "F1", True, "Harmonic mean of precision and recall."),
        Metric("roc_auc", "AUC", True, _AUC),
        Metric("average_precision", "AP", True, _AP),
        Metric("kept", "Prediction kept", True, _KEPT),
        Metric("kept_area", "Area of prediction kept", True, _AREA),
    )
}


def own_metrics() -> list[str]:
    """Returns the names of all registered metrics that are not of nicegnn."""
    return [name for name, metric in METRICS.items() if metric.measure is not None]


def get_metric(name: str) -> Metric:
    """Returns a metric by name."""
    if name not in METRICS:
        raise MetricError(f"`metric` must be one of {tuple(METRICS)} (got {name!r}).")
    return METRICS[name]
