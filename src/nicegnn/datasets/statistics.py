r"""Size, balance and share of true edges of a dataset.

.. math:: r(G) = |E_{GT}(G)| \, / \, |E(G)|

The share of true edges depends on which edges count as true and over which graphs it is averaged;
`Statistics` has every reading.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from nicegnn.datasets.dataset import MoleculeDataset


@dataclass(frozen=True)
class Share:
    """Mean and standard deviation over graphs, in percent; nan without graphs."""

    mean: float
    std: float

    def __str__(self) -> str:
        return f"{self.mean:.2f} ± {self.std:.2f}"


@dataclass(frozen=True)
class Statistics:
    """Figures of a dataset or of a part of it; edges are directed, two for each bond."""

    num_graphs: int
    mean_nodes: float
    mean_edges: float
    num_positives: int
    union: Share  # of edges in the union of all alternatives, over all graphs
    union_positives: Share  # the same over label 1
    first: Share  # of edges in the first alternative, over all graphs
    annotation: Share | None  # of edges that the benchmark marks, where it has such a mask

    @property
    def positive_ratio(self) -> float:
        """Graphs of label 1 in percent."""
        return 100 * self.num_positives / self.num_graphs if self.num_graphs else float("nan")


def dataset_statistics(dataset: MoleculeDataset) -> Statistics:
    """Returns the figures of a dataset, a part or a slice."""
    tensors, task, rows = dataset.flat()
    num_atoms, num_bonds = (tensors[f"{item}_ptr"].diff()[rows] for item in ("atom", "bond"))
    y = tensors[f"{task}/y"][rows]

    def share(part: Tensor) -> Tensor:
        return part[rows].double() / num_bonds.clamp(min=1)  # a lone atom has no bond

    union = share(_marked(tensors[f"{task}/bonds"], tensors["bond_ptr"]))
    start, sizes = tensors[f"{task}/first"], tensors[f"{task}/list_ptr"].diff()
    of_first = torch.cat([sizes, sizes.new_zeros(1)])[start[:-1]]
    first = share(torch.where(start.diff() > 0, of_first, 0))  # 0 without an alternative
    mask = tensors.get(f"{task}/annotation")
    marked = None if mask is None else _summary(share(_marked(mask, tensors["bond_ptr"])))
    return Statistics(
        num_graphs=rows.numel(),
        mean_nodes=float(num_atoms.double().mean()),
        mean_edges=2 * float(num_bonds.double().mean()),
        num_positives=int(y.sum()),
        union=_summary(union),
        union_positives=_summary(union[y == 1]),
        first=_summary(first),
        annotation=marked,
    )


def _marked(mask: Tensor, pointer: Tensor) -> Tensor:
    """Number of marked bonds of each graph, ``[N]``."""
    total = torch.cat([torch.zeros(1, dtype=torch.long), mask.long().cumsum(0)])
    return total[pointer].diff()


def _summary(share: Tensor) -> Share:
    std = float(share.std(correction=0)) if len(share) else torch.nan
    return Share(100 * float(share.mean()), 100 * std)
