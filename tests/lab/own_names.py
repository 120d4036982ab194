"""Takes back what plugins have registered in a test."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from nicegnn_lab.bench.targets import TARGETS
from nicegnn_lab.datasets.registry import DATASETS, FAMILIES
from nicegnn_lab.metrics.metric import METRICS
from nicegnn_lab.rivals import EXPLAINERS


@contextmanager
def names_restored() -> Iterator[None]:
    """Leaves all registries, and the modules of plugin files, as they were."""
    registries: tuple[dict[str, object], ...]
    registries = (EXPLAINERS, DATASETS, FAMILIES, TARGETS, METRICS)  # type: ignore[assignment]
    before = [dict(registry) for registry in registries]
    try:
        yield
    finally:
        for registry, known in zip(registries, before, strict=True):
            registry.clear()
            registry.update(known)
        for name in [name for name in sys.modules if name.startswith("nicegnn_plugin_")]:
            del sys.modules[name]
