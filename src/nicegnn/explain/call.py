"""One call of `explain`: what is asked for, checked once, then done batch by batch."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch_geometric.data import Batch, Data

from nicegnn.errors import ConfigError, GraphError, NotFittedError, TargetError
from nicegnn.explain.checks import (
    checked_batch,
    checked_features,
    explained_class,
    explained_nodes,
    noise_slot,
    switch,
    whole_number,
)
from nicegnn.explain.explanation import Explanation, concatenate
from nicegnn.explain.node_tasks import Survey, check_index, computation_graphs, on_whole_graph
from nicegnn.graph.batch import graph_list, stackable, to_batch
from nicegnn.intervention.background import Background, record_background
from nicegnn.progress import Advance, progress_bar
from nicegnn.target.frozen_model import Target, fingerprint

if TYPE_CHECKING:
    from nicegnn.explain.explainer import Explainer

logger = logging.getLogger("nicegnn")
_MANY_EDGES, _LONG = 20_000, 60.0  # edges from which cost is estimated; seconds worth a word


def _stay(done: float, note: str) -> None:
    """Moves no bar."""


@dataclass(frozen=True)
class Work:
    """One batch of a call, on the model's device, and all that its explanation depends on."""

    batch: Batch
    target: Target  # with a private copy of the model
    seed: int
    explained: Tensor | None = None  # class or output, one or one per graph, [1] or [B]
    slot: Tensor | None = None  # noise coordinate of each directed edge, [E]
    advance: Advance = _stay  # shows the share of the batch that is done


@dataclass(frozen=True)
class FitWork:
    """A checked call of `fit` or `teach`, and all that it depends on."""

    target: Target  # with a private copy of the model
    units: Sequence[Data]  # graphs, or the computation graphs of nodes
    seed: int
    progress: bool


@dataclass(frozen=True)
class Nodes:
    """The explained nodes of a graph, each with a computation graph of its own."""

    graph: Batch  # the whole graph
    index: Tensor  # explained nodes, [B]
    is_local: bool  # whether each computation graph is only the node's surroundings


@dataclass(frozen=True)
class Call:
    """A checked call of `explain`."""

    target: Target  # with a private copy of the model
    graphs: Batch | Sequence[Data]  # a batch stays one; a list is cut into batches
    seed: int
    explained: Tensor | None
    slot: Tensor | None
    nodes: Nodes | None  # for node tasks
    title: str | None  # of a bar; None shows none
    undirected: bool

    @property
    def num_graphs(self) -> int:
        return self.graphs.num_graphs if isinstance(self.graphs, Batch) else len(self.graphs)

    def run(self, explain: Callable[[Work], Explanation], size: int) -> Explanation:
        """Explains batches of at most `size` graphs, and joins what was explained."""
        parts: list[Explanation] = []
        total, edges = self.num_graphs, 0
        with progress_bar(self.title or "", total, shown=self.title is not None) as advance:
            for first in range(0, total, total if isinstance(self.graphs, Batch) else size):
                batch = self._batch(first, size)
                advance_inside = partial(_move, advance, first, batch.num_graphs)
                last = edges + int(batch.num_edges)
                work = Work(
                    batch,
                    self.target,
                    self.seed,
                    _of_part(self.explained, first, first + batch.num_graphs),
                    None if self.slot is None else self.slot[edges:last].to(self.target.device),
                    advance_inside,
                )
                parts.append(explain(work))
                edges = last
                advance(first + batch.num_graphs, "")
        joined = concatenate(parts)
        if self.nodes is not None:
            joined = on_whole_graph(
                joined, list(self.graphs), self.nodes.graph, self.nodes.index, self.undirected
            )
        return replace(joined, status=joined.status.noting(self._notes()))

    def _batch(self, first: int, size: int) -> Batch:
        """Returns the batch that starts with a graph, on the model's device."""
        batch = self.graphs
        if not isinstance(batch, Batch):
            batch = to_batch(batch[first : first + size], finite=False)
        checked_features(batch, self.target.model)
        return _on_device(batch, self.target.device)

    def _notes(self) -> list[str]:
        """Returns what is special about the model."""
        notes, facts = [], self.target.facts
        if self.nodes is not None and not self.nodes.is_local:
            notes.append(
                "A node's prediction depends on the whole graph, so whole graphs were damaged."
            )
        if self.target.mode == "multilabel":
            label = self.target.label or 0
            notes.append(f"Label {label} is explained: class 0 is absent, 1 is present.")
        if facts.mixes:
            notes.append(
                "A graph's output depends on the other graphs of its batch, so the model was run "
                "graph by graph. Give its normalisation `batch`, or running statistics."
            )
        elif reasons := list(dict.fromkeys(filter(None, facts.not_followed.values()))):
            notes += [
                f"Bonds were damaged in whole copies of graphs (slower): {r}" for r in reasons
            ]
        return notes


