"""Metrics of explanations, batched over graphs; undefined values are nan."""

from nicegnn.errors import MetricError
from nicegnn_lab.metrics.agreement import (
    PROTOCOLS,
    TRUTH_METRICS,
    Truth,
    get_protocol,
    selected_graphs,
    truth_metrics,
)
from nicegnn_lab.metrics.fidelity import (
    ALL_REMOVALS,
    RATIOS,
    REMOVALS,
    FidelityCurve,
    fidelity_curve,
)
from nicegnn_lab.metrics.metric import (
    METRICS,
    Measured,
    Metric,
    get_metric,
    own_metrics,
    register_metric,
)
from nicegnn_lab.metrics.ranking import (
    average_precision,
    graph_keys,
    ground_truth_scores,
    random_ties,
    roc_auc,
    select_top,
    spearman,
)
from nicegnn_lab.metrics.statistics import (
    PairedTest,
    bootstrap_mean,
    holm,
    paired_test,
)

__all__ = [
    "ALL_REMOVALS",
    "METRICS",
    "PROTOCOLS",
    "RATIOS",
    "REMOVALS",
    "TRUTH_METRICS",
    "FidelityCurve",
    "Measured",
    "Metric",
    "MetricError",
    "PairedTest",
    "Truth",
    "average_precision",
    "bootstrap_mean",
    "fidelity_curve",
    "get_metric",
    "get_protocol",
    "graph_keys",
    "ground_truth_scores",
    "holm",
    "own_metrics",
    "paired_test",
    "random_ties",
    "register_metric",
    "roc_auc",
    "select_top",
    "selected_graphs",
    "spearman",
    "truth_metrics",
]
