"""Base of all explainers: takes graphs in any form, and leaves the model alone."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

from torch import Tensor, nn
from torch_geometric.data import Batch, Data, HeteroData

from nicegnn.config import ExplainerConfig
from nicegnn.errors import NotFittedError, StoreError
from nicegnn.explain.call import Asked, FitWork, Work, explain_batches, open_fit
from nicegnn.explain.explanation import Explanation
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
