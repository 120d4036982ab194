"""nicegnn_lab: the laboratory. It measures nicegnn and its rivals and shows what was measured.

Public names are imported on first use (PEP 562), because importing torch takes seconds.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nicegnn_lab.bench.targets import register_target
    from nicegnn_lab.datasets.dataset import load_dataset
    from nicegnn_lab.datasets.registry import register_dataset
    from nicegnn_lab.metrics.metric import register_metric

__all__ = ["load_dataset", "register_dataset", "register_metric", "register_target"]

#: Public names by module, the same as above.
_HOMES = {
    "load_dataset": "nicegnn_lab.datasets.dataset",
    "register_dataset": "nicegnn_lab.datasets.registry",
    "register_metric": "nicegnn_lab.metrics.metric",
    "register_target": "nicegnn_lab.bench.targets",
}

if not TYPE_CHECKING:  # with it a type checker would accept any name

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = getattr(import_module(_HOMES[name]), name)
        return globals()[name]

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
