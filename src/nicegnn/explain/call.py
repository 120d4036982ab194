"""One call of `explain`: what is asked for, checked once, then done batch by batch."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch_geometric.data import Batch, Data, HeteroData

from nicegnn.errors import ConfigError, GraphError, NotFittedError, TargetError
from nicegnn.explain.checks import (
    checked_batch,
    checked_features,
    explained_class,
    noise_slot,
    switch,
    whole_number,
)
from nicegnn.explain.explanation import Explanation, concatenate
from nicegnn.explain.node_tasks import (
    check_index,
    check_pairs,
    computation_graphs,
    on_whole_graph,
    own_edges,
    survey,
)
from nicegnn.graph.batch import graph_list, stackable, to_batch
from nicegnn.graph.kinds import Kinds
from nicegnn.intervention.background import Background, record_background
from nicegnn.progress import Advance, progress_bar
from nicegnn.target.frozen_model import LINKS, Level, Target, fingerprint

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
class Roots:
    """The explained nodes, or pairs, of a graph, each with a computation graph of its own."""

    graph: Batch  # the whole graph
    index: Tensor  # explained nodes, [B], or pairs of nodes, [2, B]
    units: list[Data]  # the computation graphs
    is_local: bool  # whether each of them is only the surroundings


@dataclass(frozen=True)
class Call:
    """A checked call of `explain`."""

    target: Target  # with a private copy of the model
    graphs: Batch | Sequence[Data]  # a batch stays one; a list is cut into batches
    seed: int
    explained: Tensor | None
    slot: Tensor | None
    roots: Roots | None  # for nodes and pairs
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
        if self.roots is not None:
            whole = self.roots.units, self.roots.graph, self.roots.index, self.undirected
            joined = on_whole_graph(joined, *whole)
        status = joined.status.noting(self._notes())
        return replace(joined, status=status, kinds=self.target.kinds)

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
        if self.roots is not None and not self.roots.is_local:
            notes.append(
                "A node's prediction depends on the whole graph, so whole graphs were damaged."
            )
        if self.target.level == "pair" and self.roots is not None:
            number = own_edges(self.roots.graph, self.roots.index)
            if number:
                notes.append(
                    f"{number} of the pairs are joined by an edge of the graph, which is scored "
                    "like any other. To see what else speaks for them, take it out of `edge_index`."
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
    pairs: Any = None,
    seed: Any = None,
    slot: Any = None,
    progress: Any = False,
) -> Call:
    """Checks all that `Explainer.explain` is given, once, and copies the model for this call."""
    config, title = explainer.config, None
    seed = config.seed if seed is None else whole_number("seed", seed)
    explained, progress = explained_class(target), switch("progress", progress)
    explainer.check_model()
    graphs, kinds = read_graphs(graphs, explainer.target)
    label = explainer.target.label
    if explainer.target.mode == "multilabel":
        label, explained = _explained_label(explainer, explained), None
    is_part = index is not None or pairs is not None
    ahead = "" if is_part or kinds else long_work(explainer, graphs, is_shown=progress)
    if progress:
        title = f"Explaining ({ahead})" if ahead else "Explaining"
    elif ahead:
        logger.warning(
            "Explaining takes %s. progress=True shows how far it is; a part of the graph, or nodes "
            "by `index`, take less.",
            ahead,
        )
    explainer.to(explainer.target.device)  # what was learned follows the model
    work = _private(explainer.target, _level(index, pairs), label, kinds)
    chosen = None
    if is_part:
        chosen = choose_roots(work, graphs, index, pairs)
        graphs, slot = chosen.units, noise_slot(slot, int(chosen.graph.num_edges))
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
    call = Call(work, graphs, seed, explained, slot, chosen, title, config.undirected)
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
    pairs: Any = None,
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
    graphs, kinds = read_graphs(graphs, explainer.target)
    if kinds is not None:
        raise GraphError(
            "`graphs` must have one kind of nodes and edges for fit() and teach() (got "
            "HeteroData). NICE(model).explain(graph) needs neither."
        )
    work = _private(explainer.target, _level(index, pairs), label, kinds)
    if index is None and pairs is None:
        units = stackable(graphs, finite=False)
    else:
        units = choose_roots(work, graphs, index, pairs).units
    checked_features(units[0], work.model)
    return FitWork(work, units, seed, progress)


def choose_roots(work: Target, graph: Any, index: Any, pairs: Any) -> Roots:
    """Returns the nodes, or pairs, of a graph to explain, each with its computation graph."""
    if not isinstance(graph, Data):
        raise TargetError(
            f"`graphs` must be one Data if `index` or `pairs` is given (got {type(graph).__name__})"
            ". Explain one graph at a time."
        )
    batch = to_batch(graph, finite=False)
    checked_features(batch, work.model)
    batch = checked_batch(batch).to(work.device)
    if pairs is not None:
        if index is not None or work.kinds is not None:
            raise TargetError(
                "`pairs` must come without `index`, for a graph with one kind of nodes (got "
                f"{'HeteroData' if index is None else 'both'}). {LINKS}"
            )
        roots = check_pairs(pairs, int(batch.num_nodes)).to(work.device)
        batch = copy.copy(batch)
        batch.edge_label_index = roots
    elif work.kinds is not None:
        roots = _of_kind(work, batch, index)
    else:
        roots = check_index(index, int(batch.num_nodes)).to(work.device)
    surveyed = survey(work, batch)
    units, is_local = computation_graphs(work, surveyed, roots)
    return Roots(batch, roots, units, is_local)


def _of_kind(work: Target, batch: Batch, index: Any) -> Tensor:
    """Returns nodes of one kind by their numbers in the whole graph, ``[K]``; tells `work`."""
    assert work.kinds is not None
    kinds, kind = work.kinds, None
    if isinstance(index, tuple) and len(index) == 2 and isinstance(index[0], str):
        kind, index = index
        if kind not in kinds.nodes:
            raise TargetError(
                f"`index` must name a kind of nodes, one of {kinds.nodes} (got {kind!r})."
            )
    else:
        rows = work.call(batch).size(0)
        sizes = torch.bincount(batch.node_type, minlength=len(kinds.nodes)).tolist()
        fit = [one for one, size in zip(kinds.nodes, sizes, strict=True) if size == rows]
        if len(fit) != 1:
            raise TargetError(
                f"`index` must name the kind of its nodes: the model returns {rows} rows, and "
                f"there are {dict(zip(kinds.nodes, sizes, strict=True))} nodes. Pass "
                f"index=('{kinds.nodes[0]}', [0]), for example."
            )
        kind = fit[0]
    work.kinds = replace(kinds, answer=kind)
    own = (batch.node_type == kinds.nodes.index(kind)).nonzero().view(-1)
    return own[check_index(index, own.numel()).to(own.device)]


def read_graphs(graphs: Any, target: Target) -> tuple[Any, Kinds | None]:
    """Returns graphs as `Data`: of SMILES by the model's featuriser, of `HeteroData` with kinds."""
    reader: Any = getattr(target.model, "read_graphs", None)
    if reader is not None:
        return reader(graphs), None
    is_one = isinstance(graphs, str | HeteroData) and not isinstance(graphs, Batch)
    if isinstance(graphs, HeteroData):
        listed = [graphs] if is_one else graphs.to_data_list()
    else:
        listed = graphs if isinstance(graphs, list | tuple) else [graphs]
    if listed and all(isinstance(graph, HeteroData) for graph in listed):
        kinds = Kinds.of(listed) if target.kinds is None else target.kinds.holding(listed)
        made = [kinds.join(graph) for graph in listed]
        return (made[0] if is_one else made), kinds
    if listed and isinstance(listed[0], str):
        from nicegnn.molecule.featurizers import graphs_from_smiles, model_featurizer

        made = graphs_from_smiles(graphs, model_featurizer(target.model))
        return (made[0] if is_one else made), None
    return graphs, None


def checked_background(
    target: Target, background: Background | Iterable[Any], num_prototypes: int
) -> Background:
    """Returns the background of this very model, recorded if graphs are given."""
    if not isinstance(background, Background):
        try:
            graphs, kinds = read_graphs(background, target)
            work = _private(target, target.level, target.label, kinds)
            target.kinds = kinds  # numbers of kinds in the background are those of its graphs
            return record_background(work, graphs, num_prototypes)
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


def _level(index: Any, pairs: Any) -> Level:
    return "pair" if pairs is not None else "node" if index is not None else "graph"


def _private(target: Target, level: Level, label: int | None, kinds: Kinds | None) -> Target:
    """Returns a target for one call, with a private copy of the model."""
    work = target.private(level)
    work.label, work.kinds = label, kinds
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
