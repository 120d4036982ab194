"""A small model of generated molecules, and work that dies; workers can import this."""

from __future__ import annotations

import csv
import os
import signal
from dataclasses import dataclass
from pathlib import Path

from nicegnn.errors import StoreError
from nicegnn.pretrained import Pretrained, load_file
from nicegnn.screening.engines import Block
from nicegnn.screening.learning import Learned, learn
from nicegnn.screening.reading import Reader
from nicegnn.screening.settings import LearnConfig
from nicegnn_lab.datasets.generator import generate_dataset

SMALL = LearnConfig(
    label=("label",),
    featurizer="elements",
    hidden_size=16,
    epochs=25,
    batch_size=32,
    learning_rate=0.01,
    split="random",
)


def write_csv(path: Path, header: list[str], rows: list[list[object]]) -> Path:
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    return path


def labelled_csv(folder: Path, num: int = 160) -> Path:
    """Writes molecules with a benzene ring (label 1) and without."""
    graphs = generate_dataset("benzene", num, seed=1)
    rows: list[list[object]] = [[graph.smiles, int(graph.y)] for graph in graphs]
    return write_csv(folder / "labelled.csv", ["smiles", "label"], rows)


def trained(folder: Path) -> tuple[Learned, Pretrained]:
    """Trains a small model and returns it with its explainer."""
    reader = Reader(labelled_csv(folder))
    path = folder / "small.safetensors"
    return learn(reader, path, SMALL), load_file(path)


@dataclass(frozen=True)
class DyingWork:
    """Returns the number of a block; kills its process a few times before some of them."""

    folder: Path  # for marks of earlier deaths
    deaths: dict[int, int]  # block to how often

    def __call__(self, block: Block) -> int:
        seen = len(list(self.folder.glob(f"{block.number}-*")))
        if seen < self.deaths.get(block.number, 0):
            (self.folder / f"{block.number}-{seen}").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return block.number


@dataclass(frozen=True)
class FailingWork:
    """Finds the disk full."""

    def __call__(self, block: Block) -> int:
        raise StoreError(f"Cannot write {block.number}: no space left.")
