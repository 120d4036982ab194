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

    The stack keeps attributes with a row for each node, edge or graph, and lists with an item per
    graph. Node numbers (PyG's ``__inc__``) are renumbered like those of ``edge_index``.

    Args:
        graphs: list of Data, a dataset with a ``batch()`` method of its own, or a Batch.
        wanted: whether to keep an attribute, by default all.

    ``lost`` names all other attributes. If there are any, PyG joins the chosen graphs anew for each
    batch, which is slower; from a Batch that PyG cannot split they are missing.
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
        slices: dict[str, Any] = getattr(whole, "_slice_dict", None) or {}
        self._values: dict[str, tuple[str, bool, Tensor, int]] = {}  # with the dimension of rows
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
            elif (level := self._level(whole, key, value, slices.get(key))) is None:
                self.lost.add(key)
            else:
                counts_nodes = bool(whole.__inc__(key, value) == whole.num_nodes)
                dim = 0 if key == "edge_index" else whole.__cat_dim__(key, value)
                self._values[key] = (level, counts_nodes, value.to(device).movedim(dim, 0), dim)
        self._source: Any = None  # graphs for PyG to join, if attributes are lost
        if self.lost and not callable(own_way):
            # a Batch whose edges are mixed was changed after it was joined: its slices are old
            is_as_joined = "edge_index" not in self.lost and self.lost <= set(slices)
            can_split = not isinstance(graphs, Batch) or is_as_joined
            self._source = graphs if can_split else None

    def _level(self, whole: Batch, key: str, value: Any, start: Any) -> str | None:
        """Returns what an attribute has rows for, or None if it cannot be cut.

        ``start`` is the first row of each graph, where that is known.
        """
        if key == "edge_index":
            return "edge"
        if not isinstance(value, Tensor) or value.dim() == 0 or key.endswith(("_batch", "_ptr")):
            return None
        step, dim = whole.__inc__(key, value), whole.__cat_dim__(key, value)
        if not isinstance(step, int) or step not in (0, whole.num_nodes) or dim is None:
            return None
        length = value.size(dim)
        levels = {
            "edge": (
                self._edge_ptr,
                whole.is_edge_attr(key) or (key[:5] == "edge_" and length == whole.num_edges),
            ),
            "node": (self._ptr, whole.is_node_attr(key)),
            "graph": (torch.arange(len(self) + 1), length == whole.num_graphs),
        }
        for level in ("edge", "node", "graph") if key[:5] == "edge_" else ("node", "edge", "graph"):
            pointer, fits = levels[level]
            if fits and (start is None or torch.equal(pointer.cpu(), torch.as_tensor(start).cpu())):
                return level
        return None

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

    def nodes_of(self, chosen: Tensor) -> Tensor:
        """Returns the nodes of the chosen graphs."""
        return gather_items(self._ptr, chosen)[0]

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
        home = {"node": number.repeat_interleave(ptr.diff()), "edge": edge_home, "graph": number}
        shift = ptr[:-1] - self._ptr[chosen]  # from node numbers in the stack to those in the batch
        edge_index = self._values["edge_index"][2][:, edges] + shift[edge_home]
        out = self.cut(chosen, nodes, edges, home["node"], edge_index)
        for key, (level, counts_nodes, value, dim) in self._values.items():
            if counts_nodes and key != "edge_index":
                step = shift[home[level]].view(-1, *[1] * (value.dim() - 1))
                out[key] = (out[key].movedim(dim, 0) + step).movedim(0, dim)
        return out

    @property
    def can_cut(self) -> bool:
        """Whether `cut` keeps all attributes, as none of them counts nodes."""
        values = self._values.items()
        return not self.lost and not any(v[1] for key, v in values if key != "edge_index")

    def cut(
        self, graph: Tensor, node: Tensor, edge: Tensor, node_piece: Tensor, edge_index: Tensor
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
        for key, (level, _, value, dim) in self._values.items():
            is_own = key != "edge_index"
            out[key] = value[pick[level]].movedim(0, dim) if is_own else edge_index
        for key, items in self._lists.items():
            out[key] = [items[number] for number in graph.tolist()]
        out._num_graphs = graph.numel()
        return out


def gather_items(pointer: Tensor, chosen: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the positions of all items of the chosen graphs, and the start of each graph."""
    size = pointer[chosen + 1] - pointer[chosen]
    end = torch.cat([size.new_zeros(1), size.cumsum(0)])
    shift = (pointer[chosen] - end[:-1]).repeat_interleave(size)
    return torch.arange(shift.numel(), device=shift.device) + shift, end
