"""The explained graphs behind the rows, each dataset loaded once and checked to be the same."""

from __future__ import annotations

from collections.abc import Callable

from nicegnn.bench.cell import data_key
from nicegnn.datasets import MoleculeDataset, load_dataset
from nicegnn.errors import NicegnnError, StoreError
from nicegnn.report.sources import Source


class Parts:
    """Gives the part of a dataset that a source explained.

    Attributes:
        problems: why graphs of a dataset cannot be had, by dataset.
    """

    def __init__(self, load: Callable[[str], MoleculeDataset] = load_dataset) -> None:
        self._load = load
        self._datasets: dict[str, tuple[MoleculeDataset, str]] = {}
        self.problems: dict[str, str] = {}

    def get(self, source: Source) -> MoleculeDataset | None:
        """Returns the graphs that positions of a source's scores refer to, or none."""
        try:
            if source.dataset not in self._datasets:
                dataset = self._load(source.dataset)
                self._datasets[source.dataset] = dataset, data_key(dataset)
            dataset, key = self._datasets[source.dataset]
            if not source.identity:
                raise StoreError(f"There is no file of scores {source.scores}.")
            if key != source.identity["data"]:
                raise StoreError(
                    f"The data of {source.dataset} here are not those that were explained; point "
                    "NICEGNN_DATA to the same files."
                )
        except (NicegnnError, OSError) as error:
            self.problems.setdefault(source.dataset, str(error))
            return None
        part: MoleculeDataset = getattr(dataset, source.identity["part"])
        return part
