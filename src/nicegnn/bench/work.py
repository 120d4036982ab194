"""The work on one cell, wherever it runs: scores, rows, or a recorded failure."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import lru_cache

from torch import nn

from nicegnn.bench.cell import Cell, data_key
from nicegnn.bench.config import BenchConfig
from nicegnn.bench.explaining import explain_cell
from nicegnn.bench.folder import BenchFolder
from nicegnn.bench.measuring import measure
from nicegnn.bench.plan import read_target
from nicegnn.bench.rows import write_rows
from nicegnn.bench.scores import Scores, load_scores, save_scores
from nicegnn.datasets import MoleculeDataset, load_dataset
from nicegnn.errors import StoreError
from nicegnn.target.frozen_model import fingerprint
from nicegnn.target.zoo import device_of


@dataclass(frozen=True)
class Outcome:
    """What became of a cell.

    Attributes:
        ok: whether its rows are written.
        is_explained: whether it was explained now, or its stored scores were used.
        seconds: of all work.
        text: numbers in a few words, or the error.
        notes: what else happened, such as a damaged file.
    """

    cell: Cell
    ok: bool
    is_explained: bool
    seconds: float
    text: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Work:
    """Does what is missing for a cell; can be sent to another process."""

    config: BenchConfig

    @property
    def folder(self) -> BenchFolder:
        return BenchFolder(self.config.out)

    def __call__(self, cell: Cell) -> Outcome:
        """Writes scores and rows of a cell; an error is recorded and returned, not raised."""
        started = time.perf_counter()
        try:
            return self._run(cell, started)
        except Exception as error:
            return self.failed(cell, error, time.perf_counter() - started)

    def failed(self, cell: Cell, error: BaseException, seconds: float = 0.0) -> Outcome:
        """Records a failure."""
        self.folder.record_failure(cell, error)
        first_line = (str(error).splitlines() or [""])[0]
        return Outcome(cell, False, False, seconds, f"{type(error).__name__}: {first_line}")

    def _run(self, cell: Cell, started: float) -> Outcome:
        dataset = _dataset_of(cell.dataset, cell.identity["data"])
        device = device_of(self.config.device)
        model = read_target(self.config.targets_folder, dataset, cell.target, device)
        if fingerprint(model) != cell.identity["model"]:
            raise StoreError(
                f"The target {cell.target} of {cell.dataset} in {self.config.targets_folder} is "
                "not the one the benchmark was planned with; all workers must see one folder."
            )
        scores, note = self._stored(cell)
        is_explained = scores is None
        if scores is None:
            scores = explain_cell(cell, dataset, model, self.folder.fit(cell.key))
            save_scores(self.folder.scores(cell.key), cell, scores)
        self.folder.fit(cell.key).unlink(missing_ok=True)
        self._measure(cell, dataset, model, scores)
        self.folder.failed(cell.key).unlink(missing_ok=True)
        text = (
            f"{scores.num_graphs} graphs, fit {scores.fit_seconds:.1f} s, "
            f"{1000 * scores.explain_seconds_per_graph:.2f} ms per graph"
        )
        seconds = time.perf_counter() - started
        return Outcome(cell, True, is_explained, seconds, text, (note,) if note else ())

    def _stored(self, cell: Cell) -> tuple[Scores | None, str]:
        """Returns the stored scores if they are sound, and what is wrong with them if not."""
        path = self.folder.scores(cell.key)
        if not path.exists():
            return None, ""
        try:
            return load_scores(path, cell), ""
        except StoreError as error:
            return None, f"{error} Explained anew."

    def _measure(
        self, cell: Cell, dataset: MoleculeDataset, model: nn.Module, scores: Scores
    ) -> None:
        metrics = self.config.metrics
        part = getattr(dataset, cell.identity["part"])
        blocks = measure(scores, part, model, metrics, cell.seed)
        path, code = self.folder.rows(cell.row_key(metrics)), scores.facts["code"]
        write_rows(path, cell, metrics, blocks, code)


@lru_cache(maxsize=1)  # cells come dataset by dataset
def _dataset_of(name: str, key: str) -> MoleculeDataset:
    dataset = load_dataset(name)
    if data_key(dataset) != key:
        raise StoreError(
            f"The data of {name} here are not those the benchmark was planned with; all workers "
            "must read the same files."
        )
    return dataset
