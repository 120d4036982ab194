"""One call of `explain` or `fit`: what is asked for, checked once, then done batch by batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
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
from nicegnn.progress import progress_bar
from nicegnn.target.frozen_model import Level, Target, fingerprint

if TYPE_CHECKING:
    from nicegnn.explain.explainer import Explainer


@dataclass(frozen=True)
class Work:
    """One batch of a call, on the model's device, and all that its explanation depends on."""

    batch: Batch
    target: Target  # with a private copy of the model
    seed: int
    explained: Tensor | None = None  # class or output, one or one per graph, [1] or [B]
    watch: Callable[[int, int], None] = lambda done, total: None  # told of answers that are there


@dataclass(frozen=True)
class Asked:
    """What `explain`, `fit` and `teach` are asked for, beside graphs; not checked yet."""

    target: Any
    index: Any
    pairs: Any
    seed: Any
    progress: Any

    def checked_seed(self, explainer: Explainer) -> int:
        """Checks `seed` and `progress`, and returns the seed of this call."""
        check_choice("progress", self.progress, (True, False))
        return whole_number("seed", explainer.config.seed if self.seed is None else self.seed)


@dataclass(frozen=True)
class FitWork:
    """A checked call of `fit` or `teach`, and all that it depends on."""

    target: Target  # with a private copy of the model
    units: Sequence[Data]  # graphs, or the computation graphs of nodes
    seed: int
    progress: bool


def explain_batches(
    explainer: Explainer,
    graphs: Any,
    asked: Asked,
    explain: Callable[[Work], Explanation],
    size: int,
) -> Explanation:
    """Checks all that `Explainer.explain` is given, once, and explains batch by batch.

    A list is cut into batches of at most `size` graphs, a batch stays one.
    """
    seed, wanted = asked.checked_seed(explainer), explained_class(asked.target)
    explainer.check_model()
    graphs, kinds = read_graphs(graphs, explainer.target)
    label = explainer.target.label
    if explainer.target.mode == "multilabel":
        label, wanted = _explained_label(explainer, wanted), None
    explainer._follow()
    target, roots = _private(explainer.target, label, kinds, graphs, asked)
    if roots is not None:
        graphs = roots.units
    else:
        graphs = to_batch(graphs) if isinstance(graphs, Data) else graph_list(graphs)
    is_batch = isinstance(graphs, Batch)
    total = graphs.num_graphs if is_batch else len(graphs)
    if wanted is not None and wanted.numel() not in (1, total):
        raise TargetError(
            f"`target` must be one class or one per explained output, {total} "
            f"(got {wanted.numel()}). Pass as many."
        )
    parts: list[Explanation] = []
    with progress_bar("Explaining", total, shown=asked.progress) as advance:
        for first in range(0, total, total if is_batch else size):
            batch = graphs if is_batch else collate(graphs[first : first + size])
            _check_features(batch, target.model)
            if batch.edge_index.device != target.device:  # PyG's `to` walks through lists of words
                batch = batch.to(target.device)
            number, explained = batch.num_graphs, wanted
            if wanted is not None and wanted.numel() > 1:
                explained = wanted[first : first + number]

            def watch(done: int, total: int, first: int = first, number: int = number) -> None:
                advance(first + number * done / total, f"{done:,} of {total:,} answers")

            parts.append(explain(Work(batch, target, seed, explained, watch)))
            advance(first + number, "")
    joined = concatenate(parts)
    if roots is not None:
        joined = on_whole_graph(joined, roots, explainer.config.undirected)
    status = joined.status.noting(_notes(target, roots))
    return replace(joined, status=status, kinds=target.kinds)


