"""NICE whose student answers: fitted and taught in one go, for benchmarks and commands."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from torch_geometric.data import Data

from nicegnn.explain.explanation import Explanation
from nicegnn.explain.nice import NICE, ByStudent


class NICEStudent(NICE):
    """Fits NICE, teaches its student on the same graphs, and explains by the student."""

    teacher: ClassVar[type[NICE]] = NICE  # whose stored fits a benchmark can teach on

    def _fit_units(
        self, units: Sequence[Data], seed: int, progress: bool, checkpoint: str | Path | None
    ) -> None:
        super()._fit_units(units, seed, progress, checkpoint)
        self._teach_units(units, seed, progress)

    def explain(self, graphs: Any, *, student: ByStudent = True, **settings: Any) -> Explanation:
        """Explains by the student unless told otherwise, see `NICE.explain`."""
        return super().explain(graphs, student=student, **settings)
