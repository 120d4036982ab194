"""Bases of all explainers: graphs in any form, the model left alone; scores of directed edges."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn
from torch_geometric.data import Batch, Data, HeteroData

from nicegnn.config import Count as Count
from nicegnn.config import ExplainerConfig
from nicegnn.config import NotNegative as NotNegative
from nicegnn.config import Positive as Positive
from nicegnn.errors import ConfigError, GraphError, NotFittedError, StoreError
from nicegnn.explain.call import Asked, FitWork, Work, explain_batches, open_fit
from nicegnn.explain.explanation import Explanation, scores_only
from nicegnn.graph.case import make_case
from nicegnn.intervention.background import Background
from nicegnn.intervention.exchange import Exchange
from nicegnn.intervention.intervene import Mechanism
from nicegnn.intervention.mechanisms import get_mechanism
from nicegnn.intervention.query import Query
from nicegnn.target.frozen_model import Inputs, Target, fingerprint
from nicegnn.target.output import Mode, ReturnType

Index = int | Tensor | list[int] | tuple[str, int | Tensor | list[int]] | None


class Explainer(ABC):
    """Explains predictions of a model, which it never changes.

    Each call works on a private copy of the model's modules, which shares the weights and is in
    evaluation mode (see `PrivateCopy`). Several threads may therefore share a model and an
    explainer, but none may train the model while another explains.

    Subclasses implement `_explain_batch`, which changes nothing on the explainer, and, if they
    learn, `_fit_units`, which sets what was learned at its end. For ``mode``, ``return_type``,
    ``inputs`` and ``batched`` see `Target`.
    """

    name: ClassVar[str]  # short name, also the kind of its files
    learns: ClassVar[bool] = False  # whether `fit` has an effect

    def __init__(
        self,
        model: nn.Module,
        config: ExplainerConfig,
        *,
        mode: Mode = "auto",
        return_type: ReturnType = "auto",
        inputs: Inputs = None,
        batched: bool | None = None,
    ) -> None:
        self.config = config
        self.target = Target(
            model, mode=mode, return_type=return_type, inputs=inputs, batched=batched
        )
        self._fitted_for = ""  # fingerprint of the model at the end of `fit`

    @abstractmethod
    def _explain_batch(self, work: Work) -> Explanation:
        """Explains a checked batch that is on the model's device."""

    def explain(
        self,
        graphs: Data | HeteroData | Batch | str | Sequence[Any],
        *,
        target: int | Tensor | None = None,
        index: Index = None,
        pairs: Tensor | None = None,
        seed: int | None = None,
        progress: bool = False,
    ) -> Explanation:
        """Explains the prediction for each graph, or for each node of `index`.

        Args:
            graphs: graphs; or SMILES, if the model names its featuriser in ``model.featurizer``.
            target: class (or output) to explain, one or one per graph, by default the predicted.
                With ``mode="multilabel"`` it is the label, required unless one was fitted for;
                classes 0 and 1 of the result then mean absent and present.
            index: nodes to explain, numbers or a mask, for models that predict nodes of one graph;
                one explanation each, over the bonds within reach (see `Explanation.to_dense`). For
                `HeteroData` with the kind: ``("paper", [0, 1])``.
            pairs: pairs of nodes, ``[2, K]``, for models that take ``edge_label_index``.
            seed: overrides ``config.seed``; equal seeds give equal results.
            progress: shows a bar, with the time that is left.
        """
        asked = Asked(target, index, pairs, seed, progress)
        return explain_batches(self, graphs, asked, self._explain_batch, self.config.batch_size)

    @property
    def is_fitted(self) -> bool:
        """Whether `fit` or `load` was called, for explainers that learn."""
        return False

    def _learned(self) -> list[Any]:
        """Returns what belongs to the weights of the model, such as networks that `fit` made."""
        return []

    def _follow(self) -> None:
        """Moves what was learned to the device of the model."""
        for net in self._learned():
            net.to(self.target.device)

    def fit(
        self,
        graphs: Iterable[Any],
        *,
        target: int | None = None,
        index: Index = None,
        pairs: Tensor | None = None,
        seed: int | None = None,
        progress: bool = True,
    ) -> Self:
        """Learns from the model's predictions for many graphs; does nothing if it does not learn.

        Args:
            graphs: list of Data, dataset, loader, SMILES, or one Data (node tasks).
            target: label to fit, for ``mode="multilabel"``; `explain` then explains this label.
            index, pairs: nodes, or pairs of nodes, to fit on, see `explain`.
        """
        if self.learns:
            work = open_fit(self, graphs, Asked(target, index, pairs, seed, progress))
            self._fit_units(work)
            self._learned_with(work.target)
        return self

    def _fit_units(self, work: FitWork) -> None:
        """Learns from what `fit` was given."""
        raise NotImplementedError

    def _learned_with(self, work: Target) -> None:
        """Notes the label and the model that something was learned for."""
        self.target.label = work.label
        self._fitted_for = fingerprint(self.target.model)

    def check_model(self) -> None:
        """Raises `NotFittedError` if the model's weights have changed since `fit`."""
        if self._learned() and self._fitted_for not in ("", fingerprint(self.target.model)):
            raise NotFittedError(
                f"The model must have the weights that this {self.name} was fitted for "
                f"(fingerprint {self._fitted_for}, got {fingerprint(self.target.model)}). Put them "
                "back, or call fit() again."
            )

    def save(self, path: str | Path) -> None:
        """Writes the fit, the settings and the model's fingerprint to one file."""
        raise StoreError(f"{self.name} learns nothing, so there is nothing to save.")


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
