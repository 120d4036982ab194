"""The molecules of a table as tensors: RDKit reads them once, afterwards the cache has them.

With N rows, V atoms and M bonds in all, the tensors are

* ``x`` ``[V, F / 8]`` and ``edge_attr`` ``[M, D / 8]``, features of zeros and ones as bits, and
  ``ends`` ``[M, 2]``, atoms of each bond; ``atom_ptr``, ``bond_ptr`` ``[N + 1]``;
* ``smiles`` (bytes) with ``smiles_ptr``, and ``same`` ``[N]``, the first row with the same plain
  SMILES, -1 for a row that cannot be read;
* ``value`` ``[V]``, where the reader gives atoms a ``value``.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from nicegnn.errors import StoreError
from nicegnn.molecule.smiles import MoleculeError, both_ways, parse_smiles, require_rdkit
from nicegnn.store import load_tensors, save_tensors
from nicegnn_lab.datasets.data_files import cache_folder, sha256_of
from nicegnn_lab.datasets.readers import read_table

#: Part of every cache key: raise it when featurisers or tensors change.
VERSION = 1
_KIND = "table-molecules"

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TableMolecules:
    """The molecules of a table by their rows."""

    tensors: dict[str, Tensor]
    widths: tuple[int, int]  # of features of atoms and of bonds

    def same(self, row: int) -> int:
        """Returns the first row with a molecule that no featuriser can tell apart."""
        return int(self.tensors["same"][row])

    def graph(self, row: int) -> Data:
        """Returns the graph of a row, a new one at each call."""
        if self.same(row) < 0:
            raise MoleculeError(f"Row {row} must hold a SMILES that RDKit can read. Leave it out.")
        atoms, bonds, letters = (
            slice(*self.tensors[f"{name}_ptr"][row : row + 2].tolist())
            for name in ("atom", "bond", "smiles")
        )
        graph = Data(
            x=_unpacked(self.tensors["x"][atoms], self.widths[0]),
            edge_index=both_ways(self.tensors["ends"][bonds].long()),
            edge_attr=_unpacked(self.tensors["edge_attr"][bonds], self.widths[1]).repeat_interleave(
                2, 0
            ),
            smiles=self.tensors["smiles"][letters].numpy().tobytes().decode(),
        )
        if "value" in self.tensors:
            graph.value = self.tensors["value"][atoms]
        return graph


def plain_smiles(smiles: str) -> str:
    """Returns the canonical SMILES without stereo: what no featuriser can tell apart."""
    return str(require_rdkit().MolToSmiles(parse_smiles(smiles), isomericSmiles=False))


@lru_cache(maxsize=1)
def table_molecules(
    path: Path, read: Callable[[str], Data], form: str, cache: Path | None = None
) -> TableMolecules:
    """Returns the molecules in column ``smiles`` of a table, from the cache if it is unchanged.

    ``form`` names what ``read`` makes of a SMILES. A prepared cache needs no RDKit.
    """
    key = hashlib.sha256(json.dumps([VERSION, form, sha256_of(path)]).encode()).hexdigest()[:16]
    name = f"{path.name.partition('.')[0]}-{form}-{key}.safetensors"
    place = cache_folder(cache) / "datasets" / name
    if place.is_file():
        try:
            tensors, about = load_tensors(place, _KIND)
            return TableMolecules(tensors, tuple(about["widths"]))
        except StoreError as error:
            log.warning("%s It is built again.", error)
    made = _built([row["smiles"] for row in read_table(path, ("smiles",))], read)
    try:
        save_tensors(place, made.tensors, {"kind": _KIND, "widths": list(made.widths)})
    except StoreError as error:
        log.warning("%s Set NICEGNN_CACHE to keep prepared data.", error)
    return made


def _built(smiles: Sequence[str], read: Callable[[str], Data]) -> TableMolecules:
    first: dict[str, int] = {}
    graphs: list[Data | None] = []
    same = []
    for row, word in enumerate(smiles):
        try:
            graphs.append(read(word))
            same.append(first.setdefault(plain_smiles(word), row))
        except MoleculeError as error:
            log.warning("Row %d: %s", row, error)
            graphs.append(None)
            same.append(-1)
    known = [graph for graph in graphs if graph is not None]
    words = [b"" if graph is None else graph.smiles.encode() for graph in graphs]

    def ends(size: Callable[[Any], int]) -> Tensor:
        sizes = [0 if graph is None else size(graph) for graph in graphs]
        return torch.tensor([0, *np.cumsum(sizes).tolist()], dtype=torch.int32)

    tensors = {
        "x": _packed([graph.x for graph in known]),
        "edge_attr": _packed([graph.edge_attr[::2] for graph in known]),
        "ends": torch.cat([graph.edge_index[:, ::2].t() for graph in known]).short(),
        "atom_ptr": ends(lambda graph: graph.num_nodes),
        "bond_ptr": ends(lambda graph: graph.num_edges // 2),
        "smiles": torch.frombuffer(bytearray(b"".join(words)), dtype=torch.uint8),
        "smiles_ptr": torch.tensor([0, *np.cumsum([len(word) for word in words])]).int(),
        "same": torch.tensor(same, dtype=torch.int32),
    }
    if "value" in known[0]:
        tensors["value"] = torch.cat([graph.value for graph in known])
    return TableMolecules(tensors, (known[0].num_node_features, known[0].num_edge_features))


def _packed(features: Sequence[Tensor]) -> Tensor:
    """Returns features of zeros and ones as bits, ``[V, F]`` in parts to uint8 ``[V, F / 8]``."""
    whole = torch.cat(list(features)).bool().numpy()
    return torch.from_numpy(np.packbits(whole, axis=1))


def _unpacked(bits: Tensor, width: int) -> Tensor:
    return torch.from_numpy(np.unpackbits(bits.numpy(), axis=1, count=width)).float()
