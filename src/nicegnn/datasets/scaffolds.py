"""Bemis-Murcko scaffolds: the ring systems of a molecule and what links them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from nicegnn.datasets.parallel import ordered_map
from nicegnn.datasets.prepare import Prepared, cached
from nicegnn.datasets.tensors import smiles_at
from nicegnn.molecule.smiles import parse_smiles, require_rdkit


def scaffold_of(smiles: str) -> str:
    """Returns the scaffold as SMILES without stereo marks; empty for molecules without rings.

    >>> scaffold_of("CCc1ccccc1O")
    'c1ccccc1'
    """
    murcko = require_rdkit("rdkit.Chem.Scaffolds.MurckoScaffold")
    scaffold = murcko.GetScaffoldForMol(parse_smiles(smiles))
    return str(require_rdkit().MolToSmiles(scaffold, isomericSmiles=False))


def scaffold_groups(prepared: Prepared) -> Tensor:
    """Returns for each graph the number of its scaffold, ``[N]``; cached beside the tensors."""

    def build() -> tuple[dict[str, Tensor], dict[str, Any]]:
        number: dict[str, int] = {}
        texts = [smiles_at(prepared.tensors, row) for row in range(prepared.tensors["row"].numel())]
        groups = [number.setdefault(text, len(number)) for text in ordered_map(scaffold_of, texts)]
        return {"scaffold": torch.tensor(groups)}, {}

    path = prepared.path.with_name(f"{prepared.path.stem}-scaffolds.safetensors")
    tensors, _ = cached(path, build)
    return tensors["scaffold"]
