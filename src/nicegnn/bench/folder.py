"""Where a benchmark keeps its files."""

from __future__ import annotations

import json
import logging
import os
import time
import traceback
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nicegnn.bench.cell import Cell, content_hash
from nicegnn.bench.config import BenchConfig
from nicegnn.store import write_json

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class BenchFolder:
    """The files of a benchmark: scores, rows, fits under way, failures, and what was asked for."""

    root: Path

    def scores(self, key: str) -> Path:
        """Raw scores of a cell."""
        return self.root / "scores" / f"{key}.safetensors"

    def rows(self, row_key: str) -> Path:
        """Metrics of a cell."""
        return self.root / "rows" / f"{row_key}.parquet"

    @property
    def packed(self) -> Path:
        """Metrics of many cells in one small file."""
        return self.root / "packed.parquet"

    def fit(self, key: str) -> Path:
        """Checkpoint of a fit that is not finished."""
        return self.root / "fits" / f"{key}.fit.safetensors"

    def failed(self, key: str) -> Path:
        """Why a cell failed."""
        return self.root / "failed" / f"{key}.json"

    def record_failure(self, cell: Cell, error: BaseException) -> None:
        """Writes why a cell failed."""
        path = self.failed(cell.key)
        path.parent.mkdir(parents=True, exist_ok=True)
        content = {
            "cell": cell.to_dict(),
            "error": type(error).__name__,
            "message": str(error),
            "traceback": "".join(traceback.format_exception(error)),
            "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
            "identity": dict(cell.identity),
        }
        write_json(path, content)

    def record_run(self, config: BenchConfig, cells: list[Cell]) -> None:
        """Writes which cells were asked for and when, so that readers know which rows are meant."""
        asked = [cell.to_dict() | {"rows": cell.row_key(config.metrics)} for cell in cells]
        where = ("out", "targets_folder", "device")  # says nothing about the numbers
        settings = {k: v for k, v in config.to_dict().items() if k not in where}
        number = content_hash([settings, asked])
        path = self.root / "runs" / f"{number}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        when = {"asked_ns": time.time_ns(), "asked": time.strftime("%Y-%m-%dT%H:%M:%S%z")}
        write_json(path, when | {"config": settings, "cells": asked})

    def read_runs(self) -> list[dict[str, Any]]:
        """Returns what was asked for, the newest first."""
        runs = []
        for path in sorted((self.root / "runs").glob("*.json")):
            try:
                run = json.loads(path.read_text(encoding="utf-8"))
                runs.append((int(run["asked_ns"]), path.name, run))
            except (OSError, ValueError, KeyError, TypeError) as error:
                log.warning("%s is damaged (%s) and is left out.", path, error)
        return [run for _, _, run in sorted(runs, key=lambda item: item[:2], reverse=True)]


def write_whole(path: Path, write: Callable[[Path], None]) -> None:
    """Lets `write` fill a temporary file beside `path`, then puts it in its place at once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.part")
    try:
        write(temporary)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
