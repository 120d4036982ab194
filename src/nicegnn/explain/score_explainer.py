"""The base class of explainers that score directed edges, such as one of your own."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch_geometric.data import Batch

from nicegnn.config import Count as Count
from nicegnn.config import ExplainerConfig
from nicegnn.config import NotNegative as NotNegative
from nicegnn.config import Positive as Positive
from nicegnn.errors import ConfigError, GraphError
from nicegnn.explain.call import Work
from nicegnn.explain.explainer import Explainer
from nicegnn.explain.explanation import Explanation, scores_only
from nicegnn.graph.case import make_case
from nicegnn.intervention.background import Background
from nicegnn.intervention.exchange import Exchange
from nicegnn.intervention.intervene import Mechanism
from nicegnn.intervention.mechanisms import get_mechanism
from nicegnn.intervention.query import Query
from nicegnn.target.frozen_model import Target


@dataclass(frozen=True)
class ScoreConfig(ExplainerConfig):
    """Settings of every such explainer."""

    num_draws: Count = 4  # noise draws to average over, for random mechanisms


class ScoreExplainer(Explainer):
    """An explainer that scores directed edges, and a bond by the mean over its directions.

    Subclasses define `_edge_score`. A mechanism (a name or an object) damages messages; for
    ``"exchange"`` each edge and draw has a prototype of ``background``, or of its own graph. How
    the model is read (``mode`` and so on) is passed on to `Explainer`.
    """

    config_type: ClassVar[type[ScoreConfig]] = ScoreConfig
    mechanisms: ClassVar[tuple[str, ...]] = ("em",)  # default first; empty: damages nothing
    config: ScoreConfig

    def __init__(
        self,
        model: nn.Module,
        config: ScoreConfig | None = None,
        *,
        mechanism: str | Mechanism | None = None,
        background: Background | None = None,
        **reading: Any,
    ) -> None:
        config = self.config_type() if config is None else config
        if not isinstance(config, self.config_type):
            wanted, got = self.config_type.__name__, type(config).__name__
            raise ConfigError(f"`config` of {self.name} must be a {wanted} (got a {got}).")
        super().__init__(model, config, **reading)
        names = self.mechanisms or ("em",)  # a query always needs one
        chosen = names[0] if mechanism is None else mechanism
        if isinstance(chosen, str) and chosen not in names:
            raise ConfigError(
                f"`mechanism` of {self.name} must be one of {names} (got {chosen!r})."
            )
        if chosen == "exchange":
            prototypes = None if background is None else background.sample
            chosen = Exchange(prototypes, each="edge")
        self.mechanism = get_mechanism(chosen) if isinstance(chosen, str) else chosen

    @property
    def num_draws(self) -> int:
        """Draws to average over: one if the mechanism is not random."""
        if getattr(self.mechanism, "is_random", True):
            return self.config.num_draws
        return getattr(self.mechanism, "num_draws", None) or 1

    def _explain_batch(self, work: Work) -> Explanation:
        query = self._query(work.target, work.batch, work.explained)
        query.shared.watch = work.watch
        score = query.clean.new_zeros(0)
        if query.case.num_edges:
            score = query.case.bonds.mean(self._edge_score(query, work.seed).to(query.clean.dtype))
        if not bool(torch.isfinite(score).all()):
            raise GraphError(
                f"{self.name} gave NaN or infinite scores. Check the model's outputs on these "
                "graphs, or choose other settings."
            )
        notes = [*query.notes, *self._notes(query)]
        return scores_only(query.case, score, query.explained, query.clean, notes=notes)

    @abstractmethod
    def _edge_score(self, query: Query, seed: int) -> Tensor:
        """Returns the raw score of each directed edge, ``[E]``; higher is more important."""

    def _notes(self, query: Query) -> Sequence[str]:
        """Returns warnings about the scores of a batch."""
        return ()

    def _query(self, target: Target, batch: Batch, explained: int | Tensor | None = None) -> Query:
        case, limit = make_case(batch, undirected=self.config.undirected), self.config.chunk_edges
        return Query(target, case, self.mechanism, explained=explained, chunk_edges=limit)
