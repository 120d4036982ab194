"""All metrics: name, title, direction and meaning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from nicegnn.errors import MetricError


@dataclass(frozen=True)
class Metric:
    """A measured quantity; tables use its title, direction and description."""

    name: str  # key in `METRICS` and in tables of results
    title: str  # short heading for tables and figures
    higher_is_better: bool | None  # None if neither is better
    description: str  # what it measures, in a sentence
    unit: Literal["share", "probability"] = "share"  # or a difference of probabilities


_ALL = (
    Metric("precision", "Precision", True, "Share of true bonds among the selected ones."),
    Metric("recall", "Recall", True, "Share of the true bonds that are selected."),
    Metric("f1", "F1", True, "Harmonic mean of precision and recall."),
    Metric("roc_auc", "AUC", True, "Chance that a true bond of a graph scores above a false one."),
    Metric(
        "average_precision",
        "AP",
        True,
        "Precision at the score of a true bond, averaged over the true bonds of a graph.",
    ),
    Metric(
        "pooled_roc_auc",
        "Pooled AUC",
        True,
        "Chance that a true bond of any graph scores above a false one of any graph.",
    ),
    Metric(
        "kept",
        "Prediction kept",
        True,
        "Chance that the explained class is still predicted when only the best bonds are left.",
    ),
    Metric(
        "fid_plus",
        "Fid+",
        True,
        "Chance that the explained class is no longer predicted without the best bonds.",
    ),
    Metric(
        "fid_minus",
        "Fid-",
        False,
        "Chance that the explained class is no longer predicted with only the best bonds.",
    ),
    Metric(
        "prob_fid_plus",
        "Fid+ (probability)",
        True,
        "Loss of the explained class's probability without the best bonds.",
        "probability",
    ),
    Metric(
        "prob_fid_minus",
        "Fid- (probability)",
        False,
        "Loss of the explained class's probability with only the best bonds.",
        "probability",
    ),
    Metric(
        "kept_area",
        "Area of prediction kept",
        True,
        "Mean of prediction kept over the share of bonds that is left.",
    ),
)

#: All metrics by name.
METRICS: dict[str, Metric] = {metric.name: metric for metric in _ALL}


def get_metric(name: str) -> Metric:
    """Returns a metric by name."""
    if name not in METRICS:
        raise MetricError(f"`metric` must be one of {tuple(METRICS)} (got {name!r}).")
    return METRICS[name]
