"""Base of all explainers: takes graphs in any form, batches them, leaves the model alone."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import torch
from torch import Tensor, nn
from torch_geometric.data import Batch, Data

from nicegnn.config import ExplainerConfig, differences
from nicegnn.errors import GraphError, NotFittedError, StoreError, TargetError
from nicegnn.explain.checks import explained_class, noise_slot, switch, whole_number, whole_numbers
from nicegnn.explain.explanation import Explanation, concatenate
from nicegnn.explain.node_tasks import (
    SurveyOfLast,
    check_index,
    computation_graphs,
    on_whole_graph,
)
from nicegnn.graph.batch import graph_list, stackable, to_batch
from nicegnn.intervention.intervene import Mechanism
from nicegnn.progress import Advance, progress_bar
from nicegnn.target.frozen_model import Inputs, Level, Mode, ReturnType, Target, fingerprint

if TYPE_CHECKING:
    from nicegnn.explain.estimate import Estimate

_MANY_EDGES, _LONG = 20_000, 60.0  # edges from which cost is estimated; seconds worth a word


def _not_shown(done: float, note: str) -> None:
    """Moves no bar."""


@dataclass(frozen=True)
class Call:
    """What one call of `explain` asks for, and the private copy of the model that it works on."""

    target: Target
    seed: int
    explained: Tensor | None = None  # class or output, one or one per graph, [1] or [B]
    slot: Tensor | None = None  # noise coordinate of each directed edge, [E]
    advance: Advance = _not_shown  # told of the share of the batch that is done
    wanted: Any = None  # further wishes of a kind of explainer


class Explainer(ABC):
    """Explains predictions of a model, which it never changes.

    Each call of `fit` and `explain` works on a private copy of the model's modules, which shares
    the weights and is in evaluation mode (see `PrivateCopy`). Several threads may therefore share a
    model and an explainer, and may predict with the model meanwhile. What is not safe: changing
    weights (training) while another thread explains.

    Subclasses implement `_explain_batch`, which changes nothing on the explainer, and, if they
    learn, `_fit_units`, which sets what was learned at its end. Both work on the model of the
    `Target` that they are given. `explain_settings` names the settings that only `explain` reads,
    parts with a dot (``boundary.risk_target``); names of base classes count too. For ``mode``,
    ``return_type``, ``inputs`` and ``batched`` see `Target`. Explainers can be pickled if their
    model can.
    """

    name: ClassVar[str]  # short name, also the kind of its files
    learns: ClassVar[bool] = False  # whether `fit` has an effect
    defaults_version: ClassVar[int] = 1  # raise it when a default setting changes its value
    explain_settings: ClassVar[frozenset[str]] = frozenset({"seed", "batch_size", "chunk_edges"})

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
        reading: dict[str, Any] = {"mode": mode, "return_type": return_type, "inputs": inputs}
        self.target = Target(model, **reading, batched=batched)
        self._fitted_for = ""  # fingerprint of the model at the end of `fit`
        self._last_survey = SurveyOfLast()

    @property
    def is_fitted(self) -> bool:
        """Whether `fit` or `load` was called, for explainers that learn."""
        return False

    def to(self, device: torch.device | str) -> Self:
        """Moves what was learned to a device, and returns the explainer.

        The model is yours: move it with ``model.to(device)``. Graphs, and what was learned, follow
        the model whenever they are used.
        """
        for net in self._learned():
            net.to(device)
        return self

    def _learned(self) -> list[nn.Module]:
        """Returns the networks that `fit` has made."""
        return []

    def _has_learned(self) -> bool:
        """Whether there is anything that belongs to the weights of the model."""
        return bool(self._learned())

    def fit(
        self,
        graphs: Iterable[Any],
        *,
        target: int | None = None,
        index: int | Tensor | list[int] | None = None,
        seed: int | None = None,
        progress: bool = True,
        checkpoint: str | Path | None = None,
    ) -> Self:
        """Learns from the model's predictions for many graphs; does nothing if it does not learn.

        Args:
            graphs: list of Data, dataset, loader, SMILES, or one Data (node tasks).
            target: label to fit, for ``mode="multilabel"``; `explain` then explains this label.
            index: nodes to fit on, for models that predict nodes of one graph.
            checkpoint: file to write regularly, and to resume from if it exists.
        """
        if not self.learns:
            return self
        seed = self._seed(seed)
        work, units = self._ready(graphs, target, index)
        self._fit_units(work, units, seed, progress, checkpoint)
        self._learned_with(work)
        return self

    def _ready(
        self, graphs: Any, target: int | None, index: int | Tensor | list[int] | None
    ) -> tuple[Target, Sequence[Data]]:
        """Returns a private copy of the target to learn from, and the graphs to learn from."""
        if target is not None:
            target = whole_number("target", target, TargetError)
        if target is not None and self.target.mode != "multilabel":
            raise TargetError(
                f"`target` names the label to learn, for mode='multilabel' (got {target!r} with "
                f"mode={self.target.mode!r}). Leave it out: predicted classes are learned."
            )
        graphs = self._read(graphs)
        work = self._at_work("graph" if index is None else "node", target)
        if index is None:
            units = stackable(graphs, finite=False)
        else:
            known = self._last_survey(work, _one_graph(graphs), self._whole)
            nodes = check_index(index, int(known.graph.num_nodes))
            units, _ = computation_graphs(work, known, nodes)
        self._check_dtype(units[0])
        return work, units

    def _learned_with(self, work: Target) -> None:
        """Notes the label and the model that something was learned for."""
        self.target.label = work.label
        self._fitted_for = fingerprint(self.target.model)

    def explain(
        self,
        graphs: Data | Batch | str | Sequence[Data] | Sequence[str],
        *,
        target: int | Tensor | None = None,
        index: int | Tensor | list[int] | None = None,
        seed: int | None = None,
        slot: Tensor | None = None,
        progress: bool = False,
    ) -> Explanation:
        """Explains the prediction for each graph, or for each node of `index`.

        Args:
            graphs: graphs; or SMILES, if the model names its featuriser in ``model.featurizer``.
            target: class (or output) to explain, one or one per graph, by default the predicted.
                With ``mode="multilabel"`` it is the label to explain, and required unless the
                explainer was fitted for one; classes 0 and 1 of the result then mean absent and
                present, and the predicted one is explained.
            index: nodes to explain, for models that predict nodes of one graph; the result then
                has one explanation per node, each over the bonds within its reach (see
                `Explanation.to_dense`).
            seed: overrides ``config.seed``; equal seeds give equal results.
            progress: shows a bar, with the time that is left; for much work it also says what
                `estimate` expects.
            slot: noise coordinate of each directed edge, by default its position in its graph.
        """
        return self._answer(graphs, target, index, seed, slot, progress)

    def _answer(
        self,
        graphs: Any,
        target: int | Tensor | None,
        index: int | Tensor | list[int] | None,
        seed: int | None,
        slot: Tensor | None,
        progress: bool,
        wanted: Any = None,
    ) -> Explanation:
        """Explains as `explain` says, with further wishes for `_explain_batch`."""
        seed, slot = self._seed(seed), noise_slot(slot)
        explained, progress = explained_class(target), switch("progress", progress)
        if index is not None:
            index = whole_numbers("index", index, "the nodes to explain, or a mask over all nodes")
        self._check_model()
        graphs = self._read(graphs)
        level: Level = "graph" if index is None else "node"
        label = None
        if self.target.mode == "multilabel":
            label, explained = self._label(explained), None
        shown = self._title(graphs, index) if progress else None
        work = self._at_work(level, label)
        call = Call(work, seed, explained, slot, wanted=wanted)
        if index is not None:
            found = self._explain_nodes(graphs, index, call, shown)
        elif isinstance(graphs, Data):  # a Batch is a Data too
            batch = self._on_device(to_batch(graphs, finite=False))
            found = self._explain_shown([batch], [call], batch.num_graphs, shown)
        else:
            found = self._explain_list(graph_list(graphs, finite=False), call, shown)
        return _with_notes(found, work)

    def _read(self, graphs: Any) -> Any:
        """Returns the graphs of SMILES by the model's featuriser, or what was given."""
        is_one = isinstance(graphs, str)
        if is_one or (isinstance(graphs, list | tuple) and graphs and isinstance(graphs[0], str)):
            from nicegnn.molecule.featurizers import graphs_from_smiles, model_featurizer

            found = graphs_from_smiles(graphs, model_featurizer(self.target.model))
            return found[0] if is_one else found
        return graphs

    def _at_work(self, level: Level, label: int | None) -> Target:
        """Returns a target for one call, with a private copy of the model."""
        self.to(self.target.device)
        work = self.target.private(level)
        work.label = self.target.label if label is None else label
        return work

    def _seed(self, seed: int | None) -> int:
        """Returns the seed of a call."""
        return self.config.seed if seed is None else whole_number("seed", seed)

    def _label(self, target: Tensor | None) -> int | None:
        """Returns the label that is explained with ``mode="multilabel"``, if one is known."""
        known = self.target.label
        if target is None:
            return known
        if bool((target != target[0]).any()):
            raise TargetError(
                "`target` must be one label for all graphs with mode='multilabel' (got "
                f"{target.unique().tolist()}). Explain other labels in another call."
            )
        label = int(target[0])
        if self.is_fitted and known is not None and label != known:
            raise NotFittedError(
                f"`target` must be the label that this {self.name} was fitted for, {known} (got "
                f"{label}). Fit another one: fit(graphs, target={label})."
            )
        return label

    def _check_model(self) -> None:
        """Raises `NotFittedError` if the model's weights have changed since `fit`."""
        if self._has_learned() and self._fitted_for not in ("", fingerprint(self.target.model)):
            raise NotFittedError(
                f"The model must have the weights that this {self.name} was fitted for "
                f"(fingerprint {self._fitted_for}, got {fingerprint(self.target.model)}). Put them "
                "back, or call fit() again."
            )

    def fit_settings(self) -> dict[str, Any]:
        """Returns the settings that `fit` reads, as plain nested values.

        With equal `fit_settings`, model, graphs and seed, explainers learn the same.
        """
        if not self.learns:
            return {}
        left_out = frozenset().union(
            *(vars(kind).get("explain_settings", ()) for kind in type(self).__mro__)
        )
        return _without(self.config.to_dict(), left_out)

    def adopt(self, fitted: Self) -> Self:
        """Takes over the fit of another explainer with the same model object and `fit_settings`."""
        if self.target.model is not fitted.target.model:
            raise NotFittedError(
                f"The fitted {self.name} explains another model: call fit() instead."
            )
        if fitted.learns and not fitted.is_fitted:
            raise NotFittedError(f"The other {fitted.name} was not fitted: call fit() first.")
        changed = differences(self.fit_settings(), fitted.fit_settings())
        if changed:
            raise NotFittedError(
                f"This {self.name} and the fitted one must have the same fit settings (these "
                f"differ: {', '.join(changed)}). Call fit() instead."
            )
        self.__dict__ |= {k: v for k, v in vars(fitted).items() if k not in ("config", "target")}
        self.target.label = fitted.target.label
        return self

    def save(self, path: str | Path) -> None:
        """Writes the fit, the settings and the model's fingerprint to one file."""
        raise StoreError(f"{self.name} learns nothing, so there is nothing to save.")

    @abstractmethod
    def _explain_batch(self, batch: Batch, call: Call) -> Explanation:
        """Explains a checked batch that is on the model's device."""

    def _fit_units(
        self,
        target: Target,
        units: Sequence[Data],
        seed: int,
        progress: bool,
        checkpoint: str | Path | None,
    ) -> None:
        """Learns from graphs, or from the computation graphs of nodes."""
        raise NotImplementedError

    def _explain_list(self, graphs: list[Data], call: Call, shown: str | None) -> Explanation:
        size = self._list_size(call)
        starts = range(0, len(graphs), size)
        target, calls = call.explained, [call] * len(starts)
        if isinstance(target, Tensor) and target.numel() > 1:
            calls = [
                replace(call, explained=target.view(-1)[first : first + size]) for first in starts
            ]
        batches = (
            self._on_device(to_batch(graphs[first : first + size], finite=False))
            for first in starts
        )
        return self._explain_shown(batches, calls, len(graphs), shown)

    def _list_size(self, call: Call) -> int:
        """Returns how many graphs of a list are explained together."""
        return self.config.batch_size

    def _explain_shown(
        self, batches: Iterable[Batch], calls: Sequence[Call], total: int, shown: str | None
    ) -> Explanation:
        """Explains batches of `total` graphs, and shows a bar of that title; None shows nothing."""
        parts: list[Explanation] = []
        done = 0
        with progress_bar(shown or "", total, shown=shown is not None) as advance:
            for batch, call in zip(batches, calls, strict=True):
                inside = partial(_inside, advance, done, batch.num_graphs)
                parts.append(self._explain_batch(batch, replace(call, advance=inside)))
                done += batch.num_graphs
                advance(done, "")
        return concatenate(parts)

    def _title(self, graphs: Any, index: object) -> str:
        """Returns the title of a bar, which says what is ahead if it is much."""
        if index is None:
            listed = [graphs] if isinstance(graphs, Data) else graph_list(graphs, finite=False)
            if sum(int(graph.num_edges) for graph in listed) > _MANY_EDGES:
                ahead = self.estimate(graphs)
                if ahead.seconds > _LONG:
                    return f"Explaining ({ahead})"
        return "Explaining"

    def estimate(
        self,
        graphs: Data | Batch | str | Sequence[Data] | Sequence[str],
        *,
        index: int | Tensor | list[int] | None = None,
    ) -> Estimate:
        """Returns what `explain` would cost for these graphs, by timing a small part of them.

        Example:
            >>> from nicegnn import NICE
            >>> from nicegnn.target.zoo import GIN
            >>> graph = Data(x=torch.eye(3), edge_index=torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]))
            >>> NICE(GIN(3, 2)).estimate(graph).bonds
            2
        """
        from nicegnn.explain.estimate import estimate

        return estimate(self, self._read(graphs), index)

    def _explain_nodes(
        self, graphs: Any, index: int | Tensor | list[int], call: Call, shown: str | None
    ) -> Explanation:
        known = self._last_survey(call.target, _one_graph(graphs), self._whole)
        graph = known.graph
        nodes = check_index(index, int(graph.num_nodes)).to(self.target.device)
        units, is_local = computation_graphs(call.target, known, nodes)
        compact = self._explain_list(units, call, shown)
        if not is_local:
            note = "A node's prediction depends on the whole graph, so whole graphs were damaged."
            status = replace(compact.status, notes=(*compact.status.notes, note))
            compact = replace(compact, status=status)
        return on_whole_graph(compact, units, graph, nodes, self.config.undirected)

    def _whole(self, graph: Data) -> Batch:
        return to_batch(graph, finite=False).to(self.target.device)

    def _on_device(self, batch: Batch) -> Batch:
        self._check_dtype(batch)
        device = self.target.device
        return batch if _is_on(batch.to_dict(), device) else batch.to(device)

    def _check_dtype(self, graph: Data) -> None:
        x, parameter = graph.get("x"), next(self.target.model.parameters(), None)
        if not isinstance(x, Tensor) or parameter is None or x.dtype == parameter.dtype:
            return
        if x.is_floating_point() and parameter.is_floating_point():
            raise GraphError(
                f"`x` must have the dtype of the model, {parameter.dtype} (got {x.dtype}). Convert "
                "one of them."
            )


