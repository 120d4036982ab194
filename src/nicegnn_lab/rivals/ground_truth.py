"""The truth as a score, which no method can beat."""

from __future__ import annotations

from torch import Tensor

from nicegnn.errors import GraphError
from nicegnn.explain.score_explainer import ScoreExplainer
from nicegnn.intervention.query import Query


class GroundTruth(ScoreExplainer):
    r"""Scores true edges 1 and all others 0.

    .. math:: s_e = [e \in S^*]

    Symbols: :math:`S^*` -> ``batch.edge_truth``, bool ``[E]``, the union of all alternatives where
    a graph has several; :math:`s_e` -> the returned score, ``[E]``.

    Its precision is below 1 where more bonds are selected than are true. Its fidelity shows whether
    the model uses the motif.
    """

    name = "ground-truth"
    mechanisms = ()  # damages nothing

    def _edge_score(self, query: Query, seed: int) -> Tensor:
        truth = query.case.batch.get("edge_truth")
        if not isinstance(truth, Tensor) or truth.numel() != query.case.num_edges:
            got = f"shape {tuple(truth.shape)}" if isinstance(truth, Tensor) else "none"
            raise GraphError(
                f"All graphs must have `edge_truth`, one value for each of the "
                f"{query.case.num_edges} directed edges (got {got}). Set it on each Data, or use "
                "graphs of nicegnn_lab.datasets, which have it."
            )
        return truth.view(-1).to(query.clean.dtype)
