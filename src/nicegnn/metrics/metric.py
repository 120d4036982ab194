"""What is measured: the name, the direction and the meaning of each metric."""

from __future__ import annotations

from dataclasses import dataclass

from nicegnn.metrics.errors import MetricError


@dataclass(frozen=True)
class Metric:
    """A measured quantity, so that tables know how to title, sort and explain it.

    Attributes:
        name: key in `METRICS` and in tables of results.
        title: short heading for tables and figures.
        higher_is_better: direction, or none where neither end is better.
        unit: what the number is: a share, a difference of probabilities, a correlation.
        description: what it measures, in a sentence.
    """

    name: str
    title: str
    higher_is_better: bool | None
    unit: str
    description: str


_ALL = (
    Metric(
        "precision",
        "Precision",
        True,
        "share",
        "Share of true bonds among the selected ones.",
    ),
    Metric("recall", "Recall", True, "share", "Share of the true bonds that are selected."),
    Metric("f1", "F1", True, "share", "Harmonic mean of precision and recall."),
    Metric(
        "roc_auc",
        "AUC",
        True,
        "share",
        "Chance that a true bond of a graph scores above a false one.",
    ),
    Metric(
        "average_precision",
        "AP",
        True,
        "share",
        "Precision at the score of a true bond, averaged over the true bonds of a graph.",
    ),
    Metric(
        "pooled_roc_auc",
        "Pooled AUC",
        True,
        "share",
        "Chance that a true bond of any graph scores above a false one of any graph.",
    ),
    Metric(
        "kept",
        "Prediction kept",
        True,
        "share",
        "Chance that the explained class is still predicted when only the best bonds are left.",
    ),
    Metric(
        "fid_plus",
        "Fid+",
        True,
        "share",
        "Chance that the explained class is no longer predicted without the best bonds.",
    ),
    Metric(
        "fid_minus",
        "Fid-",
        False,
        "share",
        "Chance that the explained class is no longer predicted with only the best bonds.",
    ),
    Metric(
        "prob_fid_plus",
        "Fid+ (probability)",
        True,
        "probability",
        "Loss of the explained class's probability without the best bonds.",
    ),
    Metric(
        "prob_fid_minus",
        "Fid- (probability)",
        False,
        "probability",
        "Loss of the explained class's probability with only the best bonds.",
    ),
    Metric(
        "kept_area",
        "Area of prediction kept",
        True,
        "share",
        "Mean of prediction kept over the share of bonds that is left.",
    ),
    Metric(
        "seed_spearman",
        "Rank agreement over seeds",
        True,
        "correlation",
        "Spearman correlation of a graph's scores between two seeds, averaged over pairs.",
    ),
    Metric(
        "seed_jaccard",
        "Overlap over seeds",
        True,
        "share",
        "Selected bonds common to two seeds over those of either, averaged over pairs.",
    ),
    Metric(
        "permutation_spearman",
        "Rank agreement over orders",
        True,
        "correlation",
        "Spearman correlation of scores between copies of a graph with atoms in other orders.",
    ),
    Metric(
        "permutation_jaccard",
        "Overlap over orders",
        True,
        "share",
        "Selected bonds common to two copies with atoms in other orders over those of either.",
    ),
)

#: All metrics by name.
METRICS: dict[str, Metric] = {metric.name: metric for metric in _ALL}


def get_metric(name: str) -> Metric:
    """Returns a metric by name, or says which there are."""
    if name not in METRICS:
        raise MetricError(f"`metric` must be one of {', '.join(METRICS)} (got {name!r}).")
    return METRICS[name]
