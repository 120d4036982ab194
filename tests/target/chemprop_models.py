"""Small Chemprop models of every kind, with molecules whose atoms bring descriptors along."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("chemprop", reason="needs `pip install 'nicegnn[chemprop]'`")

from chemprop import nn as parts
from chemprop.data import BatchMolGraph, MoleculeDatapoint, MoleculeDataset
from chemprop.featurizers import SimpleMoleculeMolGraphFeaturizer
from chemprop.models import MPNN
from sklearn.preprocessing import StandardScaler

SMILES = ["CC(=O)Nc1ccc(O)cc1", "O=[N+]([O-])c1ccccc1", "CC(C)(C)S(=O)(=O)N", "CCO", "C"]
WIDTH = 24
EXTRA = {"V_f": 3, "E_f": 2, "V_d": 4, "x_d": 5}


def datapoints(smiles: list[str] | None = None, *, extra: bool = False) -> list[Any]:
    """Returns datapoints; ``extra`` ones with features and descriptors of atoms and bonds."""
    generator, out = np.random.default_rng(0), []
    for one in smiles or SMILES:
        point = MoleculeDatapoint.from_smi(one)
        if extra:
            rows = {"V_f": point.mol.GetNumAtoms(), "E_f": point.mol.GetNumBonds()}
            rows["V_d"] = rows["V_f"]
            for name, width in EXTRA.items():
                size = (rows[name], width) if name in rows else width
                setattr(point, name, generator.normal(size=size).astype(np.float32))
        out.append(point)
    return out


def scaler(width: int, seed: int) -> StandardScaler:
    values = np.random.default_rng(seed).normal(2.0, 3.0, size=(9, width))
    return StandardScaler().fit(values)


def make_mpnn(
    passing: type = parts.BondMessagePassing,
    predictor: type = parts.BinaryClassificationFFN,
    *,
    extra: bool = False,
    seed: int = 0,
    norm: bool = True,
    metrics: list[Any] | None = None,
    words: dict[str, Any] | None = None,
    **settings: Any,
) -> MPNN:
    """Returns a model with random weights, dropout and statistics, in training mode."""
    torch.manual_seed(seed)
    sizes: dict[str, Any] = {}
    if extra:
        transforms = (
            parts.ScaleTransform.from_standard_scaler(scaler(EXTRA[name], 1), pad=pad)
            for name, pad in (("V_f", 72), ("E_f", 14))
        )
        sizes = {
            "d_v": 75,
            "d_e": 16,
            "d_vd": 4,
            "graph_transform": parts.GraphTransform(*transforms),
        }
        sizes["V_d_transform"] = parts.ScaleTransform.from_standard_scaler(scaler(4, 2))
    block = passing(d_h=WIDTH, dropout=0.3, **sizes, **settings)
    width = block.output_dim + (EXTRA["x_d"] if extra else 0)
    model = MPNN(
        block,
        parts.MeanAggregation(),
        predictor(input_dim=width, hidden_dim=WIDTH, dropout=0.3, **(words or {})),
        batch_norm=norm,
        metrics=metrics,
        X_d_transform=parts.ScaleTransform.from_standard_scaler(scaler(5, 3)) if extra else None,
    )
    with torch.no_grad():
        model.predictor.ffn[-1][-1].weight.mul_(30)  # so that bonds matter
    if norm:
        model.bn.running_mean.normal_()
        model.bn.running_var.uniform_(0.5, 2.0)
    return model


def batch_of(points: list[Any]) -> tuple[Any, Any, Any]:
    """Returns what Chemprop's model takes."""
    extra = {} if points[0].V_f is None else {"extra_atom_fdim": 3, "extra_bond_fdim": 2}
    dataset = MoleculeDataset(points, SimpleMoleculeMolGraphFeaturizer(**extra))
    data = [dataset[place] for place in range(len(points))]
    V_d, x_d = ([getattr(one, name) for one in data] for name in ("V_d", "x_d"))
    return (
        BatchMolGraph([one.mg for one in data]),
        None if V_d[0] is None else torch.from_numpy(np.concatenate(V_d)).float(),
        None if x_d[0] is None else torch.from_numpy(np.array(x_d)).float(),
    )
