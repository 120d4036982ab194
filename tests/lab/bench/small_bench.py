"""A small benchmark on disk: generated molecules as a data file, a trained target, a few cells."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from nicegnn.target.training import TrainConfig
from nicegnn_lab.bench import BenchConfig, MetricConfig
from nicegnn_lab.bench.targets import train_target
from nicegnn_lab.datasets import MoleculeDataset, load_dataset
from tests.lab.datasets.small_files import write_molecules

NUM_MOLECULES = 220
QUICK = MetricConfig(removals=("em",))
#: Quick settings of the paper's method.
PAPER = {
    "boundary__steps": 10,
    "boundary__num_draws": 2,
    "boundary__fit_draws": 2,
    "boundary__batch_size": 16,
    "attribution__num_draws": 2,
    "attribution__num_nodes": 2,
}


@dataclass(frozen=True)
class World:
    """Folders of a small benchmark."""

    data: Path
    cache: Path
    targets: Path

    @property
    def environment(self) -> dict[str, str]:
        """Variables that make `load_dataset` read these files."""
        return {"NICEGNN_DATA": str(self.data), "NICEGNN_CACHE": str(self.cache)}

    def dataset(self) -> MoleculeDataset:
        return load_dataset("benzene", root=self.data, cache=self.cache)

    def config(self, out: Path, *explainers: str, **settings: Any) -> BenchConfig:
        """A benchmark of some explainers with quick settings."""
        given: dict[str, Any] = {
            "explainers": explainers,
            "settings": {"nice-paper": PAPER, "pgexplainer": {"steps": 5}},
            "metrics": QUICK,
            "device": "cpu",
        }
        return BenchConfig(
            datasets=("benzene",), out=out, targets_folder=self.targets, **(given | settings)
        )


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="nicegnn-bench-")


@cache
def make_world() -> World:
    """Writes the data and trains the target, once for all tests of a run."""
    root = Path(_folder().name)
    world = World(root / "data", root / "cache", root / "targets")
    write_molecules(world.data, NUM_MOLECULES)
    config = TrainConfig(epochs=10, batch_size=32)
    train_target(world.dataset(), "gin", world.targets, config, progress=False)
    return world


def use_world(monkeypatch: pytest.MonkeyPatch) -> World:
    """Makes the small benchmark the one that names refer to."""
    world = make_world()
    for name, value in world.environment.items():
        monkeypatch.setenv(name, value)
    return world


def command_environment(world: World) -> dict[str, str]:
    """The environment of a command that runs in another process."""
    return os.environ | world.environment | {"OMP_NUM_THREADS": "1"}


def without_clocks(rows: pd.DataFrame) -> pd.DataFrame:
    """Leaves out what differs from run to run, and puts rows in one order."""
    plain = rows.astype({name: "str" for name in rows.columns if rows[name].dtype == "category"})
    plain = plain[~plain["metric"].str.contains("seconds")]
    plain = plain[~plain["metric"].isin(["molecule"])]  # holds a probability, and is long
    keys = [name for name in plain.columns if name != "value"]
    return plain.sort_values(keys, ignore_index=True)
