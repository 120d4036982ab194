"""Taking bonds out of graphs: other edges, their attributes and all atoms stay."""

from __future__ import annotations

import copy

import torch
from torch import Tensor
from torch_geometric.data import Batch

from nicegnn.graph.batch import replicate
from nicegnn.target.frozen_model import Target


def without_edges(batch: Batch, kept: Tensor) -> Batch:
    """Returns a batch with only the kept directed edges, bool ``[E]``, and all nodes."""
    out = copy.copy(batch)
    for key, value in batch.to_dict().items():
        if key == "edge_index":
            out[key] = value[:, kept]
        elif _is_per_edge(batch, key, value):
            out[key] = value[kept]
    return out


def answers_without_edges(target: Target, batch: Batch, kept: Tensor) -> Tensor:
    """Returns the target's reading for each row of kept edges, ``[N, E]`` to ``[N, B, C]``."""
    if target.is_batched:
        copies = without_edges(replicate(batch, kept.size(0)), kept.reshape(-1))
        out = target.read(target.call(copies))
        return out.view(kept.size(0), int(batch.num_graphs), -1)
    edge_batch = batch.batch[batch.edge_index[0]]
    columns = []
    for number, graph in enumerate(batch.to_data_list()):
        single, rows = Batch.from_data_list([graph]), kept[:, edge_batch == number]
        columns.append(
            torch.cat([target.read(target.call(without_edges(single, row))) for row in rows])
        )
    return torch.stack(columns, dim=1)


def _is_per_edge(batch: Batch, key: str, value: object) -> bool:
    if not isinstance(value, Tensor) or value.dim() == 0 or value.size(0) != batch.num_edges:
        return False
    return key.startswith("edge_") or bool(batch.is_edge_attr(key))
