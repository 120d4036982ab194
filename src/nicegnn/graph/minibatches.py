"""Many graphs stacked once on the model's device, and mini-batches taken from the stack."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Batch, Data

from nicegnn.graph.batch import collate


class GraphStack:
    """Tensors of many graphs side by side; taking a batch needs no loop over graphs.

    The stack keeps tensors that PyG joins along their first dimension, and lists with an item per
    graph. Node numbers (PyG's ``__inc__``) are renumbered like those of ``edge_index``.

    Args:
        graphs: list of Data, a dataset with a ``batch()`` method of its own, or a Batch.
        wanted: whether to keep an attribute, by default all.

    ``lost`` names attributes that cannot be cut out of the stack. If there are any, PyG joins the
    chosen graphs anew for each batch, which is slower; from a Batch that PyG cannot split they are
    missing.
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
        slices: Any = getattr(whole, "_slice_dict", None) or getattr(whole, "_own_ptr", {})
        self._own_ptr: dict[str, Tensor] = {}  # first entry of each graph in other attributes
        self._values: dict[str, tuple[str, bool, Tensor]] = {}
        self._lists: dict[str, list[Any]] = {}
        self.lost: set[str] = set()
        if bool((edge_batch.diff() < 0).any()):  # edges of a graph are not next to each other
            self.lost.add("edge_index")
        for key, value in whole.to_dict().items():
            if key in ("batch", "ptr", "num_nodes") or (wanted is not None and not wanted(key)):
                continue
            is_list = isinstance(value, list) and len(value) == whole.num_graphs
            if is_list and not any(isinstance(v, Tensor) for v in value):
                self._lists[key] = value
                continue
            level = None
            if isinstance(value, Tensor) and value.dim() > 0:
                level = self._level(whole, key, value, slices.get(key))
            if level is None or not self._is_plain(whole, key, value):
                self.lost.add(key)
            if level is None or (level == "own" and key in self.lost):
                continue
            counts_nodes = bool(whole.__inc__(key, value) == whole.num_nodes)
            self._values[key] = (level, counts_nodes, value.to(device))
            if level == "own":
                self._own_ptr[key] = torch.as_tensor(slices[key], device=device)
        self._source: Any = None  # graphs for PyG to join, if attributes are lost
        if self.lost and not callable(own_way):
            # a Batch whose edges are mixed was changed after it was joined: its slices are old
            is_as_joined = "edge_index" not in self.lost and self.lost <= set(slices)
            can_split = not isinstance(graphs, Batch) or is_as_joined
            self._source = graphs if can_split else None

    def __len__(self) -> int:
        return self._ptr.numel() - 1

    @property
    def is_complete(self) -> bool:
        """Whether batches have all attributes of their graphs."""
        return not self.lost or self._source is not None

    @property
    def num_nodes(self) -> Tensor:
        """Nodes of each graph, ``[G]``."""
        return self._ptr.diff()

    @property
    def num_edges(self) -> Tensor:
        """Directed edges of each graph, ``[G]``."""
        return self._edge_ptr.diff()

    def edges_of(self, chosen: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the edges of the chosen graphs, and for each edge the place of its graph."""
        edges, ptr = gather_items(self._edge_ptr, chosen)
        number = torch.arange(chosen.numel(), device=chosen.device)
        return edges, number.repeat_interleave(ptr.diff())

    def take(self, chosen: Tensor, *, kept: Tensor | None = None) -> Batch:
        """Returns the chosen graphs, ``[B]``, as one batch; a graph may be chosen several times.

        ``kept``, bool ``[E]`` in the order of `edges_of`, drops the other edges.
        """
        chosen = chosen.to(self._ptr.device)
        if isinstance(self._source, Batch):
            self._source = self._source.to_data_list()
        if self._source is not None and kept is None:
            return collate([self._source[graph] for graph in chosen.tolist()]).to(chosen.device)
        nodes, ptr = gather_items(self._ptr, chosen)
        edges, edge_home = self.edges_of(chosen)
        if kept is not None:
            edges, edge_home = edges[kept], edge_home[kept]
        number = torch.arange(chosen.numel(), device=chosen.device)
        node_home = number.repeat_interleave(ptr.diff())
        home = {"node": node_home, "edge": edge_home, "graph": number}
        pick = {"node": nodes, "edge": edges, "graph": chosen}
        own_ptr: dict[str, Tensor] = {}
        for key, pointer in self._own_ptr.items():
            pick[key], own_ptr[key] = gather_items(pointer, chosen)
            home[key] = number.repeat_interleave(own_ptr[key].diff())
        shift = ptr[:-1] - self._ptr[chosen]  # from node numbers in the stack to those in the batch
        out = Batch(batch=node_home, ptr=ptr)
        for key, (level, counts_nodes, value) in self._values.items():
            if key == "edge_index":
                out[key] = value[:, edges] + shift[edge_home]
            else:
                level = key if level == "own" else level
                out[key] = value[pick[level]]
                if counts_nodes:
                    out[key] = out[key] + shift[home[level]].view(-1, *[1] * (value.dim() - 1))
        for key, items in self._lists.items():
            out[key] = [items[graph] for graph in chosen.tolist()]
        out._num_graphs = chosen.numel()
        out._own_ptr = own_ptr  # so that the batch can be cut again
        return out

    @property
    def can_cut(self) -> bool:
        """Whether `cut` keeps all attributes: those of nodes, edges and graphs."""
        values = [v for key, v in self._values.items() if key != "edge_index"]
        return not self.lost and all(not nodes and level != "own" for level, nodes, _ in values)

    def cut(
        self,
        graph: Tensor,
        node: Tensor,
        edge: Tensor,
        node_piece: Tensor,
        edge_index: Tensor,
    ) -> Batch:
        """Returns a batch of pieces: some nodes and edges of a graph each.

        Args:
            graph: graph of each piece, ``[K]``.
            node, edge: node and edge of the stack behind each of the pieces, ``[V]`` and ``[E]``.
            node_piece: piece of each node, rising, ``[V]``.
            edge_index: edges by nodes of the pieces, ``[2, E]``.
        """
        size = torch.bincount(node_piece, minlength=graph.numel())
        out = Batch(batch=node_piece, ptr=torch.cat([size.new_zeros(1), size.cumsum(0)]))
        pick = {"node": node, "edge": edge, "graph": graph}
        for key, (level, _, value) in self._values.items():
            out[key] = edge_index if key == "edge_index" else value[pick[level]]
        for key, items in self._lists.items():
            out[key] = [items[number] for number in graph.tolist()]
        out._num_graphs = graph.numel()
        return out

    @staticmethod
    def _is_plain(whole: Batch, key: str, value: Tensor) -> bool:
        """Whether PyG joins it along the first dimension and changes at most its node numbers."""
        if key == "edge_index":
            return True
        step = whole.__inc__(key, value)
        return (
            not key.endswith(("_batch", "_ptr"))
            and whole.__cat_dim__(key, value) in (0, -value.dim())
            and isinstance(step, int)
            and step in (0, whole.num_nodes)
        )

    def _level(self, whole: Batch, key: str, value: Tensor, start: Any) -> str | None:
        """Returns what an attribute has entries of; ``start`` is each graph's first, if known."""
        level = None
        if key == "edge_index" or (key.startswith("edge_") and value.size(0) == whole.num_edges):
            level = "edge"
        elif whole.is_node_attr(key):
            level = "node"
        elif whole.is_edge_attr(key):
            level = "edge"
        elif value.size(0) == whole.num_graphs:
            level = "graph"
        if start is None or key == "edge_index":
            return level
        start = torch.as_tensor(start, device=self._ptr.device)
        starts = {
            "node": self._ptr,
            "edge": self._edge_ptr,
            "graph": torch.arange(len(self) + 1, device=start.device),
        }
        if level is not None and torch.equal(starts[level], start):
            return level
        fits = int(start[-1]) == value.size(0) and start.numel() == len(self) + 1
        return "own" if fits else level


def gather_items(pointer: Tensor, chosen: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the positions of all items of the chosen graphs, and the start of each graph."""
    size = pointer[chosen + 1] - pointer[chosen]
    end = torch.cat([size.new_zeros(1), size.cumsum(0)])
    shift = (pointer[chosen] - end[:-1]).repeat_interleave(size)
    return torch.arange(shift.numel(), device=shift.device) + shift, end
