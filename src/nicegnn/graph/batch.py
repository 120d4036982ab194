"""What a graph must be, checked here once, and batches of graphs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Batch, Data, HeteroData

from nicegnn.errors import GraphError

_UNITS = {"x": "node", "edge_attr": "edge", "edge_weight": "edge"}  # what attributes have rows for
_BUILD = "Build the batch with Batch.from_data_list([...])."


def to_batch(graphs: Any) -> Batch:
    """Returns a checked ``Batch`` of one or many graphs."""
    if not isinstance(graphs, Batch) or not isinstance(graphs, Data):
        return collate(graph_list(graphs))
    check_graph(graphs)
    _check_vectors(graphs)
    return graphs


def collate(graphs: Sequence[Data]) -> Batch:
    """Joins checked graphs into a ``Batch`` of the attributes that all of them have."""
    keys = [set(graph.to_dict()) for graph in graphs]  # PyG's `keys` takes ten times as long
    shared = set.intersection(*keys)
    try:
        return Batch.from_data_list(list(graphs), exclude_keys=sorted(set.union(*keys) - shared))
    except (RuntimeError, TypeError, ValueError) as error:
        why = f"`graphs` must have the same attributes, to fit into one Batch (PyG says: {error})"
        for key in sorted(shared):
            shapes = [getattr(graph.get(key), "shape", (0,)) for graph in graphs]
            other = next((n for n, shape in enumerate(shapes) if shape[1:] != shapes[0][1:]), None)
            if other is not None and "index" not in key:
                why = f"`{key}` must have the same width in all graphs (got shape "
                why += f"{tuple(shapes[0])} in graph 0 and {tuple(shapes[other])} in graph {other})"
        raise GraphError(f"{why}. Explain graphs of one kind together.") from error


def stackable(graphs: Any) -> Sequence[Data]:
    """Returns graphs to fit on: a dataset with a ``batch()`` method as it is, else a list."""
    if isinstance(graphs, Data) or not callable(getattr(graphs, "batch", None)):
        return graph_list(graphs)
    check_graph(graphs.batch())
    return graphs


def graph_list(graphs: Any) -> list[Data]:
    """Returns the graphs of a list, dataset, loader, Data or Batch, each one checked."""
    source = graphs if isinstance(graphs, HeteroData) else getattr(graphs, "dataset", graphs)
    is_one = isinstance(source, Data | Tensor | np.ndarray | str | HeteroData)
    singles: list[Data] = []
    for item in [source] if is_one or not hasattr(source, "__iter__") else list(source):
        if not isinstance(item, Data):
            raise GraphError(
                "`graphs` must hold torch_geometric Data: one, a list, a dataset or a loader (got "
                f"{type(item).__name__}). Pass HeteroData to a model of several kinds of nodes."
            )
        try:
            singles += item.to_data_list() if isinstance(item, Batch) else [item]
        except Exception:
            why = "`graphs` must hold batches that can be taken apart (got one made by hand)."
            raise GraphError(f"{why} {_BUILD}") from None
    if not singles:
        raise GraphError("`graphs` must hold at least one graph (got none).")
    for number, graph in enumerate(singles):
        try:
            check_graph(graph)
        except GraphError as error:
            where = f"Graph {number} of {len(singles)}: " if len(singles) > 1 else ""
            raise GraphError(f"{where}{error}") from None
    return singles


def check_graph(data: Data) -> None:
    """Raises `GraphError` unless edges and features are tensors of the right shapes.

    Features may hold NaN, because a model need not read them all.
    """
    for key, value in data.to_dict().items():
        if isinstance(value, Tensor) and value.is_meta:
            raise GraphError(f"`{key}` must hold numbers (got none, on the device meta).")
        if key not in (*_UNITS, "edge_index") or value is None:
            continue
        if not isinstance(value, Tensor) or value.layout != torch.strided:
            got = getattr(value, "layout", type(value).__name__)
            raise GraphError(
                f"`{key}` must be a dense tensor (got {got}). Convert it with torch.as_tensor(), "
                "a sparse adjacency with torch_geometric.utils.to_edge_index()."
            )
        if value.dim() == 0:  # PyG could not count by it
            unit = _UNITS.get(key, "edge")
            raise GraphError(f"`{key}` must have one row per {unit} (got a single number).")
    edges = data.get("edge_index")
    if edges is None or edges.dim() != 2 or edges.size(0) != 2:
        got = "none" if edges is None else f"shape {tuple(edges.shape)}"
        raise GraphError(
            f"`edge_index` must be a tensor of shape [2, E] (got {got}). No edges are [2, 0]."
        )
    if edges.dtype != torch.long:
        got = str(edges.dtype)
        raise GraphError(f"`edge_index` must have dtype torch.long (got {got}). Use `.long()`.")
    size = 0 if data.num_nodes is None else data.num_nodes
    if not isinstance(size, int) or size < 0:
        raise GraphError(f"`num_nodes` must be a whole number (got {type(size).__name__}).")
    if isinstance(data.get("x"), Tensor) and data.x.device != edges.device:
        raise GraphError(
            f"`x` must be on the device of `edge_index`, {edges.device} (got {data.x.device}). "
            "Move the whole graph with `data.to(device)`."
        )
    for key, unit in _UNITS.items():
        value, number = data.get(key), size if unit == "node" else edges.size(1)
        if value is not None and value.size(0) != number:
            raise GraphError(
                f"`{key}` must have one row per {unit} (got shape {tuple(value.shape)} for "
                f"{number} {unit}s)."
            )
    if edges.numel() and not 0 <= int(edges.min()) <= int(edges.max()) < size:
        raise GraphError(
            f"`edge_index` must hold node numbers from 0 to {size - 1} "
            f"(got {int(edges.min())} to {int(edges.max())})."
        )
    ptr = data.get("ptr")
    sizes = ptr.diff().tolist() if isinstance(ptr, Tensor) and ptr.dim() == 1 else [size]
    if 0 in sizes:
        where = f", graph {sizes.index(0)} of {len(sizes)}" if len(sizes) > 1 else ""
        raise GraphError(
            f"A graph must have at least one node (got none{where}). Leave empty graphs out."
        )


def _check_vectors(batch: Batch) -> None:
    """Raises `GraphError` unless the graphs of a user's batch lie side by side, edges within."""
    home, ptr, edges = batch.get("batch"), batch.get("ptr"), batch.edge_index
    for name, value in (("batch", home), ("ptr", ptr)):
        is_whole = isinstance(value, Tensor) and value.dtype == torch.long and value.dim() == 1
        if not is_whole or bool((value < 0).any()):
            raise GraphError(
                f"`{name}` must be a vector of whole numbers of at least 0 (got "
                f"{type(value).__name__}). {_BUILD}"
            )
    sizes = torch.bincount(home, minlength=ptr.numel() - 1)
    counts = home.numel() == batch.num_nodes and torch.equal(sizes.cumsum(0), ptr[1:])
    if not counts or bool((home[1:] < home[:-1]).any()):
        raise GraphError(
            f"`batch` and `ptr` must count the same {batch.num_nodes} nodes, sorted by graph (got "
            f"{home.numel()} in `batch`, {ptr.tolist()[-1]} in `ptr`). {_BUILD}"
        )
    if bool((home[edges[0]].diff() < 0).any()):
        why = "`edge_index` must hold the edges of a graph side by side (got several in turn)."
        raise GraphError(f"{why} {_BUILD}")
    leaving = (home[edges[0]] != home[edges[1]]).nonzero().view(-1).tolist()
    if leaving:
        raise GraphError(
            f"`edge_index` must join nodes of one graph (got edge {leaving[0]} between two). A "
            "graph of the batch has node numbers beyond its nodes: check it alone."
        )
