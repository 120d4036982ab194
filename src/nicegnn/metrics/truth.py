"""True explanations of a batch as flat tensors: their union, and each alternative by itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from itertools import chain
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch_geometric.data import Batch, Data

from nicegnn.errors import MetricError
from nicegnn.graph.batch import to_batch
from nicegnn.graph.minibatches import gather_items
from nicegnn.metrics.ranking import graph_sum

if TYPE_CHECKING:
    from nicegnn.datasets import MoleculeDataset


@dataclass(frozen=True)
class Truth:
    """What truly explains the label of each graph of a batch.

    An alternative is a set of edges that explains the label by itself. It is stored as entries,
    one per edge, alternative after alternative in the order the dataset lists them.
    """

    edge_truth: Tensor  # directed edges in any alternative, bool [E]
    edge_batch: Tensor  # graph of each directed edge, [E]
    entry_edge: Tensor  # directed edge of each entry, [P]
    entry_alternative: Tensor  # alternative of each entry, [P]
    alternative_batch: Tensor  # graph of each alternative, [A]
    num_graphs: int  # graphs of the batch, B

    @property
    def num_edges(self) -> Tensor:
        """Directed edges of each graph, ``[B]``."""
        return torch.bincount(self.edge_batch, minlength=self.num_graphs)

    @property
    def num_true(self) -> Tensor:
        """True directed edges of each graph, ``[B]``."""
        return graph_sum(self.edge_truth.long(), self.edge_batch, self.num_graphs)

    def to(self, device: torch.device | str) -> Truth:
        """Returns the same truth on another device."""
        tensors = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "num_graphs"}
        return replace(self, **{name: value.to(device) for name, value in tensors.items()})

    @staticmethod
    def from_graphs(graphs: Data | Batch | Sequence[Data]) -> Truth:
        """Reads ``edge_truth`` (bool ``[E]``) and, where present, ``edge_alternatives``.

        Alternatives are lists of edge numbers, counted within their graph; see `MoleculeDataset`.
        Without them, the true edges of a graph are its only alternative.
        """
        batch = to_batch(graphs)
        edge_truth = batch.get("edge_truth")
        if not isinstance(edge_truth, Tensor) or edge_truth.numel() != batch.num_edges:
            raise MetricError(
                f"All graphs must have `edge_truth`, one bool per directed edge (got "
                f"{sorted(batch.keys())}). Use a dataset whose true explanations are known."
            )
        num_graphs, edge_batch = int(batch.num_graphs), batch.batch[batch.edge_index[0]]
        listed, edge_truth = batch.get("edge_alternatives"), edge_truth.bool()
        if listed is None:  # all true edges of a graph belong together
            edge = edge_truth.nonzero().view(-1)
            edge = edge[edge_batch[edge].argsort(stable=True)]
            size = torch.bincount(edge_batch[edge], minlength=num_graphs)
            home = torch.arange(num_graphs, device=edge.device)
            return _from_lists(edge_truth, edge_batch, num_graphs, edge, size, home)
        alternatives = list(chain.from_iterable(listed))
        home = torch.arange(num_graphs).repeat_interleave(torch.tensor([len(g) for g in listed]))
        size = torch.tensor([len(edges) for edges in alternatives], dtype=torch.long)
        local = torch.tensor(list(chain.from_iterable(alternatives)), dtype=torch.long)
        by_graph = edge_batch.argsort(stable=True)  # edge j of graph g is by_graph[start[g] + j]
        number = torch.bincount(edge_batch, minlength=num_graphs)
        device = edge_batch.device
        home, size, local = home.to(device), size.to(device), local.to(device)
        start = (number.cumsum(0) - number)[home].repeat_interleave(size)
        edge = by_graph[start + local]
        return _from_lists(edge_truth, edge_batch, num_graphs, edge, size, home)

    @staticmethod
    def from_dataset(dataset: MoleculeDataset, positions: Tensor | None = None) -> Truth:
        """Returns the truth of ``dataset.batch(positions)`` without making the batch."""
        if not dataset.facts.has_bond_truth:
            raise MetricError(
                f"`dataset` must have a truth on bonds (got {dataset.name!r}, whose truth lies on "
                "atoms)."
            )
        tensors, task, rows = dataset.flat()
        rows = rows if positions is None else rows[positions]
        bonds, bond_ptr = gather_items(tensors["bond_ptr"], rows)
        lists, list_ptr = gather_items(tensors[f"{task}/first"], rows)
        entries, entry_ptr = gather_items(tensors[f"{task}/list_ptr"], lists)
        home = torch.arange(rows.numel()).repeat_interleave(list_ptr.diff())
        size = entry_ptr.diff()
        bond = tensors[f"{task}/list"][entries].long() + bond_ptr[home].repeat_interleave(size)
        edge = torch.stack([2 * bond, 2 * bond + 1], dim=1).view(-1)
        edge_truth = tensors[f"{task}/bonds"][bonds].repeat_interleave(2)
        edge_batch = torch.arange(rows.numel()).repeat_interleave(2 * bond_ptr.diff())
        return _from_lists(edge_truth, edge_batch, rows.numel(), edge, 2 * size, home)


def _from_lists(
    edge_truth: Tensor, edge_batch: Tensor, num: int, edge: Tensor, size: Tensor, home: Tensor
) -> Truth:
    """Numbers the alternatives that hold any edge; an empty one explains nothing."""
    home, size = home[size > 0], size[size > 0]
    number = torch.arange(home.numel(), device=home.device)
    return Truth(edge_truth, edge_batch, edge, number.repeat_interleave(size), home, num)
