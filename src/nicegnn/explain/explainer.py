"""What every explainer does: takes graphs in any form, batches them, keeps the model frozen."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self

from torch import Tensor, nn
from torch_geometric.data import Batch, Data

from nicegnn.errors import GraphError, NotFittedError, StoreError, TargetError
from nicegnn.explain.explanation import Explanation, concatenate
from nicegnn.explain.node_tasks import computation_graphs, spread_over_graph
from nicegnn.graph.batch import graph_list, stackable, to_batch
from nicegnn.graph.computation_graphs import check_index
from nicegnn.progress import progress_bar
from nicegnn.target.frozen_model import Mode, ReturnType, Target, fingerprint

Inputs = Sequence[str] | Callable[[nn.Module, Batch], Tensor] | None


class Settings(Protocol):
    """Settings that every explainer has."""

    @property
    def seed(self) -> int: ...
    @property
    def batch_size(self) -> int: ...
    @property
    def undirected(self) -> bool: ...


class Explainer(ABC):
    """Explains predictions of a model, which it never changes.

    Subclasses say how a batch is explained (`_explain_batch`) and, where they learn, how they are
    fitted (`_fit_units`).

    Args:
        model: any PyG model.
        config: settings.
        mode: ``multiclass``, ``binary`` or ``regression``; ``auto`` reads it off the output.
        return_type: ``raw``, ``probs`` or ``log_probs``; ``auto`` recognises probabilities.
        inputs: graph attributes to call the model with, or a callable ``(model, batch)``; by
            default read off the signature of its ``forward``.
    """

    name: ClassVar[str]  # short name, also the kind of its files
    learns: ClassVar[bool] = False  # whether `fit` has an effect
    explain_settings: ClassVar[frozenset[str]] = frozenset()  # settings that `fit` does not read

    def __init__(
        self,
        model: nn.Module,
        config: Settings,
        *,
        mode: Mode = "auto",
        return_type: ReturnType = "auto",
        inputs: Inputs = None,
    ) -> None:
        self._settings = config
        self.target = Target(model, mode=mode, return_type=return_type, inputs=inputs)

    @property
    def is_fitted(self) -> bool:
        """Whether it has learned something, by `fit` or `load`."""
        return False

    def fit(
        self,
        graphs: Iterable[Any],
        *,
        index: int | Tensor | list[int] | None = None,
        seed: int | None = None,
        progress: bool = True,
        checkpoint: str | Path | None = None,
    ) -> Self:
        """Learns from many graphs, by the model's own predictions only.

        Explainers that do not learn have nothing to do here.

        Args:
            graphs: list of Data, dataset, loader, or one Data (node tasks).
            index: nodes to fit on, for models that predict nodes of one graph.
            seed: overrides ``config.seed``.
            progress: show a progress bar on stderr.
            checkpoint: file to write now and then, and to resume from if it exists.
        """
        if not self.learns:
            return self
        seed = self._settings.seed if seed is None else seed
        self.target.level = "graph" if index is None else "node"
        with self.target.frozen():
            units: Sequence[Data]
            if index is None:
                units = stackable(graphs)
            else:
                graph = self._one_graph(graphs)
                nodes = check_index(index, int(graph.num_nodes))
                units, _ = computation_graphs(self.target, graph, nodes)
            self._check_dtype(units[0])
            self._fit_units(units, seed, progress, checkpoint)
        return self

    def explain(
        self,
        graphs: Data | Batch | Sequence[Data],
        *,
        target: int | Tensor | None = None,
        index: int | Tensor | list[int] | None = None,
        seed: int | None = None,
        slot: Tensor | None = None,
        progress: bool = False,
    ) -> Explanation:
        """Explains the prediction for each graph, or for each node of `index`.

        Args:
            graphs: one graph, a batch, or a list (explained in batches).
            target: class (or output) to explain, one or one per graph; by default the predicted.
            index: nodes to explain, for models that predict nodes of one graph; the result then
                has one explanation per node, each over all edges of the graph.
            seed: overrides ``config.seed``; equal seeds give equal results.
            slot: noise coordinate of each directed edge, by default its position in its graph.
            progress: show a progress bar on stderr while a list is explained.
        """
        seed = self._settings.seed if seed is None else seed
        self.target.level = "graph" if index is None else "node"
        with self.target.frozen():
            if index is not None:
                return self._explain_nodes(graphs, target, index, seed)
            if isinstance(graphs, Data):  # a Batch is a Data too
                batch = self._on_device(to_batch(graphs))
                return self._explain_batch(batch, target, seed, slot)
            return self._explain_list(graph_list(graphs), target, seed, progress)

    def adopt(self, fitted: Self) -> Self:
        """Takes over what another has learned, where both differ in `explain_settings` alone.

        Saves a fit when only the way of explaining is varied. Both must explain the same model.
        """
        if self.target.model is not fitted.target.model:
            raise NotFittedError(f"This {self.name} explains another model: call fit() instead.")
        learned = fitted.__dict__.items()
        self.__dict__ |= {k: v for k, v in learned if k not in ("config", "_settings")}
        return self

    def save(self, path: str | Path) -> None:
        """Writes what was learned, settings and the model's fingerprint to one file."""
        raise StoreError(f"{self.name} learns nothing, so there is nothing to save.")

    @abstractmethod
    def _explain_batch(
        self, batch: Batch, target: int | Tensor | None, seed: int, slot: Tensor | None
    ) -> Explanation:
        """Explains a checked batch that is on the model's device."""

    def _fit_units(
        self, units: Sequence[Data], seed: int, progress: bool, checkpoint: str | Path | None
    ) -> None:
        """Learns from graphs, or from the computation graphs of nodes."""
        raise NotImplementedError

    def _explain_list(
        self, graphs: list[Data], target: int | Tensor | None, seed: int, progress: bool
    ) -> Explanation:
        size, parts = self._settings.batch_size, []
        with progress_bar("Explaining", len(graphs), shown=progress) as advance:
            for first in range(0, len(graphs), size):
                chosen = target
                if isinstance(target, Tensor) and target.numel() > 1:
                    chosen = target.view(-1)[first : first + size]
                batch = self._on_device(to_batch(graphs[first : first + size]))
                parts.append(self._explain_batch(batch, chosen, seed, None))
                advance(min(first + size, len(graphs)), "")
        return concatenate(parts)

    def _explain_nodes(
        self,
        graphs: Any,
        target: int | Tensor | None,
        index: int | Tensor | list[int],
        seed: int,
    ) -> Explanation:
        graph = self._one_graph(graphs)
        nodes = check_index(index, int(graph.num_nodes)).to(self.target.device)
        units, is_local = computation_graphs(self.target, graph, nodes)
        compact = self._explain_batch(self._on_device(to_batch(units)), target, seed, None)
        if not is_local:
            note = "The model reads the whole graph, so whole graphs were corrupted."
            compact = replace(
                compact, status=replace(compact.status, notes=(*compact.status.notes, note))
            )
        return spread_over_graph(compact, units, graph, nodes, self._settings.undirected)

    def _one_graph(self, graphs: Any) -> Batch:
        if not isinstance(graphs, Data):
            raise TargetError(
                f"`index` explains nodes of one graph; pass one Data (got {type(graphs).__name__})."
            )
        return to_batch(graphs).to(self.target.device)

    def _on_device(self, batch: Batch) -> Batch:
        self._check_dtype(batch)
        return batch.to(self.target.device)

    def _check_dtype(self, graph: Data) -> None:
        x = graph.get("x")
        parameter = next(self.target.model.parameters(), None)
        if (
            isinstance(x, Tensor)
            and parameter is not None
            and x.is_floating_point()
            and parameter.is_floating_point()
            and x.dtype != parameter.dtype
        ):
            raise GraphError(
                f"`x` has dtype {x.dtype} but the model computes in {parameter.dtype}; convert one "
                "of them."
            )


def check_fingerprint(path: str | Path, model: nn.Module, expected: str) -> None:
    """Raises `StoreError` unless a file was written for exactly this model."""
    found = fingerprint(model)
    if found != expected:
        raise StoreError(
            f"{path} was fitted for a model with fingerprint {expected}, but this model has "
            f"{found}: load the weights it was fitted for, or fit() anew."
        )