def _notes(target: Target, roots: Roots | None) -> list[str]:
    """Returns what is special about the model."""
    notes = []
    if roots is not None and not roots.is_local:
        notes.append(
            "A node's prediction depends on the whole graph, so whole graphs were damaged."
        )
    if roots is not None and target.level == "pair" and (number := own_edges(roots)):
        notes.append(
            f"{number} of the pairs are joined by an edge of the graph, which is scored like "
            "any other. To see what else speaks for them, take it out of `edge_index`."
        )
    if target.mode == "multilabel":
        notes.append(f"Label {target.label or 0} is explained: class 0 is absent, 1 is present.")
    return notes


def open_fit(explainer: Explainer, graphs: Any, asked: Asked) -> FitWork:
    """Checks all that `Explainer.fit` is given, and copies the model for this call."""
    seed, label, mode = asked.checked_seed(explainer), explainer.target.label, explainer.target.mode
    if asked.target is not None:
        label = whole_number("target", asked.target, TargetError)
        if mode != "multilabel":
            raise TargetError(
                f"`target` names the label to learn, for mode='multilabel' (got {label!r} with "
                f"mode={mode!r}). Leave it out: predicted classes are learned."
            )
    graphs, kinds = read_graphs(graphs, explainer.target)
    if kinds is not None:
        raise GraphError(
            "`graphs` must have one kind of nodes and edges for fit() and teach() (got "
            "HeteroData). NICE(model).explain(graph) needs neither."
        )
    work, roots = _private(explainer.target, label, kinds, graphs, asked)
    units = stackable(graphs) if roots is None else roots.units
    _check_features(units[0], work.model)
    return FitWork(work, units, seed, asked.progress)


def _check_features(graph: Data, model: nn.Module) -> None:
    """Raises `GraphError` unless ``x`` has the type of the model's weights."""
    x, weight = graph.get("x"), next(model.parameters(), None)
    if x is None or weight is None or x.dtype == weight.dtype:
        return
    if x.is_floating_point() and weight.is_floating_point():
        raise GraphError(
            f"`x` must have the model's dtype, {weight.dtype} (got {x.dtype}). Convert one of them."
        )


def read_graphs(graphs: Any, target: Target) -> tuple[Any, Kinds | None]:
    """Returns graphs as `Data`: of SMILES by the model's featuriser, of `HeteroData` with kinds."""
    reader: Any = getattr(target.model, "read_graphs", None)
    if reader is not None:
        return reader(graphs), None
    is_one = isinstance(graphs, str | HeteroData) and not isinstance(graphs, Batch)
    if isinstance(graphs, HeteroData) and not is_one:
        listed: Any = graphs.to_data_list()
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
            work = target.private()
            work.kinds = target.kinds = kinds  # those of its graphs number the background's
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


def _explained_label(explainer: Explainer, target: Tensor | None) -> int | None:
    """Returns the label that is explained with ``mode="multilabel"``, if one is known."""
    fitted = explainer.target.label
    if target is None:
        return fitted
    label, *others = sorted(set(target.tolist()))
    if others:
        raise TargetError(
            "`target` must be one label for all graphs with mode='multilabel' (got "
            f"{[label, *others]}). Explain other labels in another call."
        )
    if explainer.is_fitted and fitted not in (None, label):
        raise NotFittedError(
            f"`target` must be the label that this {explainer.name} was fitted for, {fitted} (got "
            f"{label}). Fit another one: fit(graphs, target={label})."
        )
    return int(label)


def _private(
    target: Target, label: int | None, kinds: Kinds | None, graph: Any, asked: Asked
) -> tuple[Target, Roots | None]:
    """Returns a target for one call, with a private copy of the model; and nodes or pairs."""
    index, pairs = asked.index, asked.pairs
    level: Level = "pair" if pairs is not None else "node" if index is not None else "graph"
    work = target.private(level)
    work.label, work.kinds = label, kinds
    if level == "graph":
        return work, None
    if not isinstance(graph, Data):
        got = type(graph).__name__
        raise TargetError(f"`graphs` must be one Data if `index` or `pairs` is given (got {got}).")
    batch = to_batch(graph)
    _check_features(batch, work.model)
    return work, choose_roots(work, batch.to(work.device), index, pairs)
