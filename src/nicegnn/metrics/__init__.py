"""Metrics of explanations; each is batched over graphs and undefined values are nan."""

from nicegnn.metrics.ground_truth import GroundTruthScores, ground_truth_scores, roc_auc

__all__ = ["GroundTruthScores", "ground_truth_scores", "roc_auc"]