def open_call(
    explainer: Explainer,
    graphs: Any,
    *,
    target: Any = None,
    index: Any = None,
    seed: Any = None,
    slot: Any = None,
    progress: Any = False,
) -> Call:
    """Checks all that `Explainer.explain` is given, once, and copies the model for this call."""
    config, title, ahead = explainer.config, None, ""
    seed = config.seed if seed is None else whole_number("seed", seed)
    explained, progress = explained_class(target), switch("progress", progress)
    index = explained_nodes(index)
    explainer.check_model()
    graphs = read_graphs(graphs, explainer.target)
    label = explainer.target.label
    if explainer.target.mode == "multilabel":
        label, explained = _explained_label(explainer, explained), None
    if index is None:
        ahead = long_work(explainer, graphs, is_shown=progress)
    if progress:
        title = f"Explaining ({ahead})" if ahead else "Explaining"
    elif ahead:
        logger.warning(
            "Explaining takes %s. progress=True shows how far it is; a part of the graph, or nodes "
            "by `index`, take less.",
            ahead,
        )
    explainer.to(explainer.target.device)  # what was learned follows the model
    work = _private(explainer.target, "graph" if index is None else "node", label)
    nodes = None
    if index is not None:
        surveyed = survey_of(explainer, work, graphs)
        slot = noise_slot(slot, int(surveyed.graph.num_edges))
        index = check_index(index, int(surveyed.graph.num_nodes)).to(work.device)
        graphs, is_local = computation_graphs(work, surveyed, index)
        nodes = Nodes(surveyed.graph, index, is_local)
        if slot is not None:
            slot = torch.cat([slot.to(work.device)[unit.edge_origin] for unit in graphs])
    else:
        if isinstance(graphs, Data):  # a Batch is a Data too
            graphs = checked_batch(to_batch(graphs, finite=False))
        else:
            graphs = graph_list(graphs, finite=False)
        if slot is not None:
            listed = [graphs] if isinstance(graphs, Batch) else graphs
            slot = noise_slot(slot, sum(int(graph.num_edges) for graph in listed))
    call = Call(work, graphs, seed, explained, slot, nodes, title, config.undirected)
    if explained is not None and explained.numel() not in (1, call.num_graphs):
        raise TargetError(
            f"`target` must be one class or one per explained output, {call.num_graphs} "
            f"(got {explained.numel()}). Pass as many."
        )
    return call


def open_fit(
    explainer: Explainer,
    graphs: Any,
    *,
    target: Any,
    index: Any,
    seed: Any,
    progress: Any,
) -> FitWork:
    """Checks all that `Explainer.fit` is given, and copies the model for this call."""
    seed = explainer.config.seed if seed is None else whole_number("seed", seed)
    progress = switch("progress", progress)
    label = explainer.target.label
    if target is not None:
        label = whole_number("target", target, TargetError)
        if explainer.target.mode != "multilabel":
            raise TargetError(
                f"`target` names the label to learn, for mode='multilabel' (got {target!r} with "
                f"mode={explainer.target.mode!r}). Leave it out: predicted classes are learned."
            )
    index = explained_nodes(index)
    graphs = read_graphs(graphs, explainer.target)
    work = _private(explainer.target, "graph" if index is None else "node", label)
    if index is None:
        units = stackable(graphs, finite=False)
    else:
        surveyed = survey_of(explainer, work, graphs)
        nodes = check_index(index, int(surveyed.graph.num_nodes)).to(work.device)
        units, _ = computation_graphs(work, surveyed, nodes)
    checked_features(units[0], work.model)
    return FitWork(work, units, seed, progress)