def _is_on(value: object, device: torch.device) -> bool:
    """Whether tensors are on a device already; of a list the first item tells for all.

    PyG's ``to`` looks at every item, which takes longer than explaining a large batch.
    """
    if isinstance(value, Mapping):
        return all(_is_on(one, device) for one in value.values())
    if isinstance(value, list | tuple):
        return not value or _is_on(value[0], device)
    return not isinstance(value, Tensor) or value.device == device


def _inside(advance: Advance, first: int, number: int, share: float, note: str) -> None:
    """Moves a bar inside one of its steps: a share of so many graphs after the first ones."""
    advance(first + number * share, note)


def _one_graph(graphs: Any) -> Data:
    if not isinstance(graphs, Data):
        raise TargetError(
            f"`graphs` must be one Data if `index` is given (got {type(graphs).__name__})."
        )
    return graphs


def _with_notes(found: Explanation, target: Target) -> Explanation:
    """Adds what is special about the model to the notes of an explanation."""
    notes = found.status.notes
    if target.mode == "multilabel":
        notes += (f"Label {target.label or 0} is explained: class 0 is absent, 1 is present.",)
    if target.facts.mixes:
        notes += (
            "A graph's output depends on the other graphs of its batch, so the model was run graph "
            "by graph. Give its normalisation `batch`, or running statistics.",
        )
    elif reasons := list(dict.fromkeys(filter(None, target.facts.not_followed.values()))):
        notes += tuple(
            f"Bonds were damaged in whole copies of graphs (slower): {r}" for r in reasons
        )
    return replace(found, status=replace(found.status, notes=notes))


def _without(settings: dict[str, Any], names: frozenset[str], prefix: str = "") -> dict[str, Any]:
    """Returns nested settings without those named; a dot separates part and name."""
    return {
        key: _without(value, names, f"{prefix}{key}.") if isinstance(value, dict) else value
        for key, value in settings.items()
        if prefix + key not in names
    }


def check_fingerprint(path: str | Path, model: nn.Module, expected: str) -> None:
    """Raises `StoreError` unless a file was written for exactly this model."""
    found = fingerprint(model)
    if found != expected:
        raise StoreError(
            f"The model must have the fingerprint {expected} of {path} (got {found}). Load the "
            "weights that were explained there, or call fit() again."
        )


def mechanism_name(mechanism: Mechanism) -> str:
    """Returns the name of a mechanism, the same in every process."""
    text = repr(mechanism)
    if " at 0x" not in text:
        return text
    named = mechanism if hasattr(mechanism, "__qualname__") else type(mechanism)
    return f"{named.__module__}.{named.__qualname__}"
