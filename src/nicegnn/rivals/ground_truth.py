"""The true explanation as scores: what no explainer can beat against the truth."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from nicegnn.errors import GraphError
from nicegnn.intervention.query import Query
from nicegnn.rivals.base import Baseline, BaselineConfig


@dataclass(frozen=True)
class GroundTruthConfig(BaselineConfig):
    """Settings of the truth: none of its own."""


class GroundTruth(Baseline):
    r"""Scores true edges 1 and all others 0.

    .. math:: s_e = [e \in S^*]

    Symbols: :math:`S^*` -> ``batch.edge_truth``, bool ``[E]``, the union of all alternatives where
    a graph has several; :math:`s_e` -> the returned score, ``[E]``.

    Precision against the truth is below 1 where more bonds are asked for than are true. Its
    faithfulness tells whether the model uses the motif at all.

    =====  =====  =============  =================
    ..     paper  released code  here
    =====  =====  =============  =================
    score  \-     \-             the mask itself
    =====  =====  =============  =================
    """

    name = "ground-truth"
    config_type = GroundTruthConfig
    mechanisms: ClassVar[tuple[str, ...]] = ()  # perturbs nothing

    def _edge_score(self, query: Query, seed: int) -> Tensor:
        truth = query.case.batch.get("edge_truth")
        if not isinstance(truth, Tensor) or truth.numel() != query.case.num_edges:
            got = f"shape {tuple(truth.shape)}" if isinstance(truth, Tensor) else "none"
            raise GraphError(
                f"{self.name} needs graphs that all carry `edge_truth`, one value for each of the "
                f"{query.case.num_edges} directed edges (got {got}). Set it on each Data, or use "
                "graphs of nicegnn.datasets, which have it."
            )
        return truth.view(-1).to(query.clean.dtype)