def read_graphs(graphs: Any, target: Target) -> Any:
    """Returns the graphs of SMILES by the model's featuriser, or what was given."""
    reader: Any = getattr(target.model, "read_graphs", None)
    if reader is not None:
        return reader(graphs)
    is_one = isinstance(graphs, str)
    if is_one or (isinstance(graphs, list | tuple) and graphs and isinstance(graphs[0], str)):
        from nicegnn.molecule.featurizers import graphs_from_smiles, model_featurizer

        made = graphs_from_smiles(graphs, model_featurizer(target.model))
        return made[0] if is_one else made
    return graphs


def checked_background(
    target: Target, background: Background | Iterable[Any], num_prototypes: int
) -> Background:
    """Returns the background of this very model, recorded if graphs are given."""
    if not isinstance(background, Background):
        try:
            return record_background(target, read_graphs(background, target), num_prototypes)
        except GraphError as error:
            raise GraphError(
                f"`background` must hold graphs like those that the model was trained on: {error}"
            ) from None
    weights = fingerprint(target.model)
    if background.model != weights:
        raise ConfigError(
            "`background` must be recorded with the weights of this model (fingerprint "
            f"{weights}, got {background.model}). Pass graphs, or record it again."
        )
    return background.to(target.device)


def survey_of(explainer: Explainer, work: Target, graph: Any) -> Survey:
    """Returns what is known about a graph whose nodes are explained."""
    if not isinstance(graph, Data):
        raise TargetError(
            f"`graphs` must be one Data if `index` is given (got {type(graph).__name__}). Explain "
            "the nodes of one graph at a time."
        )

    def prepare(graph: Data) -> Batch:
        batch = to_batch(graph, finite=False)
        checked_features(batch, work.model)
        return checked_batch(batch).to(work.device)

    return explainer.last_survey(work, graph, prepare)


def long_work(explainer: Explainer, graphs: Any, *, is_shown: bool) -> str:
    """Returns what is ahead in words, or nothing if it is little.

    Without a bar only one large graph is estimated: for many small ones it would take too long.
    """
    is_one = isinstance(graphs, Data) and not isinstance(graphs, Batch)
    if not (is_shown or is_one):
        return ""
    listed = [graphs] if isinstance(graphs, Data) else graph_list(graphs, finite=False)
    edges = [graph.get("edge_index") for graph in listed]
    if sum(one.numel() // 2 for one in edges if isinstance(one, Tensor)) <= _MANY_EDGES:
        return ""
    ahead = explainer.estimate(graphs)
    return str(ahead) if ahead.seconds > _LONG else ""


def _explained_label(explainer: Explainer, target: Tensor | None) -> int | None:
    """Returns the label that is explained with ``mode="multilabel"``, if one is known."""
    fitted = explainer.target.label
    if target is None:
        return fitted
    if bool((target != target[0]).any()):
        raise TargetError(
            "`target` must be one label for all graphs with mode='multilabel' (got "
            f"{sorted(set(target.tolist()))}). Explain other labels in another call."
        )
    label = int(target[0])
    if explainer.is_fitted and fitted is not None and label != fitted:
        raise NotFittedError(
            f"`target` must be the label that this {explainer.name} was fitted for, {fitted} (got "
            f"{label}). Fit another one: fit(graphs, target={label})."
        )
    return label


def _private(target: Target, level: Any, label: int | None) -> Target:
    """Returns a target for one call, with a private copy of the model."""
    work = target.private(level)
    work.label = label
    return work


def _of_part(values: Tensor | None, first: int, last: int) -> Tensor | None:
    """Returns the values of some graphs; one value is that of all."""
    return values if values is None or values.numel() == 1 else values[first:last]


def _on_device(batch: Batch, device: torch.device) -> Batch:
    """Returns a batch on a device.

    PyG's ``to`` looks at every item of lists, which takes longer than explaining a large batch.
    """

    def is_there(value: object) -> bool:
        if isinstance(value, dict):
            return all(is_there(one) for one in value.values())
        if isinstance(value, list | tuple):
            return not value or is_there(value[0])
        return not isinstance(value, Tensor) or value.device == device

    return batch if is_there(batch.to_dict()) else batch.to(device)


def _move(advance: Advance, first: int, number: int, share: float, note: str) -> None:
    """Moves a bar inside one of its steps: a share of so many graphs after the first ones."""
    advance(first + number * share, note)
