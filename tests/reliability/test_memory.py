"""A process that explains many times holds no more than at its start."""

from __future__ import annotations

import gc
import sys
import tracemalloc

import pytest

from tests.benchmarks import conftest as _importable  # noqa: F401 - scripts of benchmarks/

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")


def test_memory_stays_flat_over_many_explanations() -> None:
    from endurance import endure

    steps = endure(160, 40)
    next(steps)  # the first fill caches
    gc.collect()
    tracemalloc.start()
    try:
        _, before = next(steps)
        gc.collect()
        objects = tracemalloc.get_traced_memory()[0]
        _, _ = next(steps)
        _, after = next(steps)
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0] - objects
    finally:
        tracemalloc.stop()
    assert grown < 40_000  # bytes of 80 explanations; each that is kept takes thousands
    assert after - before < 16  # MiB
