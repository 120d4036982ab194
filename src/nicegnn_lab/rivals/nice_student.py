"""NICE whose student answers, taught by `fit`, for benchmarks and commands."""

from typing import Any

from nicegnn.explain.call import FitWork
from nicegnn.explain.explanation import Explanation
from nicegnn.explain.nice import NICE


class NICEStudent(NICE):
    """Teaches a student of NICE, after fitting gates if scores need them, and explains by it."""

    def _fit_units(self, work: FitWork) -> None:
        super()._fit_units(work)
        self._teach_units(work)

    @property
    def is_fitted(self) -> bool:
        return self.student is not None

    def explain(self, graphs: Any, *, student: bool = True, **settings: Any) -> Explanation:
        """Explains by the student unless told otherwise, see `NICE.explain`."""
        return super().explain(graphs, student=student, **settings)
