"""A cell, the unit of a benchmark, and the keys that name its files."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import nicegnn
from nicegnn.bench.config import MetricConfig
from nicegnn.datasets import MoleculeDataset

#: Part of every key of scores: raise it when the way cells are explained changes.
RUNNER_VERSION = 1
#: Part of every key of rows: raise it when the way rows are computed changes.
ROWS_VERSION = 1


@dataclass(frozen=True)
class Cell:
    """One explainer with one seed on one target and dataset.

    Attributes:
        settings: what the explainer is made with, beside name, mechanism and seed.
        identity: everything that can change the scores, as plain values.
    """

    dataset: str
    target: str
    explainer: str
    mechanism: str
    seed: int
    settings: Mapping[str, Any]
    identity: Mapping[str, Any]

    @property
    def name(self) -> tuple[str, str, str, str, int]:
        """What tells cells apart in a table of results."""
        return self.dataset, self.target, self.explainer, self.mechanism, self.seed

    @property
    def key(self) -> str:
        """Names the scores: a hash of all that can change them."""
        return content_hash(self.identity)

    def row_key(self, metrics: MetricConfig) -> str:
        """Names the rows: a hash of the scores' key and the settings of metrics."""
        return content_hash([ROWS_VERSION, self.key, metrics.identity()])

    def to_dict(self) -> dict[str, Any]:
        """Returns the name as plain values."""
        names = ("dataset", "target", "explainer", "mechanism", "seed")
        return dict(zip(names, self.name, strict=True))

    def __str__(self) -> str:
        mechanism = f"+{self.mechanism}" if self.mechanism else ""
        return f"{self.dataset} {self.target} {self.explainer}{mechanism} seed {self.seed}"


@cache
def code_hash() -> str:
    """Returns a hash of the source files of nicegnn, to tell which code made a result."""
    root = Path(nicegnn.__file__).parent
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        digest.update(path.relative_to(root).as_posix().encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:24]


def content_hash(content: Any) -> str:
    """Returns a short hash of plain values, whatever the order of their names."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def data_key(dataset: MoleculeDataset) -> str:
    """Returns a hash of the graphs, labels, truths and parts of a dataset."""
    tensors, task, rows = dataset.flat()
    digest = hashlib.sha256()
    for name in sorted(tensors):
        if "/" not in name or name.startswith(f"{task}/"):  # not the other tasks of its family
            _add(digest, name, tensors[name])
    _add(digest, "rows", rows)
    _add(digest, "part", dataset.part)
    return digest.hexdigest()[:24]


def _add(digest: Any, name: str, value: Any) -> None:
    digest.update(f"{name}{value.dtype}{tuple(value.shape)}".encode())
    digest.update(value.contiguous().numpy().data)
