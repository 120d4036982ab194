"""Many graphs stacked once, on the model's device, and mini-batches gathered from them by index."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Batch, Data

from nicegnn.graphs import collate


class GraphStack:
    """Tensors of many graphs side by side; cutting a batch out costs no loop over graphs.

    Only tensors are kept: attributes per node, per directed edge or per graph. Attributes that
    hold node numbers (PyG's ``__inc__``) are renumbered like ``edge_index``.

    Args:
        graphs: list of Data, a dataset with a ``batch()`` method of its own, or a Batch.
    """

    def __init__(self, graphs: Sequence[Data] | Batch, device: torch.device | str = "cpu") -> None:
        own_way: Any = getattr(graphs, "batch", None)
        whole: Batch = graphs
        if not isinstance(graphs, Batch):
            whole = own_way() if callable(own_way) else collate(graphs)
        self._ptr: Tensor = whole.ptr.to(device)
        edge_batch = whole.batch[whole.edge_index[0]]
        counts = torch.bincount(edge_batch, minlength=whole.num_graphs)
        self._edge_ptr = torch.cat([counts.new_zeros(1), counts.cumsum(0)]).to(device)
        self._values: dict[str, tuple[str, bool, Tensor]] = {}
        for key, value in whole.to_dict().items():
            if key not in ("batch", "ptr") and isinstance(value, Tensor) and value.dim() > 0:
                level = self._level(whole, key, value)
                if level is not None:
                    counts_nodes = whole.__inc__(key, value) == whole.num_nodes
                    self._values[key] = (level, bool(counts_nodes), value.to(device))

    def __len__(self) -> int:
        return self._ptr.numel() - 1

    @property
    def num_nodes(self) -> Tensor:
        """Nodes of each graph, ``[G]``."""
        return self._ptr.diff()

    @property
    def num_edges(self) -> Tensor:
        """Directed edges of each graph, ``[G]``."""
        return self._edge_ptr.diff()

    def take(self, chosen: Tensor) -> Batch:
        """Returns the chosen graphs, ``[B]``, as one batch on the stack's device."""
        chosen = chosen.to(self._ptr.device)
        nodes, ptr = gather_items(self._ptr, chosen)
        edges, edge_ptr = gather_items(self._edge_ptr, chosen)
        number = torch.arange(chosen.numel(), device=chosen.device)
        home = {
            "node": number.repeat_interleave(ptr.diff()),
            "edge": number.repeat_interleave(edge_ptr.diff()),
            "graph": number,
        }
        pick = {"node": nodes, "edge": edges, "graph": chosen}
        shift = ptr[:-1] - self._ptr[chosen]  # from node numbers in the stack to those in the batch
        out = Batch(batch=home["node"], ptr=ptr)
        for key, (level, counts_nodes, value) in self._values.items():
            if key == "edge_index":
                out[key] = value[:, edges] + shift[home["edge"]]
            else:
                part = value[pick[level]]
                if counts_nodes:
                    moved = shift[home[level]].view(-1, *[1] * (part.dim() - 1))
                    part = part + moved
                out[key] = part
        out._num_graphs = chosen.numel()
        return out

    @staticmethod
    def _level(whole: Batch, key: str, value: Tensor) -> str | None:
        if key == "edge_index" or (key.startswith("edge_") and value.size(0) == whole.num_edges):
            return "edge"
        if whole.is_node_attr(key):
            return "node"
        if whole.is_edge_attr(key):
            return "edge"
        return "graph" if value.size(0) == whole.num_graphs else None


def gather_items(pointer: Tensor, chosen: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the positions of all items of the chosen graphs, and where each graph begins."""
    size = pointer[chosen + 1] - pointer[chosen]
    end = torch.cat([size.new_zeros(1), size.cumsum(0)])
    shift = (pointer[chosen] - end[:-1]).repeat_interleave(size)
    return torch.arange(shift.numel(), device=shift.device) + shift, end
