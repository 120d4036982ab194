"""True explanations of a batch as flat tensors: their union, and each alternative by itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from itertools import chain
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch_geometric.data import Batch, Data

from nicegnn.graph.batch import to_batch
from nicegnn.graph.minibatches import gather_items
from nicegnn.metrics.errors import MetricError
from nicegnn.metrics.ranking import graph_sum

if TYPE_CHECKING:
    from nicegnn.datasets import MoleculeDataset


@dataclass(frozen=True)
class Truth:
    """What truly explains the label of each graph of a batch.

    An alternative is a set of edges that explains the label by itself. It is stored as entries,
    one per edge, alternative after alternative in the order the dataset lists them.

    Attributes:
        edge_truth: directed edges in any alternative, bool ``[E]``.
        edge_batch: graph of each directed edge, ``[E]``.
        entry_edge: directed edge of each entry, ``[P]``.
        entry_alternative: alternative of each entry, ``[P]``.
        alternative_batch: graph of each alternative, ``[A]``.
        num_graphs: graphs of the batch, B.
    """

    edge_truth: Tensor
    edge_batch: Tensor
    entry_edge: Tensor
    entry_alternative: Tensor
    alternative_batch: Tensor
    num_graphs: int

    @property
    def num_edges(self) -> Tensor:
        """Directed edges of each graph, ``[B]``."""
        return torch.bincount(self.edge_batch, minlength=self.num_graphs)

    @property
    def num_true(self) -> Tensor:
        """True directed edges of each graph, ``[B]``."""
        return graph_sum(self.edge_truth.long(), self.edge_batch, self.num_graphs)

    @property
    def num_alternatives(self) -> Tensor:
        """Alternatives of each graph, ``[B]``."""
        return torch.bincount(self.alternative_batch, minlength=self.num_graphs)

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
                "Expected graphs with `edge_truth`, one bool per directed edge (got "
                f"{sorted(batch.keys())}); agreement with the truth needs datasets that have one."
            )
        num_graphs = int(batch.num_graphs)
        edge_batch = batch.batch[batch.edge_index[0]]
        listed = batch.get("edge_alternatives")
        if listed is None:
            return _only_union(edge_truth.bool(), edge_batch, num_graphs)
        alternatives = list(chain.from_iterable(listed))
        home = torch.arange(num_graphs).repeat_interleave(torch.tensor([len(g) for g in listed]))
        size = torch.tensor([len(edges) for edges in alternatives], dtype=torch.long)
        local = torch.tensor(list(chain.from_iterable(alternatives)), dtype=torch.long)
        by_graph = edge_batch.argsort(stable=True)  # edge j of graph g is by_graph[start[g] + j]
        number = torch.bincount(edge_batch, minlength=num_graphs)
        device = edge_batch.device
        home, size, local = home.to(device), size.to(device), local.to(device)
        start = (number.cumsum(0) - number)[home].repeat_interleave(size)
        return _from_lists(
            edge_truth.bool(), edge_batch, num_graphs, by_graph[start + local], size, home
        )

    @staticmethod
    def from_dataset(dataset: MoleculeDataset, positions: Tensor | None = None) -> Truth:
        """Returns the truth of ``dataset.batch(positions)`` without making the batch."""
        if not dataset.facts.has_bond_truth:
            raise MetricError(
                f"The truth of {dataset.name!r} lies on atoms; agreement of bonds is not defined."
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
        return _from_lists(
            tensors[f"{task}/bonds"][bonds].repeat_interleave(2),
            torch.arange(rows.numel()).repeat_interleave(2 * bond_ptr.diff()),
            rows.numel(),
            edge,
            2 * size,
            home,
        )


def _only_union(edge_truth: Tensor, edge_batch: Tensor, num_graphs: int) -> Truth:
    """Truth of graphs without alternatives: all true edges of a graph belong together."""
    edge = edge_truth.nonzero().view(-1)
    edge = edge[edge_batch[edge].argsort(stable=True)]
    size = torch.bincount(edge_batch[edge], minlength=num_graphs)
    home = torch.arange(num_graphs, device=edge.device)
    return _from_lists(edge_truth, edge_batch, num_graphs, edge, size, home)


def _from_lists(
    edge_truth: Tensor,
    edge_batch: Tensor,
    num_graphs: int,
    edge: Tensor,
    size: Tensor,
    home: Tensor,
) -> Truth:
    """Numbers the alternatives that hold any edge; an empty one explains nothing."""
    home, size = home[size > 0], size[size > 0]
    number = torch.arange(home.numel(), device=home.device)
    return Truth(edge_truth, edge_batch, edge, number.repeat_interleave(size), home, num_graphs)
