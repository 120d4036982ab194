"""What tests of experiments share: the small benchmark and quick settings of NICE."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "bench"))
from nicegnn.bench.subject import Subject, subjects
from tests.bench.small_bench import FIT, NICE, make_world, use_world

__all__ = ["FIT", "NICE", "make_world", "quick", "small_subject", "use_world"]


def quick(out: Path, **changes: Any) -> dict[str, Any]:
    """Returns arguments of `compute` that make it quick."""
    return {
        "datasets": ["benzene"],
        "out": out,
        "targets_folder": make_world().targets,
        "device": "cpu",
        "max_graphs": 5,
        "progress": False,
        **changes,
    }


def small_subject(max_graphs: int | None = 5) -> Subject:
    """Returns the target of the small benchmark; its folders must be in use."""
    world = make_world()
    found = subjects(
        ["benzene"], ["gin"], targets_folder=world.targets, device="cpu", max_graphs=max_graphs
    )
    return next(iter(found))
