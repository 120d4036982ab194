"""nicegnn_lab: the laboratory. It measures nicegnn and its rivals and shows what was measured.

Public names are imported on first use (PEP 562), because importing torch takes seconds.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nicegnn_lab.datasets.dataset import load_dataset
    from nicegnn_lab.datasets.registry import register_dataset

__all__ = ["load_dataset", "register_dataset"]

if not TYPE_CHECKING:  # with it a type checker would accept any name

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from nicegnn_lab.datasets import dataset, registry

        return getattr(dataset if name == "load_dataset" else registry, name)
