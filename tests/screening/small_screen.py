"""A small model of generated molecules, trained once and shared by the tests of screening."""

from __future__ import annotations

import csv
from pathlib import Path

from nicegnn.pretrained import Pretrained, load_file
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
