"""Many molecules as a few long tensors, from which graphs are cut.

With N graphs, V atoms and M bonds in all, the tensors are

* ``atoms`` ``[V]`` (column of ``x``), ``bonds`` ``[M, 2]``, ``types`` ``[M]`` (column of
  ``edge_attr``), and where each graph begins: ``atom_ptr``, ``bond_ptr`` ``[N + 1]``;
* ``smiles`` (bytes) with ``smiles_ptr``, ``row`` ``[N]``, ``is_kept`` ``[N]``,
  ``splits`` ``[K, N]`` (codes of `PARTS`, -1 for none);
* for every task ``T``: ``T/y`` ``[N]``, ``T/atoms`` ``[V]``, ``T/bonds`` ``[M]`` (the union), the
  alternatives of graph ``i`` as rows ``T/first[i]`` to ``T/first[i + 1]`` of a list of bond lists
  (``T/list_ptr``, ``T/list``), and ``T/annotation`` ``[M]`` where the benchmark has one.
"""

from array import array
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Batch

from nicegnn.graph.minibatches import gather_items
from nicegnn.molecule.smiles import MoleculeError, graph_tensors
from nicegnn.molecule.splits import PARTS
from nicegnn_lab.datasets.graph_tables import atom_columns, check_bonds
from nicegnn_lab.datasets.readers import Record
from nicegnn_lab.datasets.rules import MoleculeTruth

Tensors = Mapping[str, Tensor]


class TensorBuilder:
    """Builds the tensors described above, record by record."""

    def __init__(self, vocabulary: Sequence[str]) -> None:
        self.vocabulary = vocabulary
        self._columns: dict[str, array[int]] = {}

    def add(self, record: Record) -> None:
        """Appends a molecule; after a `MoleculeError` the tensors are of no use."""
        self._extend("atoms", "b", atom_columns(record.atoms, self.vocabulary))
        check_bonds(record.bonds, len(record.atoms))
        self._extend("bonds", "i", (end for u, v, _ in record.bonds for end in (u, v)))
        self._extend("types", "b", (t - 1 for _, _, t in record.bonds))
        self._extend("smiles", "B", record.smiles.encode())
        self._point("atom_ptr", "atoms")
        self._point("bond_ptr", "types")
        self._point("smiles_ptr", "smiles")
        self._extend("row", "q", [record.row])
        self._extend("is_kept", "b", [record.is_kept])
        parts = (PARTS.index(part) if part in PARTS else -1 for part in record.splits)
        self._extend("splits", "b", parts)
        for name, truth in record.tasks.items():
            self._add_truth(name, truth, len(record.atoms), len(record.bonds))

    def _add_truth(self, name: str, truth: MoleculeTruth, num_atoms: int, num_bonds: int) -> None:
        if truth.label not in (0, 1):
            raise MoleculeError(f"Label {name!r} must be 0 or 1 (got {truth.label}).")
        self._extend(f"{name}/y", "b", [truth.label])
        self._extend(f"{name}/atoms", "b", _mask(truth.atoms, num_atoms, "atoms"))
        self._extend(f"{name}/bonds", "b", _mask(truth.union, num_bonds, "bonds"))
        self._extend(f"{name}/list", "i", ())
        self._columns.setdefault(f"{name}/list_ptr", array("q", [0]))
        for bonds in truth.alternatives:
            self._extend(f"{name}/list", "i", sorted(bonds))
            self._point(f"{name}/list_ptr", f"{name}/list")
        first = self._columns.setdefault(f"{name}/first", array("q", [0]))
        first.append(len(self._columns[f"{name}/list_ptr"]) - 1)
        if truth.annotation is not None:
            mask = _mask(truth.annotation, num_bonds, "bonds")
            self._extend(f"{name}/annotation", "b", mask)

    def _extend(self, key: str, code: str, values: Iterable[int]) -> None:
        self._columns.setdefault(key, array(code)).extend(values)

    def _point(self, key: str, column: str) -> None:
        self._columns.setdefault(key, array("q", [0])).append(len(self._columns[column]))

    def finish(self) -> dict[str, Tensor]:
        """Returns the tensors of at least one molecule."""
        tensors = {key: torch.from_numpy(np.array(column)) for key, column in self._columns.items()}
        tensors["bonds"] = tensors["bonds"].view(-1, 2)
        num = tensors["row"].numel()
        tensors["splits"] = tensors["splits"].view(num, -1).t().contiguous()
        for key, value in tensors.items():
            if key.endswith(("/atoms", "/bonds", "/annotation", "is_kept")):
                tensors[key] = value.view(torch.bool)
        return tensors


def _mask(members: Collection[int], size: int, what: str) -> list[bool]:
    outside = [member for member in members if not 0 <= member < size]
    if outside:
        raise MoleculeError(
            f"True {what} must lie between 0 and {size - 1} (got {outside[0]}). Correct them."
        )
    return [number in members for number in range(size)]


def smiles_at(tensors: Tensors, index: int) -> str:
    """Returns the SMILES of one graph, empty where the source has none."""
    start, end = tensors["smiles_ptr"][index : index + 2].tolist()
    return tensors["smiles"][start:end].numpy().tobytes().decode()


def edge_alternatives_at(tensors: Tensors, task: str, index: int) -> list[list[int]]:
    """Returns the alternatives of one graph as lists of directed edges; see `generate_dataset`."""
    first, last = tensors[f"{task}/first"][index : index + 2].tolist()
    pointer = tensors[f"{task}/list_ptr"][first : last + 1].tolist()
    start = pointer[0]
    flat = tensors[f"{task}/list"][start : pointer[-1]].tolist()
    lists = [flat[first - start : end - start] for first, end in pairwise(pointer)]
    return [[edge for bond in bonds for edge in (2 * bond, 2 * bond + 1)] for bonds in lists]


def batch_of(tensors: Tensors, task: str, rows: Tensor, num_columns: int) -> Batch:
    """Returns the graphs ``rows`` as one batch; see `MoleculeDataset` for its attributes."""
    atoms, ptr = gather_items(tensors["atom_ptr"], rows)
    bonds, bond_ptr = gather_items(tensors["bond_ptr"], rows)
    ends, types = tensors["bonds"][bonds].long(), tensors["types"][bonds]  # [M, 2], [M]
    content: dict[str, Any] = graph_tensors(tensors["atoms"][atoms], ends, types, num_columns)
    content["node_truth"] = tensors[f"{task}/atoms"][atoms]
    content["edge_truth"] = tensors[f"{task}/bonds"][bonds].repeat_interleave(2)
    content["edge_index"] += ptr[:-1].repeat_interleave(2 * bond_ptr.diff())
    content["y"] = tensors[f"{task}/y"][rows].long()
    content["smiles"] = [smiles_at(tensors, row) for row in rows.tolist()]
    each_graph = rows.tolist()
    content["edge_alternatives"] = [edge_alternatives_at(tensors, task, row) for row in each_graph]
    each, none = torch.arange(rows.numel() + 1), torch.zeros(rows.numel(), dtype=torch.long)
    batch = Batch(batch=each[:-1].repeat_interleave(ptr.diff()), ptr=ptr, **content)
    # `Batch.to_data_list` needs these.
    starts = {"x": ptr, "node_truth": ptr, "y": each, "smiles": each, "edge_alternatives": each}
    batch._slice_dict = {key: starts.get(key, 2 * bond_ptr) for key in content}
    batch._inc_dict = {key: ptr[:-1] if key == "edge_index" else none for key in content}
    batch._num_graphs = rows.numel()
    return batch
