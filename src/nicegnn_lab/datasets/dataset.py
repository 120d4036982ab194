"""Datasets by name, with splits, as PyG datasets; and their statistics."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Batch, Data, Dataset
from torch_geometric.data.dataset import IndexType

from nicegnn.errors import ConfigError
from nicegnn.molecule.splits import PARTS, random_split
from nicegnn_lab.datasets.molecule_tensors import Tensors, batch_of, smiles_at
from nicegnn_lab.datasets.prepare import prepare_dataset
from nicegnn_lab.datasets.registry import FAMILIES, Facts, facts_of
from nicegnn_lab.datasets.splits import published_split

STAND_IN = "stand-in for B-XAIC"


def load_dataset(
    name: str, *, root: str | Path | None = None, cache: str | Path | None = None
) -> MoleculeDataset:
    """Returns a dataset of `DATASETS`; the first call prepares it, later calls read the cache.

    Parts are the first published ones where the files have them, as in B-XAIC; else they are drawn
    at random, 80/10/10 as in the paper. Twins stay together. For ``root`` and ``cache`` see
    `data_files`.
    """
    facts = facts_of(name)
    family = FAMILIES[facts.family]
    tensors, files = prepare_dataset(name, root, cache)
    is_kept = tensors["is_kept"]
    rows = is_kept.nonzero().view(-1)
    twin = tensors["twin"][rows]
    part, num_moved = random_split(twin.tolist(), 0), 0
    if family.has_split:
        part = tensors["splits"][0][rows]
        if (part < 0).any():
            raise ConfigError(
                f"The published split must put every molecule of {name} into train, valid or test "
                f"(got {int((part < 0).sum())} in no part). Correct these rows."
            )
        # Published SMILES are canonical: equal strings are equal molecules, and stereoisomers,
        # which are twins, stay where they are. A few of the stand-in's are not canonical.
        same = (
            twin.tolist() if family.is_stand_in else [smiles_at(tensors, n) for n in rows.tolist()]
        )
        part, num_moved = published_split(part, same)
    report = [
        f"{is_kept.numel()} rows read, {rows.numel()} graphs kept, "
        f"{rows.numel() - torch.unique(twin).numel()} twins"
    ]
    if rows.numel() < is_kept.numel():
        report.append(f"left out: {is_kept.numel() - rows.numel()} ({family.left_out})")
    if num_moved:
        report.append(f"moved to train: {num_moved} (equal molecules in different parts)")
    return MoleculeDataset(tensors, rows, part, facts, files, "\n".join(report))


class MoleculeDataset(Dataset):
    """Labelled molecules with their true explanations.

    Each item is a `Data` with

    * ``x``: one-hot atoms, float ``[V, F]``; ``edge_index`` ``[2, E]``, bond ``b`` being edges
      ``2b`` and ``2b + 1``; ``edge_attr``: one-hot bond types, float ``[E, 4]``;
    * ``y``: label, long ``[1]``; ``smiles``: empty for Mutagenicity, which has none;
    * ``edge_truth``: bool ``[E]``, the union of all alternatives, all false for label 0;
      ``edge_alternatives``: a list of lists of edges, see `generate_dataset`;
    * ``node_truth``: bool ``[V]``, atoms of the union.

    ``train``, ``valid`` and ``test`` are datasets of the same kind, and so is any slice.
    """

    def __init__(
        self, tensors: Tensors, rows: Tensor, part: Tensor, facts: Facts, files: Any, report: str
    ) -> None:
        super().__init__()
        self._tensors = tensors
        self._rows = rows  # of the tensors, [n]
        self._part = part  # of each row, [n]
        self._views: dict[str, MoleculeDataset] = {}  # parts made so far
        self.facts = facts  # task and truth
        self.name = facts.name
        self.files = files  # SHA-256 of each file that was read
        self.report = report  # rows read and left out, in words
        family = FAMILIES[facts.family]
        self.vocabulary = family.vocabulary
        self.is_stand_in = family.is_stand_in  # whether other molecules replace the benchmark's
        self.split = "0" if family.has_split else "random, seed 0"  # its name

    @property
    def title(self) -> str:
        """The name for tables and figures; it marks a stand-in."""
        return f"{self.name} ({STAND_IN})" if self.is_stand_in else self.name

    @property
    def train(self) -> MoleculeDataset:
        return self._select("train")

    @property
    def valid(self) -> MoleculeDataset:
        return self._select("valid")

    @property
    def test(self) -> MoleculeDataset:
        return self._select("test")

    @property
    def y(self) -> Tensor:
        """Labels of all graphs, long ``[n]``."""
        return self._tensors[f"{self.name}/y"][self._chosen()].long()

    @property
    def part(self) -> Tensor:
        """Part of each graph as its position in ``PARTS``, int8 ``[n]``."""
        return self._part[list(self.indices())]

    @property
    def smiles(self) -> list[str]:

        return [smiles_at(self._tensors, row) for row in self._chosen().tolist()]

    @property
    def num_node_features(self) -> int:
        return len(self.vocabulary)

    def len(self) -> int:  # before any selection, for PyG
        return int(self._rows.numel())

    def get(self, idx: int) -> Data:  # for PyG
        return self._batch(self._rows[[idx]]).get_example(0)

    def batch(self, positions: Tensor | None = None) -> Batch:
        """Returns the graphs at ``positions`` of this dataset, ``[B]``, by default all."""
        return self._batch(self._chosen() if positions is None else self._chosen()[positions])

    def flat(self) -> tuple[Tensors, str, Tensor]:
        """Returns the tensors (see `molecule_tensors`), the task and the rows of all graphs."""
        return self._tensors, self.name, self._chosen()

    def index_select(self, idx: IndexType) -> MoleculeDataset:
        """Returns the chosen graphs as a dataset; PyG calls it for slices, lists and masks."""
        chosen: MoleculeDataset = super().index_select(idx)
        chosen._views = {}
        return chosen

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.title!r}, {len(self)} graphs)"

    def _batch(self, rows: Tensor) -> Batch:
        return batch_of(self._tensors, self.name, rows, self.num_node_features)

    def _chosen(self) -> Tensor:
        """Rows of the tensors, one for each graph of this dataset, ``[n]``."""
        return self._rows[list(self.indices())]

    def _select(self, part: str) -> MoleculeDataset:
        if part not in self._views:
            self._views[part] = self.index_select(self.part == PARTS.index(part))
        return self._views[part]
