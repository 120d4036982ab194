"""A small benchmark on disk: generated molecules as a data file, a trained target, a few cells."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from nicegnn.target.training import TrainConfig
from nicegnn_lab.bench.measure import Benchmark, MetricConfig
from nicegnn_lab.bench.plan import TARGETS_FOLDER, make_cells
from nicegnn_lab.bench.run import RunReport, run_study
from nicegnn_lab.bench.study import Cell
from nicegnn_lab.bench.targets import train_target
from nicegnn_lab.datasets.dataset import MoleculeDataset, load_dataset
from tests.lab.datasets.small_files import write_molecules

NUM_MOLECULES = 220
QUICK = MetricConfig(removals=("em",))
#: Quick settings of the paper's method.
PAPER = {
    "boundary__steps": 10,
    "boundary__num_draws": 2,
    "boundary__batch_size": 16,
    "attribution__num_draws": 2,
    "attribution__num_nodes": 2,
}


@dataclass(frozen=True)
class Asked:
    """A benchmark and its cells, as a command asks for them."""

    explainers: tuple[str, ...]
    out: Path = Path("nowhere")
    datasets: tuple[str, ...] = ("benzene",)
    targets: tuple[str, ...] = ("gin",)
    seeds: tuple[int, ...] = (0,)
    targets_folder: Path = TARGETS_FOLDER
    max_graphs: int | None = None
    fit_graphs: int | None = None
    device: str | None = "cpu"
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    metrics: MetricConfig = field(default_factory=MetricConfig)

    def _given(self) -> dict[str, Any]:
        names = ("datasets", "targets", "seeds", "targets_folder", "device")
        given = {name: getattr(self, name) for name in (*names, "max_graphs", "fit_graphs")}
        return {"study": Benchmark(self.explainers, self.settings, self.metrics), **given}

    def cells(self) -> list[Cell]:
        return make_cells(**self._given())

    def run(self, say: Callable[[str], None] | None = None) -> RunReport:
        return run_study(**self._given(), out=self.out, say=say)


def run_bench(asked: Asked, say: Callable[[str], None] | None = None) -> RunReport:
    """Runs the cells of a benchmark that have no rows yet."""
    return asked.run(say)


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

    def config(self, out: Path, *explainers: str, **settings: Any) -> Asked:
        """A benchmark of some explainers with quick settings."""
        given: dict[str, Any] = {
            "explainers": explainers,
            "settings": {"nice-paper": PAPER, "pgexplainer": {"steps": 5}},
            "metrics": QUICK,
            "device": "cpu",
        }
        return Asked(out=out, targets_folder=self.targets, **(given | settings))


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="nicegnn-bench-")


@cache
def make_world() -> World:
    """Writes the data and trains the target, once for all tests of a run."""
    root = Path(_folder().name)
    world = World(root / "data", root / "cache", root / "targets")
    write_molecules(world.data, NUM_MOLECULES)
    config = TrainConfig(epochs=30, batch_size=32, seed=3)  # right on label 1
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
    keys = [name for name in plain.columns if name != "value"]
    return plain.sort_values(keys, ignore_index=True)
