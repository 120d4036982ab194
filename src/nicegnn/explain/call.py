"""One call of `explain` or `fit`: what is asked for, checked once, then done batch by batch."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn
from torch_geometric.data import Batch, Data, HeteroData

from nicegnn.config import check_choice
from nicegnn.errors import ConfigError, GraphError, NotFittedError, TargetError
from nicegnn.explain.checks import explained_class, whole_number
from nicegnn.explain.explanation import Explanation, concatenate
from nicegnn.explain.node_tasks import Roots, choose_roots, on_whole_graph, own_edges
from nicegnn.graph.batch import collate, graph_list, stackable, to_batch
from nicegnn.graph.kinds import Kinds
from nicegnn.intervention.background import Background, record_background
from nicegnn.progress import Advance, progress_bar
from nicegnn.target.frozen_model import Level, Target, fingerprint

if TYPE_CHECKING:
    from nicegnn.explain.explainer import Explainer

logger = logging.getLogger("nicegnn")
_MANY_EDGES, _LONG = 20_000, 60.0  # edges from which cost is estimated; seconds worth a word


@dataclass(frozen=True)
class Work:
    """One batch of a call, on the model's device, and all that its explanation depends on."""

    batch: Batch
    target: Target  # with a private copy of the model
    seed: int
    explained: Tensor | None = None  # class or output, one or one per graph, [1] or [B]
    advance: Advance = lambda done, note: None  # shows the share of the batch that is done


@dataclass(frozen=True)
class FitWork:
    """A checked call of `fit` or `teach`, and all that it depends on."""

    target: Target  # with a private copy of the model
    units: Sequence[Data]  # graphs, or the computation graphs of nodes
    seed: int
    progress: bool


@dataclass(frozen=True)
class Call:
    """A checked call of `explain`."""

    target: Target  # with a private copy of the model
    graphs: Batch | Sequence[Data]  # a batch stays one; a list is cut into batches
    seed: int
    explained: Tensor | None
    roots: Roots | None  # for nodes and pairs
    title: str | None  # of a bar; None shows none
    undirected: bool

    @property
    def num_graphs(self) -> int:
        return self.graphs.num_graphs if isinstance(self.graphs, Batch) else len(self.graphs)

    def run(self, explain: Callable[[Work], Explanation], size: int) -> Explanation:
        """Explains batches of at most `size` graphs, and joins what was explained."""
        parts: list[Explanation] = []
        device, total = self.target.device, self.num_graphs
        with progress_bar(self.title or "", total, shown=self.title is not None) as advance:
            for first in range(0, total, total if isinstance(self.graphs, Batch) else size):
                batch: Any = self.graphs
                if not isinstance(batch, Batch):
                    batch = collate(batch[first : first + size])
                _check_features(batch, self.target.model)
                if batch.edge_index.device != device:  # PyG's `to` walks through lists of words
                    batch = batch.to(device)
                number, explained = batch.num_graphs, self.explained
                if explained is not None and explained.numel() > 1:
                    explained = explained[first : first + number]
                move = partial(_move, advance, first, number)
                parts.append(explain(Work(batch, self.target, self.seed, explained, move)))
                advance(first + number, "")
        joined = concatenate(parts)
        if self.roots is not None:
            joined = on_whole_graph(joined, self.roots, self.undirected)
        status = joined.status.noting(self._notes())
        return replace(joined, status=status, kinds=self.target.kinds)

    def _notes(self) -> list[str]:
        """Returns what is special about the model."""
        notes, roots = [], self.roots
        if roots is not None and not roots.is_local:
            notes.append(
                "A node's prediction depends on the whole graph, so whole graphs were damaged."
            )
        if roots is not None and self.target.level == "pair" and (number := own_edges(roots)):
            notes.append(
                f"{number} of the pairs are joined by an edge of the graph, which is scored like "
                "any other. To see what else speaks for them, take it out of `edge_index`."
            )
        if self.target.mode == "multilabel":
            label = self.target.label or 0
            notes.append(f"Label {label} is explained: class 0 is absent, 1 is present.")
        return notes


def open_call(
    explainer: Explainer,
    graphs: Any,
    *,
    target: Any = None,
    index: Any = None,
    pairs: Any = None,
    seed: Any = None,
    progress: Any = False,
) -> Call:
    """Checks all that `Explainer.explain` is given, once, and copies the model for this call."""
    config, title = explainer.config, None
    seed = config.seed if seed is None else whole_number("seed", seed)
    explained = explained_class(target)
    check_choice("progress", progress, (True, False))
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
    work, roots = _private(explainer.target, label, kinds, index, pairs), None
    if is_part:
        roots = _choose(work, graphs, index, pairs)
        graphs = roots.units
    else:
        graphs = to_batch(graphs) if isinstance(graphs, Data) else graph_list(graphs)
    call = Call(work, graphs, seed, explained, roots, title, config.undirected)
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
    pairs: Any,
    seed: Any,
    progress: Any,
) -> FitWork:
    """Checks all that `Explainer.fit` is given, and copies the model for this call."""
    seed = explainer.config.seed if seed is None else whole_number("seed", seed)
    check_choice("progress", progress, (True, False))
    label, is_part = explainer.target.label, index is not None or pairs is not None
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
    work = _private(explainer.target, label, kinds, index, pairs)
    units = _choose(work, graphs, index, pairs).units if is_part else stackable(graphs)
    _check_features(units[0], work.model)
    return FitWork(work, units, seed, progress)


def _choose(work: Target, graph: Any, index: Any, pairs: Any) -> Roots:
    """Returns the nodes, or pairs, of a graph to explain."""
    if not isinstance(graph, Data):
        raise TargetError(
            f"`graphs` must be one Data if `index` or `pairs` is given (got {type(graph).__name__})"
            ". Explain one graph at a time."
        )
    batch = to_batch(graph)
    _check_features(batch, work.model)
    return choose_roots(work, batch.to(work.device), index, pairs)


def _check_features(graph: Data, model: nn.Module) -> None:
    """Raises `GraphError` unless ``x`` has the type of the model's weights."""
    x, weight = graph.get("x"), next(model.parameters(), None)
    if x is None or weight is None or x.dtype == weight.dtype:
        return
    if x.is_floating_point() and weight.is_floating_point():
        raise GraphError(
            f"`x` must have the dtype of the model, {weight.dtype} (got {x.dtype}). Convert one of "
            "them."
        )


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
            work = _private(target, target.label, kinds)
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
    listed = [graphs] if isinstance(graphs, Data) else graph_list(graphs)
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
    if explainer.is_fitted and fitted is not None and (label := int(target[0])) != fitted:
        raise NotFittedError(
            f"`target` must be the label that this {explainer.name} was fitted for, {fitted} (got "
            f"{label}). Fit another one: fit(graphs, target={label})."
        )
    return int(target[0])


def _private(
    target: Target, label: int | None, kinds: Kinds | None, index: Any = None, pairs: Any = None
) -> Target:
    """Returns a target for one call, with a private copy of the model."""
    level: Level = "pair" if pairs is not None else "node" if index is not None else "graph"
    work = target.private(level)
    work.label, work.kinds = label, kinds
    return work


def _move(advance: Advance, first: int, number: int, share: float, note: str) -> None:
    """Moves a bar inside one of its steps: a share of so many graphs after the first ones."""
    advance(first + number * share, note)
