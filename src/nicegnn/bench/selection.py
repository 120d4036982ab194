"""Which graphs are explained and which are fitted on; the same for every explainer and seed."""

from __future__ import annotations

import torch
from torch import Tensor

from nicegnn.datasets import MoleculeDataset
from nicegnn.metrics import Truth, selected_graphs
from nicegnn.seeding import mix


def explained_positions(part: MoleculeDataset, max_graphs: int | None = None) -> Tensor:
    """Returns positions of graphs of label 1 with a truth, at most so many, rising, ``[B]``."""
    truth = Truth.from_dataset(part)
    positions = selected_graphs(part.y, None, truth, "paper").nonzero().view(-1)
    return positions[draw(positions.numel(), max_graphs, "explained")]


def fit_set(train: MoleculeDataset, fit_graphs: int | None = None) -> MoleculeDataset:
    """Returns the training graphs, at most so many."""
    if fit_graphs is None or fit_graphs >= len(train):
        return train
    return train.index_select(draw(len(train), fit_graphs, "fit"))


def draw(num: int, wanted: int | None, purpose: str) -> Tensor:
    """Returns `wanted` of `num` positions, drawn at random, in rising order."""
    if wanted is None or wanted >= num:
        return torch.arange(num)
    generator = torch.Generator().manual_seed(mix("bench", purpose))
    return torch.randperm(num, generator=generator)[:wanted].sort().values
