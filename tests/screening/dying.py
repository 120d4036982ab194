"""Work that dies with its process, for tests of engines; it must be importable by workers."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from pathlib import Path

from nicegnn.errors import StoreError
from nicegnn.screening.engines import Block


@dataclass(frozen=True)
class DyingWork:
    """Returns the number of a block; kills its process a few times before some of them."""

    folder: Path  # for marks of earlier deaths
    deaths: dict[int, int]  # block to how often

    def __call__(self, block: Block) -> int:
        seen = len(list(self.folder.glob(f"{block.number}-*")))
        if seen < self.deaths.get(block.number, 0):
            (self.folder / f"{block.number}-{seen}").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return block.number


@dataclass(frozen=True)
class FailingWork:
    """Finds the disk full."""

    def __call__(self, block: Block) -> int:
        raise StoreError(f"Cannot write {block.number}: no space left.")
