"""Subjects of experiments: a dataset, its trained target, and the graphs that are explained."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nicegnn.bench.cell import content_hash, data_key
from nicegnn.bench.plan import read_target
from nicegnn.bench.selection import explained_positions
from nicegnn.datasets import MoleculeDataset, load_dataset
from nicegnn.datasets.registry import facts_of
from nicegnn.errors import ConfigError
from nicegnn.target.frozen_model import fingerprint
from nicegnn.target.zoo import GraphClassifier, device_of

TARGETS_FOLDER = "results/targets"


@dataclass(frozen=True)
class Subject:
    """One target on one dataset.

    Attributes:
        dataset: the dataset, of which the test part is explained.
        target: name of the target.
        model: the trained target.
        positions: explained graphs within the test part, ``[B]``.
    """

    dataset: MoleculeDataset
    target: str
    model: GraphClassifier
    positions: Tensor

    @cached_property
    def identity(self) -> dict[str, str]:
        """All that makes this subject this subject, as plain values."""
        return {
            "data": data_key(self.dataset),
            "split": self.dataset.origin.split,
            "model": fingerprint(self.model),
            "positions": content_hash(self.positions.tolist()),
        }

    def key(self, seed: int, settings: Any) -> str:
        """Names a part of an experiment by its content: subject, seed and plain settings."""
        found = content_hash([self.identity, seed, settings])
        return f"{self.dataset.name}-{self.target}-{seed}-{found[:12]}"

    def key_of_model(self, seed: int, settings: Any) -> str:
        """Names what depends on the target but not on the explained graphs, such as a fit."""
        found = content_hash([self.identity["model"], seed, settings])
        return f"{self.dataset.name}-{self.target}-{seed}-{found[:12]}"

    def row(
        self, setting: str, metric: str, value: float, *, seed: int, level: float = float("nan")
    ) -> dict[str, Any]:
        """Returns one tidy row, see `nicegnn.bench.study_rows.COLUMNS`."""
        return {
            "dataset": self.dataset.name,
            "target": self.target,
            "setting": setting,
            "level": float(level),
            "seed": seed,
            "metric": metric,
            "value": float(value),
        }

    def chunks(self, size: int) -> Iterator[Tensor]:
        """Yields the explained graphs' positions, so many at a time."""
        yield from torch.split(self.positions, size)


def subjects(
    datasets: Sequence[str],
    targets: Sequence[str],
    *,
    targets_folder: str | Path = TARGETS_FOLDER,
    device: str | None = None,
    max_graphs: int | None = None,
) -> Iterator[Subject]:
    """Yields every target on every dataset, each read when its turn comes.

    Args:
        device: ``cpu`` or ``cuda``, by default what is there.
        max_graphs: most test graphs to explain, drawn once for all; none for all.
    """
    for name in datasets:
        if not facts_of(name).has_bond_truth:
            raise ConfigError(f"The truth of {name!r} lies on atoms; these need true bonds.")
    for name in datasets:
        dataset = load_dataset(name)
        positions = explained_positions(dataset.test, max_graphs)
        if positions.numel() == 0:
            raise ConfigError(f"{name} has no test graph of label 1 with a truth.")
        for target in targets:
            model = read_target(Path(targets_folder), dataset, target, device_of(device))
            yield Subject(dataset, target, model, positions)
