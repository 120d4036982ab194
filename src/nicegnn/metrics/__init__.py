"""Metrics of explanations; each is batched over graphs and undefined values are nan."""

from nicegnn.metrics.errors import MetricError
from nicegnn.metrics.fidelity import RATIOS, REMOVALS, FidelityCurve, fidelity_curve
from nicegnn.metrics.ground_truth import (
    GroundTruthScores,
    average_precision,
    ground_truth_scores,
    roc_auc,
)
from nicegnn.metrics.metric import METRICS, Metric, get_metric
from nicegnn.metrics.protocols import (
    PROTOCOLS,
    TRUTH_METRICS,
    Protocol,
    count_undefined,
    get_protocol,
    pooled_roc_auc,
    selected_graphs,
    truth_metrics,
)
from nicegnn.metrics.random_row import PAPER_RANDOM, RandomRow, random_row
from nicegnn.metrics.ranking import graph_keys, random_rank, random_ties, select_top
from nicegnn.metrics.removal import without_edges
from nicegnn.metrics.stability import (
    Agreement,
    PermutedBatch,
    agreement,
    permutation_agreement,
    permute_batch,
    spearman,
)
from nicegnn.metrics.statistics import (
    Interval,
    PairedTest,
    average_ranks,
    bootstrap_mean,
    holm,
    paired_test,
)
from nicegnn.metrics.truth import Truth

__all__ = [
    "METRICS",
    "PAPER_RANDOM",
    "PROTOCOLS",
    "RATIOS",
    "REMOVALS",
    "TRUTH_METRICS",
    "Agreement",
    "FidelityCurve",
    "GroundTruthScores",
    "Interval",
    "Metric",
    "MetricError",
    "PairedTest",
    "PermutedBatch",
    "Protocol",
    "RandomRow",
    "Truth",
    "agreement",
    "average_precision",
    "average_ranks",
    "bootstrap_mean",
    "count_undefined",
    "fidelity_curve",
    "get_metric",
    "get_protocol",
    "graph_keys",
    "ground_truth_scores",
    "holm",
    "paired_test",
    "permutation_agreement",
    "permute_batch",
    "pooled_roc_auc",
    "random_rank",
    "random_row",
    "random_ties",
    "roc_auc",
    "select_top",
    "selected_graphs",
    "spearman",
    "truth_metrics",
    "without_edges",
]
