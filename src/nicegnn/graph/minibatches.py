"""Many graphs stacked once on the model's device, and mini-batches taken from the stack."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch_geometric.data import Batch, Data

from nicegnn.graph.batch import collate


class GraphStack:
    """Tensors of many graphs side by side; taking a batch needs no loop over graphs.

    The stack keeps tensors and lists with an item per graph; ``lost`` names all others. Node
    numbers (PyG's ``__inc__``) are renumbered like those of ``edge_index``.

    Args:
        graphs: list of Data, a dataset with a ``batch()`` method of its own, or a Batch.
        wanted: whether to keep an attribute, by default all.
    """

    def __init__(
        self,
        graphs: Sequence[Data] | Batch,
        device: torch.device | str = "cpu",
        *,
        wanted: Callable[[str], bool] | None = None,
    ) -> None:
        whole: Any = graphs
        if not isinstance(graphs, Batch):
            own_way: Any = getattr(graphs, "batch", None)
            whole = own_way() if callable(own_way) else collate(graphs)
        edge_batch = whole.batch[whole.edge_index[0]]
        counts = torch.bincount(edge_batch, minlength=whole.num_graphs)
        starts = {"node": whole.ptr, "edge": nn.functional.pad(counts.cumsum(0), (1, 0))}
        starts["graph"] = torch.arange(whole.num_graphs + 1, device=counts.device)
        slices: dict[str, Any] = getattr(whole, "_slice_dict", None) or {}
        self._values: dict[str, Value] = {}
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
            elif (found := _rows_of(whole, key, value, slices.get(key), starts)) is None:
                self.lost.add(key)
            else:
                start, rows = found.start.to(device), found.rows.to(device)
                self._values[key] = found._replace(rows=rows, start=start)
        self._ptr, self._edge_ptr = starts["node"].to(device), starts["edge"].to(device)
        self.num_nodes, self.num_edges = self._ptr.diff(), self._edge_ptr.diff()  # [G] each
        self.is_complete = not self.lost  # whether batches have all attributes of their graphs

    def __len__(self) -> int:
        return self._ptr.numel() - 1

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
        nodes, ptr = gather_items(self._ptr, chosen)
        edges, edge_home = self.edges_of(chosen)
        if kept is not None:
            edges, edge_home = edges[kept], edge_home[kept]
        number = torch.arange(chosen.numel(), device=chosen.device)
        shift = ptr[:-1] - self._ptr[chosen]  # from node numbers in the stack to those in the batch
        edge_index = self._values["edge_index"].rows[edges].t() + shift[edge_home]
        out = self.cut(chosen, nodes, edges, number.repeat_interleave(ptr.diff()), edge_index)
        for key, value in self._values.items():
            if value.counts_nodes and key != "edge_index":
                size = value.start.diff()[chosen]
                step = shift.repeat_interleave(size) if value.level != "edge" else shift[edge_home]
                rows = out[key].movedim(value.dim, 0)
                step = step.view(-1, *[1] * (rows.dim() - 1))
                out[key] = (rows + step).movedim(0, value.dim)
        return out

    @property
    def can_cut(self) -> bool:
        """Whether `cut` keeps all attributes, as none of them counts nodes."""
        numbers = [key for key, value in self._values.items() if value.counts_nodes]
        return self.is_complete and numbers == ["edge_index"]

    def cut(
        self, graph: Tensor, node: Tensor, edge: Tensor, node_piece: Tensor, edge_index: Tensor
    ) -> Batch:
        """Returns a batch of pieces: some nodes and edges of a graph each.

        ``graph``, ``[K]``, is that of each piece; ``node`` and ``edge``, ``[V]`` and ``[E]``, are
        those of the stack behind the pieces; ``node_piece``, ``[V]``, rises; ``edge_index`` counts
        nodes of the pieces.
        """
        size = torch.bincount(node_piece, minlength=graph.numel())
        out = Batch(batch=node_piece, ptr=nn.functional.pad(size.cumsum(0), (1, 0)))
        pick, starts = {"node": node, "edge": edge, "graph": graph}, dict[str, Tensor]()
        for key, value in self._values.items():
            if key == "edge_index":
                out[key] = edge_index
                continue
            rows = pick.get(value.level)
            if rows is None:
                rows, starts[key] = gather_items(value.start, graph)
            out[key] = value.rows[rows].movedim(0, value.dim)
        for key, items in self._lists.items():
            out[key] = [items[number] for number in graph.tolist()]
        out._num_graphs, out._slice_dict = graph.numel(), starts
        return out


class Value(NamedTuple):
    """A tensor of all graphs."""

    level: str  # what it has rows for: "node", "edge", "graph", or "other"
    start: Tensor  # first row of each graph, [G + 1]
    rows: Tensor  # with rows first
    dim: int  # dimension that they have in a graph
    counts_nodes: bool  # whether it holds numbers of nodes


def _rows_of(
    whole: Batch, key: str, value: Any, start: Any, starts: Mapping[str, Tensor]
) -> Value | None:
    """Returns an attribute by rows, or None if it cannot be cut.

    ``start`` is the first row of each graph, where that is known.
    """
    if not isinstance(value, Tensor) or value.dim() == 0 or key.endswith(("_batch", "_ptr")):
        return None
    step, dim = whole.__inc__(key, value), whole.__cat_dim__(key, value) or 0
    if isinstance(step, Tensor) or step not in (0, whole.num_nodes):
        return None
    counts_nodes = step == whole.num_nodes
    rows, known = value.movedim(dim, 0), None if start is None else torch.as_tensor(start)
    for level in sorted(starts, key=lambda level: (level == "edge") != key.startswith("edge_")):
        own = starts[level]
        fits = own[-1] == len(rows) if known is None else torch.equal(own.cpu(), known.cpu())
        if fits or (key == "edge_index" and level == "edge"):
            return Value(level, own, rows, dim, counts_nodes)
    return None if known is None else Value("other", known, rows, dim, counts_nodes)


def gather_items(pointer: Tensor, chosen: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the positions of all items of the chosen graphs, and the start of each graph."""
    size = pointer[chosen + 1] - pointer[chosen]
    end = nn.functional.pad(size.cumsum(0), (1, 0))
    shift = (pointer[chosen] - end[:-1]).repeat_interleave(size)
    return torch.arange(shift.numel(), device=shift.device) + shift, end
