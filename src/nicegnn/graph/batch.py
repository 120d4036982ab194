"""Checked batches of graphs, and their copies for noise draws."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Batch, Data, HeteroData

from nicegnn.errors import GraphError


def to_batch(graphs: Data | Batch | Sequence[Data], finite: bool = True) -> Batch:
    """Returns a checked PyG ``Batch`` of one or many graphs; for ``finite`` see `check_graph`."""
    if isinstance(graphs, Data):
        batch = graphs if isinstance(graphs, Batch) else collate([graphs])
    elif isinstance(graphs, Sequence) and graphs and all(isinstance(g, Data) for g in graphs):
        batch = collate(graphs)
    else:
        empty = "an empty " if isinstance(graphs, Sequence) and not graphs else ""
        raise GraphError(
            "`graphs` must be a torch_geometric Data, a Batch, or a non-empty list of Data "
            f"(got {empty}{type(graphs).__name__}).{_advice(graphs)}"
        )
    check_graph(batch, finite)
    if batch.get("batch") is None or batch.get("ptr") is None:
        raise GraphError(
            "`graphs` must have the vectors `batch` and `ptr` of a Batch (got none). Build it with "
            "Batch.from_data_list([...])."
        )
    return batch


def collate(graphs: Sequence[Data]) -> Batch:
    """Joins graphs into a ``Batch`` of the attributes that all of them have."""
    for graph in graphs:
        _check_types(graph)  # PyG would put arrays into lists
    keys = [set(graph.to_dict()) for graph in graphs]  # PyG's `keys` takes ten times as long
    uneven = set.union(*keys) - set.intersection(*keys)
    try:
        return Batch.from_data_list(list(graphs), exclude_keys=sorted(uneven))
    except (RuntimeError, TypeError, ValueError) as error:
        for key in sorted(set.intersection(*keys)):
            values = [graph[key] for graph in graphs]
            if all(isinstance(value, Tensor) for value in values):
                dim = int(graphs[0].__cat_dim__(key, values[0]) or 0)
                sizes = [value.shape[:dim] + value.shape[dim:][1:] for value in values]
                other = next((n for n, size in enumerate(sizes) if size != sizes[0]), None)
                if other is not None:
                    raise GraphError(
                        f"`{key}` must have the same width in all graphs (got shape "
                        f"{tuple(values[0].shape)} in graph 0 and {tuple(values[other].shape)} in "
                        f"graph {other}). Explain graphs of one kind together."
                    ) from error
        raise GraphError(
            f"`graphs` must have the same attributes, so that they fit into one Batch (PyG says: "
            f"{error}). Explain graphs of one kind together."
        ) from error


def stackable(graphs: Any, finite: bool = True) -> Sequence[Data]:
    """Returns graphs to fit on: a dataset with a ``batch()`` method as it is, else a list."""
    if not isinstance(graphs, Data) and callable(getattr(graphs, "batch", None)):
        check_graph(graphs.batch(), finite)
        return graphs
    return graph_list(graphs, finite)


def graph_list(graphs: Any, finite: bool = True) -> list[Data]:
    """Returns the graphs of a list, dataset, loader, Data or Batch, each one checked."""
    source = getattr(graphs, "dataset", graphs) if not isinstance(graphs, HeteroData) else graphs
    has_items = hasattr(source, "__iter__") and not isinstance(source, Tensor | np.ndarray)
    if not isinstance(source, Data) and (_advice(source) or not has_items):
        raise GraphError(
            "`graphs` must be torch_geometric Data: one, a list, a dataset or a loader "
            f"(got {type(source).__name__}).{_advice(source)}"
        )
    items = [source] if isinstance(source, Data) else list(source)
    singles: list[Data] = []
    for item in items:
        if isinstance(item, Batch):
            try:
                singles += item.to_data_list()
            except Exception:  # one made by hand, or changed since
                raise GraphError(
                    "`graphs` must hold batches that can be taken apart (got a Batch made by hand, "
                    "or changed after it was joined). Build it with Batch.from_data_list([...]), "
                    "or pass a list of Data."
                ) from None
        elif isinstance(item, Data):
            singles.append(item)
        else:
            raise GraphError(
                f"`graphs` must hold torch_geometric Data objects (got {type(item).__name__}). "
                f"Pass a list of Data, a dataset, or a loader.{_advice(item)}"
            )
    if not singles:
        raise GraphError("`graphs` must hold at least one graph (got none).")
    for number, graph in enumerate(singles):
        try:
            check_graph(graph, finite)
        except GraphError as error:
            raise GraphError(f"Graph {number} of {len(singles)}: {error}") from None
    return singles


def check_graph(data: Data, finite: bool = True) -> None:
    """Raises `GraphError` unless edges and features have the right shapes and finite values.

    With ``finite=False`` features may hold NaN, because a model need not read them all.
    """
    _check_types(data)
    edge_index, x = data.get("edge_index"), data.get("x")
    if not isinstance(edge_index, Tensor) or edge_index.dim() != 2 or edge_index.size(0) != 2:
        is_tensor = isinstance(edge_index, Tensor)
        got = f"shape {tuple(edge_index.shape)}" if is_tensor else type(edge_index).__name__
        raise GraphError(
            f"`edge_index` must be a tensor of shape [2, E] (got {got}). No edges are [2, 0]; "
            "convert a sparse adjacency with torch_geometric.utils.to_edge_index()."
        )
    if edge_index.dtype != torch.long:
        raise GraphError(
            f"`edge_index` must have dtype torch.long (got {edge_index.dtype}). Use `.long()`."
        )
    num_nodes = 0 if data.num_nodes is None else data.num_nodes
    if not isinstance(num_nodes, int) or num_nodes < 0:
        raise GraphError(
            f"`num_nodes` must be a whole number (got {type(num_nodes).__name__}). Leave it out "
            "where there is `x`."
        )
    if isinstance(x, Tensor):
        if x.device != edge_index.device:
            raise GraphError(
                f"`x` must be on the device of `edge_index`, {edge_index.device} (got {x.device}). "
                "Move the whole graph with `data.to(device)`."
            )
        _check_rows("x", x, num_nodes, "node", finite)
    if edge_index.numel() and not 0 <= int(edge_index.min()) <= int(edge_index.max()) < num_nodes:
        raise GraphError(
            f"`edge_index` must hold node numbers from 0 to {num_nodes - 1} "
            f"(got {int(edge_index.min())} to {int(edge_index.max())})."
        )
    ptr = data.get("ptr")
    sizes = ptr.diff().tolist() if isinstance(ptr, Tensor) and ptr.dim() == 1 else [num_nodes]
    if 0 in sizes:
        where = f", graph {sizes.index(0)} of {len(sizes)}" if len(sizes) > 1 else ""
        raise GraphError(
            f"A graph must have at least one node (got none{where}). Leave empty graphs out."
        )
    for key in ("edge_attr", "edge_weight"):
        value = data.get(key)
        if isinstance(value, Tensor):
            _check_rows(key, value, edge_index.size(1), "edge", finite)


def replicate(batch: Batch, num: int) -> Batch:
    """Returns a batch of `num` copies of all graphs, copy after copy, for `num` noise draws."""
    out = copy.copy(batch)
    for key, value in batch._store.items():
        if key in ("num_nodes", "_num_nodes"):
            continue
        if key == "ptr" or key.endswith("_ptr"):
            out[key] = torch.cat([value[:1], *(value[1:] + k * value[-1] for k in range(num))])
        else:
            out[key] = _repeat(batch, key, value, num)
    if "num_nodes" in batch._store:
        out.num_nodes = int(batch.num_nodes) * num
        out._store.pop("_num_nodes", None)
    out._num_graphs = batch.num_graphs * num
    return out


def _repeat(batch: Batch, key: str, value: Any, num: int) -> Any:
    """Repeats one attribute as PyG would collate its copies."""
    if isinstance(value, dict):
        return {name: _repeat(batch, name, item, num) for name, item in value.items()}
    if isinstance(value, list | tuple):
        if any(isinstance(item, Tensor) for item in value):
            return [_repeat(batch, key, item, num) for item in value]
        return list(value) * num
    if not isinstance(value, Tensor) or value.dim() == 0:
        return value
    is_graph_number = key == "batch" or key.endswith("_batch")
    step: Any = batch.num_graphs if is_graph_number else batch.__inc__(key, value)
    dim = int(batch.__cat_dim__(key, value) or 0)
    if isinstance(step, int) and step == 0:
        return torch.cat([value] * num, dim=dim)
    return torch.cat([value + k * step for k in range(num)], dim=dim)


def num_spoiled(value: Any) -> int:
    """Returns how many numbers of a tensor are NaN or infinite."""
    if not isinstance(value, Tensor) or not value.is_floating_point():
        return 0
    fine = torch.isfinite(value)
    return 0 if bool(fine.all()) else int((~fine).sum())


def _check_types(data: Data) -> None:
    for key, value in data.to_dict().items():
        if isinstance(value, Tensor) and value.is_meta:
            raise GraphError(
                f"`{key}` must hold numbers (got a tensor on the device meta, without numbers). "
                "Make it on another device."
            )
    for key in ("x", "edge_index", "edge_attr", "edge_weight"):
        value = data.get(key)
        if value is None:
            continue
        if not isinstance(value, Tensor):
            raise GraphError(
                f"`{key}` must be a tensor (got {type(value).__name__}). Convert it with "
                "torch.as_tensor()."
            )
        if value.layout != torch.strided:
            raise GraphError(
                f"`{key}` must be a dense tensor (got {value.layout}). Convert it with to_dense(), "
                "a sparse adjacency with torch_geometric.utils.to_edge_index()."
            )
        if value.dim() == 0:  # PyG could not count by it
            unit = "node" if key == "x" else "edge"
            raise GraphError(f"`{key}` must have one row per {unit} (got a single number).")


def _advice(graphs: Any) -> str:
    """Returns what to do with a graph of several kinds of nodes, or a string that was passed."""
    if isinstance(graphs, HeteroData):
        return " Convert it with `to_homogeneous()`, and explain a model of such graphs."
    return " Read the graphs first." if isinstance(graphs, str | bytes) else ""


def _check_rows(key: str, value: Tensor, num: int, unit: str, finite: bool) -> None:
    """Raises `GraphError` unless a value is finite and has one row per node or edge."""
    if finite and (bad := num_spoiled(value)):
        raise GraphError(
            f"`{key}` must be finite (got {bad} NaN or infinite values). Replace them."
        )
    if value.dim() == 0 or value.size(0) != num:
        raise GraphError(
            f"`{key}` must have one row per {unit} (got shape {tuple(value.shape)} for {num} "
            f"{unit}s)."
        )
