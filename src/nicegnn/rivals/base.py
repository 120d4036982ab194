"""What the rival explainers share: settings, mechanism, scores per directed edge."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn
from torch_geometric.data import Batch

from nicegnn.errors import ConfigError, GraphError
from nicegnn.explain.explainer import Explainer, Inputs
from nicegnn.explain.explanation import Explanation, scores_only
from nicegnn.graph.case import make_case
from nicegnn.intervention.intervene import Mechanism
from nicegnn.intervention.mechanisms import get_mechanism
from nicegnn.intervention.query import Query
from nicegnn.target.frozen_model import Mode, ReturnType


@dataclass(frozen=True)
class BaselineConfig:
    """Settings that every rival has."""

    seed: int = 0  # seed of everything random
    batch_size: int = 256  # graphs per batch when explain() is given a list
    chunk_edges: int = 400_000  # directed edges times copies in one call of the model
    undirected: bool = True  # one score per bond; else one per directed edge
    num_draws: int = 4  # noise draws averaged wherever the mechanism is random

    def __post_init__(self) -> None:
        for name in ("batch_size", "chunk_edges", "num_draws"):
            value = getattr(self, name)
            if type(value) is not int or value < 1:
                raise ConfigError(f"`{name}` must be a whole number of at least 1 (got {value!r}).")

    def with_(self, **changes: Any) -> Self:
        """Returns a copy with settings changed; unknown names are errors."""
        known = [field.name for field in fields(self)]
        unknown = sorted(set(changes) - set(known))
        if unknown:
            raise ConfigError(
                f"Unknown setting(s) {unknown} of {type(self).__name__}; known are {known}."
            )
        return replace(self, **changes)


class Baseline(Explainer):
    """A rival explainer: scores directed edges; a bond's score is the mean over its directions.

    Subclasses give `_edge_score`. Scores of the two directions differ in nearly all methods; they
    are averaged before any squashing, the same way for all.

    Args:
        model: any PyG model; it is never changed.
        config: settings, by default those of the method.
        mechanism: what happens to messages of damaged edges, ``em`` or ``nc``, or an object.
        mode, return_type, inputs: see `Explainer`.
    """

    config_type: ClassVar[type[BaselineConfig]] = BaselineConfig
    mechanisms: ClassVar[tuple[str, ...]] = (
        "em",
    )  # those it can work with, its own first; or none
    config: BaselineConfig

    def __init__(
        self,
        model: nn.Module,
        config: BaselineConfig | None = None,
        *,
        mechanism: str | Mechanism | None = None,
        mode: Mode = "auto",
        return_type: ReturnType = "auto",
        inputs: Inputs = None,
    ) -> None:
        if config is not None and not isinstance(config, self.config_type):
            raise ConfigError(
                f"{self.name} needs a {self.config_type.__name__} (got {type(config).__name__})."
            )
        self.config = self.config_type() if config is None else config
        super().__init__(model, self.config, mode=mode, return_type=return_type, inputs=inputs)
        known = self.mechanisms or ("em",)  # one is needed, also where it is never used
        chosen = known[0] if mechanism is None else mechanism
        if isinstance(chosen, str) and chosen not in known:
            raise ConfigError(
                f"{self.name} works with mechanism {' or '.join(map(repr, known))} "
                f"(got {chosen!r})."
            )
        self.mechanism = get_mechanism(chosen) if isinstance(chosen, str) else chosen

    @property
    def num_draws(self) -> int:
        """Draws to average over: one for a mechanism without randomness."""
        return self.config.num_draws if getattr(self.mechanism, "is_random", True) else 1

    def _explain_batch(
        self, batch: Batch, target: int | Tensor | None, seed: int, slot: Tensor | None
    ) -> Explanation:
        query = self._query(batch, target, slot)
        if query.case.num_edges == 0:
            score = query.clean.new_zeros(0)
        else:
            score = query.case.bonds.mean(self._edge_score(query, seed).to(query.clean.dtype))
        if not bool(torch.isfinite(score).all()):
            raise GraphError(
                f"{self.name} gave NaN or infinite scores; check the model's outputs on these "
                "graphs, or choose other settings."
            )
        return scores_only(query.case, score, query.explained, query.clean, self._notes(query))

    @abstractmethod
    def _edge_score(self, query: Query, seed: int) -> Tensor:
        """Returns the raw score of each directed edge, ``[E]``; higher is more important."""

    def _notes(self, query: Query) -> Sequence[str]:
        """Returns facts about a run that a reader of its scores should know."""
        return ()

    def _query(self, batch: Batch, target: int | Tensor | None, slot: Tensor | None) -> Query:
        case = make_case(
            batch,
            rows=batch.get("root_index"),
            reached_edge=batch.get("edge_reached"),
            slot=slot,
            undirected=self.config.undirected,
        )
        return Query(
            self.target,
            case,
            self.mechanism,
            explained=target,
            chunk_edges=self.config.chunk_edges,
        )

    def _log_prob(self, query: Query, edge_gate: Tensor, stream: int) -> Tensor:
        """Returns the mean log-probability of the explained class over draws, ``[B]``.

        Args:
            edge_gate: gate of each directed edge, ``[E]``.
        """
        gate = edge_gate.expand(self.num_draws, -1)  # [N, E]
        out = query.answers(gate, stream)  # [N, B, C]
        if self.target.mode == "regression":  # no classes: minus the squared change
            return -self.target.degradation(query.clean, out, query.explained).mean(0)
        index = query.explained.view(1, -1, 1).expand(out.size(0), -1, 1)
        odds = out.gather(2, index).squeeze(2) - out.scatter(2, index, -torch.inf).logsumexp(2)
        return nn.functional.logsigmoid(odds).mean(0)  # slopes stay exact on confident graphs
