"""A molecule dataset for PyG: graphs are cut from a few long tensors when they are asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch_geometric.data import Batch, Data, Dataset
from torch_geometric.data.dataset import IndexType

from nicegnn.datasets.records import PARTS, LoadReport
from nicegnn.datasets.registry import FAMILIES, Facts
from nicegnn.datasets.stacking import batch_of
from nicegnn.datasets.tensors import Tensors, graph_at, smiles_at
from nicegnn.molecule.smiles import BOND_TYPES

STAND_IN = "stand-in for B-XAIC"


@dataclass(frozen=True)
class Origin:
    """Where the graphs of a dataset come from."""

    facts: Facts
    report: LoadReport
    split: str  # name of the split
    is_stand_in: bool


class MoleculeDataset(Dataset):
    """Labelled molecules with their true explanations.

    Each item is a `Data` with

    * ``x``: one-hot atoms, float ``[V, F]``; ``edge_index`` ``[2, E]``, bond ``b`` being edges
      ``2b`` and ``2b + 1``; ``edge_attr``: one-hot bond types, float ``[E, 4]``;
    * ``y``: label, long ``[1]``; ``smiles``: empty for Mutagenicity, which has none;
    * ``edge_truth``: bool ``[E]``, the union of all alternatives, all false for label 0;
      ``edge_alternatives``: a list of lists of edges, see `generate_dataset`; neither exists for
      ``B``, ``P``, ``X``, whose truth lies on atoms;
    * ``node_truth``: bool ``[V]``, atoms of the union;
    * ``edge_annotation``: bool ``[E]``, for ``rings-count`` and ``rings-max`` only: the
      benchmark's own mask, given for both labels.

    ``train``, ``valid`` and ``test`` are datasets of the same kind, and so is any slice.
    """

    def __init__(self, tensors: Tensors, rows: Tensor, part: Tensor, origin: Origin) -> None:
        """Args: ``rows`` of the tensors ``[n]`` and the ``part`` of each ``[n]``."""
        super().__init__()
        self._tensors = tensors
        self._rows = rows
        self._part = part
        self.origin = origin
        self._views: dict[str, MoleculeDataset] = {}  # parts asked for so far
        self.vocabulary = FAMILIES[origin.facts.family].vocabulary

    @property
    def name(self) -> str:
        """The name it was loaded by."""
        return self.origin.facts.name

    @property
    def title(self) -> str:
        """The name for tables and figures; says so where the data are a stand-in."""
        return f"{self.name} ({STAND_IN})" if self.is_stand_in else self.name

    @property
    def is_stand_in(self) -> bool:
        """Whether other molecules stand in for the benchmark's own."""
        return self.origin.is_stand_in

    @property
    def facts(self) -> Facts:
        """What the dataset asks and what explains the answer."""
        return self.origin.facts

    @property
    def report(self) -> LoadReport:
        """What was read, rejected and left out."""
        return self.origin.report

    @property
    def train(self) -> MoleculeDataset:
        """The training part."""
        return self._select("train")

    @property
    def valid(self) -> MoleculeDataset:
        """The validation part."""
        return self._select("valid")

    @property
    def test(self) -> MoleculeDataset:
        """The test part."""
        return self._select("test")

    @property
    def y(self) -> Tensor:
        """Labels of all graphs, long ``[n]``."""
        return self._tensors[f"{self.name}/y"][self._rows[self._positions()]].long()

    @property
    def part(self) -> Tensor:
        """Part of each graph as its position in ``PARTS``, int8 ``[n]``."""
        return self._part[self._positions()]

    @property
    def rows(self) -> Tensor:
        """Row of each graph in its source file, ``[n]``."""
        return self._tensors["row"][self._rows[self._positions()]]

    @property
    def smiles(self) -> list[str]:
        """SMILES of all graphs."""
        return [smiles_at(self._tensors, row) for row in self._rows[self._positions()].tolist()]

    @property
    def num_classes(self) -> int:
        """Two: without and with what the task asks for."""
        return 2

    @property
    def num_node_features(self) -> int:
        """Columns of ``x``."""
        return len(self.vocabulary)

    @property
    def num_edge_features(self) -> int:
        """Columns of ``edge_attr``."""
        return len(BOND_TYPES)

    def len(self) -> int:
        """Number of graphs before any selection; PyG asks for it."""
        return int(self._rows.numel())

    def get(self, idx: int) -> Data:
        """Returns one graph; PyG asks for it."""
        row = int(self._rows[idx])
        return graph_at(
            self._tensors,
            self.name,
            row,
            self.num_node_features,
            bond_truth=self.facts.has_bond_truth,
        )

    def batch(self, positions: Tensor | None = None) -> Batch:
        """Returns graphs of this dataset, by default all, as one batch, without cutting each out.

        Args:
            positions: long ``[B]``, counted within this dataset.
        """
        chosen = self._rows[self._positions()]
        return batch_of(
            self._tensors,
            self.name,
            chosen if positions is None else chosen[positions],
            self.num_node_features,
            bond_truth=self.facts.has_bond_truth,
        )

    def flat(self) -> tuple[Tensors, str, Tensor]:
        """Returns the long tensors (see `tensors.py`), the task and the rows of all graphs."""
        return self._tensors, self.name, self._rows[self._positions()]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.title!r}, {len(self)} graphs)"

    def _positions(self) -> Tensor:
        chosen: Sequence[int] = self.indices()
        return torch.as_tensor(chosen, dtype=torch.long)

    def index_select(self, idx: IndexType) -> MoleculeDataset:
        """Returns the chosen graphs as a dataset; PyG calls it for slices, lists and masks."""
        chosen: MoleculeDataset = super().index_select(idx)
        chosen._views = {}
        return chosen

    def _select(self, part: str) -> MoleculeDataset:
        if part not in self._views:
            self._views[part] = self.index_select(self.part == PARTS.index(part))
        return self._views[part]
