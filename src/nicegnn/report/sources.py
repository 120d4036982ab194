"""Which files stand behind the numbers: one source per finished cell of a benchmark."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from nicegnn.bench.cell import Cell
from nicegnn.bench.folder import BenchFolder
from nicegnn.bench.packing import PackedCell, current_cells, read_making
from nicegnn.bench.scores import KIND, Scores, load_scores
from nicegnn.errors import StoreError
from nicegnn.store import load_tensors
from nicegnn.tables.methods import Method

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Source:
    """One explainer with one seed on one target and dataset, and the files that hold its results.

    Attributes:
        rows: key of its file of rows, ``packed.parquet:KEY`` where the packed file holds them.
        scores: key of its file of scores.
        code: hash of the code that made the scores.
        written_ns: when the rows were written, in nanoseconds since 1970.
        metrics: settings of metrics, as plain values.
        facts: what the file of scores tells about its making; if it is not there, what was packed
            of it, or nothing.
        identity: all that could change the scores, from the same place.
    """

    dataset: str
    target: str
    explainer: str
    mechanism: str
    seed: int
    rows: str
    scores: str
    code: str
    written_ns: int
    metrics: Mapping[str, Any]
    facts: Mapping[str, Any]
    identity: Mapping[str, Any]

    @property
    def method(self) -> Method:
        """The explainer with its mechanism."""
        return Method(self.explainer, self.mechanism)


def read_sources(out: str | Path) -> tuple[Source, ...]:
    """Returns the source of every cell whose rows `read_rows` returns, in the same order."""
    folder = BenchFolder(Path(out))
    parquet = import_module("pyarrow.parquet")
    arrow_error = import_module("pyarrow").ArrowException
    found = []
    for place in current_cells(folder).values():
        if isinstance(place, PackedCell):
            row_key = f"{folder.packed.name}:{place.description['rows']}"
            found.append(_source(folder, row_key, place.description))
            continue
        try:
            described = json.loads((parquet.read_schema(place).metadata or {})[b"nicegnn"])
            found.append(_source(folder, place.stem, described))
        except (arrow_error, OSError, ValueError, KeyError) as error:
            log.warning("%s is left out: %s", place, error)
    return tuple(found)


def read_scores(out: str | Path, source: Source) -> Scores:
    """Returns the stored scores of a source; raises `StoreError` if they are not there."""
    path = BenchFolder(Path(out)).scores(source.scores)
    identity = load_tensors(path, KIND)[1]["identity"]
    cell = Cell(
        dataset=source.dataset,
        target=source.target,
        explainer=source.explainer,
        mechanism=source.mechanism,
        seed=source.seed,
        settings={},
        identity=identity,
    )
    if cell.key != source.scores:
        raise StoreError(f"{path} describes another cell, {cell.key}, than its name says.")
    return load_scores(path, cell)


def _source(folder: BenchFolder, row_key: str, described: Mapping[str, Any]) -> Source:
    facts, identity = read_making(folder.scores(described["key"]))
    return Source(
        **described["cell"],
        rows=row_key,
        scores=described["key"],
        code=described.get("code", ""),
        written_ns=int(described["written_ns"]),
        metrics=described["metrics"],
        facts=facts or described.get("facts", {}),
        identity=identity or described.get("identity", {}),
    )
