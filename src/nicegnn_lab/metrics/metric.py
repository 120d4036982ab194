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


_CHANCE = "Chance that the explained class is"
_LOSS = "Loss of the explained class's probability"
_LEFT, _GONE = "with only the best bonds.", "without the best bonds."
_ALL = (
    ("precision", "Precision", True, "Share of true bonds among the selected ones."),
    ("recall", "Recall", True, "Share of the true bonds that are selected."),
    ("f1", "F1", True, "Harmonic mean of precision and recall."),
    ("roc_auc", "AUC", True, "Chance that a true bond of a graph scores above a false one."),
    (
        *("average_precision", "AP", True),
        "Precision at the score of a true bond, averaged over the true bonds of a graph.",
    ),
    (
        *("kept", "Prediction kept", True),
        f"{_CHANCE} still predicted when only the best bonds are left.",
    ),
    ("fid_plus", "Fid+", True, f"{_CHANCE} no longer predicted {_GONE}"),
    ("fid_minus", "Fid-", False, f"{_CHANCE} no longer predicted {_LEFT}"),
    ("prob_fid_plus", "Fid+ (probability)", True, f"{_LOSS} {_GONE}"),
    ("prob_fid_minus", "Fid- (probability)", False, f"{_LOSS} {_LEFT}"),
    (
        *("kept_area", "Area of prediction kept", True),
        "Mean of prediction kept over the share of bonds that is left.",
    ),
)
#: All metrics by name.
METRICS: dict[str, Metric] = {about[0]: Metric(*about) for about in _ALL}


def own_metrics() -> list[str]:
    """Returns the names of all registered metrics that are not of nicegnn."""
    return [name for name, metric in METRICS.items() if metric.measure is not None]


def get_metric(name: str) -> Metric:
    """Returns a metric by name."""
    if name not in METRICS:
        raise MetricError(f"`metric` must be one of {tuple(METRICS)} (got {name!r}).")
    return METRICS[name]
