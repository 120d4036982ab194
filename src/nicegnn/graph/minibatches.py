"""Many graphs stacked once, on the model's device, and mini-batches gathered from them by index."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Batch, Data

from nicegnn.graph.batch import collate


class GraphStack:
    """Tensors of many graphs side by side; cutting a batch out costs no loop over graphs.

    Tensors are kept: attributes per node, per directed edge or per graph. Attributes that hold
    node numbers (PyG's ``__inc__``) are renumbered like ``edge_index``.

    Args:
        graphs: list of Data, a dataset with a ``batch()`` method of its own, or a Batch.
        wanted: whether an attribute is needed; lists with an item per graph are then kept as well.
            By default all tensors are, and no lists.

    ``lost`` names attributes that a batch from the stack lacks, or holds in another form than PyG.
    """

    def __init__(
        self,
        graphs: Sequence[Data] | Batch,
        device: torch.device | str = "cpu",
        *,
        wanted: Callable[[str], bool] | None = None,
    ) -> None:
        own_way: Any = getattr(graphs, "batch", None)
        whole: Batch = graphs
        if not isinstance(graphs, Batch):
            whole = own_way() if callable(own_way) else collate(graphs)
        self._ptr: Tensor = whole.ptr.to(device)
        edge_batch = whole.batch[whole.edge_index[0]]
        counts = torch.bincount(edge_batch, minlength=whole.num_graphs)
        self._edge_ptr = torch.cat([counts.new_zeros(1), counts.cumsum(0)]).to(device)
        self._values: dict[str, tuple[str, bool, Tensor]] = {}
        self._lists: dict[str, list[Any]] = {}
        self.lost: set[str] = set()
        if bool((edge_batch.diff() < 0).any()):  # edges of a graph are not next to each other
            self.lost.add("edge_index")
        for key, value in whole.to_dict().items():
            if key in ("batch", "ptr", "num_nodes") or (wanted is not None and not wanted(key)):
                continue
            is_list = isinstance(value, list) and len(value) == whole.num_graphs
            if wanted is not None and is_list and not any(isinstance(v, Tensor) for v in value):
                self._lists[key] = value
                continue
            level = self._level(whole, key, value) if isinstance(value, Tensor) else None
            if level is not None:
                counts_nodes = bool(whole.__inc__(key, value) == whole.num_nodes)
                self._values[key] = (level, counts_nodes, value.to(device))
            if level is None or not self._is_plain(whole, key, value):
                self.lost.add(key)

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

    def edges_of(self, chosen: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the edges of the chosen graphs, and for each its graph's place in `chosen`."""
        edges, ptr = gather_items(self._edge_ptr, chosen)
        number = torch.arange(chosen.numel(), device=chosen.device)
        return edges, number.repeat_interleave(ptr.diff())

    def take(self, chosen: Tensor, *, kept: Tensor | None = None) -> Batch:
        """Returns the chosen graphs, ``[B]``, repeated or not, as one batch on the stack's device.

        With ``kept``, bool ``[E]``, only these of their edges, in the order of `edges_of`, stay.
        """
        chosen = chosen.to(self._ptr.device)
        nodes, ptr = gather_items(self._ptr, chosen)
        edges, edge_home = self.edges_of(chosen)
        if kept is not None:
            edges, edge_home = edges[kept], edge_home[kept]
        number = torch.arange(chosen.numel(), device=chosen.device)
        node_home = number.repeat_interleave(ptr.diff())
        home = {"node": node_home, "edge": edge_home, "graph": number}
        pick = {"node": nodes, "edge": edges, "graph": chosen}
        shift = ptr[:-1] - self._ptr[chosen]  # from node numbers in the stack to those in the batch
        out = Batch(batch=node_home, ptr=ptr)
        for key, (level, counts_nodes, value) in self._values.items():
            if key == "edge_index":
                out[key] = value[:, edges] + shift[edge_home]
            else:
                out[key] = value[pick[level]]
                if counts_nodes:
                    out[key] = out[key] + shift[home[level]].view(-1, *[1] * (value.dim() - 1))
        for key, items in self._lists.items():
            out[key] = [items[graph] for graph in chosen.tolist()]
        out._num_graphs = chosen.numel()
        return out

    @staticmethod
    def _is_plain(whole: Batch, key: str, value: Tensor) -> bool:
        """Whether graphs are joined along the first dimension, with node numbers or none in it."""
        if key == "edge_index":
            return True
        step = whole.__inc__(key, value)
        return (
            not key.endswith(("_batch", "_ptr"))
            and whole.__cat_dim__(key, value) in (0, -value.dim())
            and isinstance(step, int)
            and step in (0, whole.num_nodes)
        )

    @staticmethod
    def _level(whole: Batch, key: str, value: Tensor) -> str | None:
        if value.dim() == 0:
            return None
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
