"""Where cells run: in this process or on a Ray cluster, with the same rows."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from nicegnn.bench.cell import Cell
from nicegnn.datasets import cache_folder, data_folder
from nicegnn.errors import ConfigError

if TYPE_CHECKING:
    from nicegnn.bench.run import Outcome, Work

ENGINES = ("local", "ray")


class Engine(Protocol):
    """Runs cells and tells what became of each, in the order in which they end."""

    def run(self, cells: Sequence[Cell], work: Work) -> Iterator[Outcome]: ...


@dataclass(frozen=True)
class LocalEngine:
    """One cell after the other in this process."""

    def run(self, cells: Sequence[Cell], work: Work) -> Iterator[Outcome]:
        """Yields the outcome of each cell."""
        for cell in cells:
            yield work(cell)


@dataclass(frozen=True)
class RayEngine:
    """Every cell is a Ray task; workers write into the shared folder themselves.

    Attributes:
        address: of a running cluster, ``auto`` for the one of this machine; by default a cluster is
            started here and stopped at the end.
        workers: cells at a time; by default one per CPU of the cluster.
        gpus: share of a GPU that one cell takes; by default a whole one for ``device="cuda"``.
    """

    address: str | None = None
    workers: int | None = None
    gpus: float | None = None

    def run(self, cells: Sequence[Cell], work: Work) -> Iterator[Outcome]:
        """Yields the outcome of each cell; a worker that dies is a failure of its cell."""
        ray = _ray()
        is_ours = not ray.is_initialized()
        if is_ours:
            self._start(ray)
        try:
            yield from self._tasks(ray, cells, work)
        finally:
            if is_ours:
                ray.shutdown()

    def _tasks(self, ray: Any, cells: Sequence[Cell], work: Work) -> Iterator[Outcome]:
        gpus = self.gpus if self.gpus is not None else float(work.device == "cuda")
        task = ray.remote(num_cpus=1, num_gpus=gpus, max_retries=1)(_call)
        at_a_time = self.workers or max(1, int(ray.cluster_resources().get("CPU", 1)))
        sent, waiting, running = ray.put(work), deque(cells), dict[Any, Cell]()
        while waiting or running:
            while waiting and len(running) < at_a_time:
                cell = waiting.popleft()
                running[task.remote(sent, cell)] = cell
            (ended, *_), _ = ray.wait(list(running), num_returns=1)
            cell = running.pop(ended)
            try:
                yield ray.get(ended)
            except ray.exceptions.RayError as error:
                yield work.failed(cell, error)

    def _start(self, ray: Any) -> None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is sent anywhere
        folders = {"NICEGNN_DATA": data_folder(), "NICEGNN_CACHE": cache_folder()}
        settings: dict[str, Any] = {
            "logging_level": "ERROR",
            "log_to_driver": False,
            "runtime_env": {"env_vars": {k: str(v.absolute()) for k, v in folders.items()}},
        }
        if self.address is None:
            settings |= {"num_cpus": self.workers, "include_dashboard": False}
        ray.init(address=self.address or "local", **settings)


def make_engine(
    name: str = "local",
    *,
    address: str | None = None,
    workers: int | None = None,
    gpus: float | None = None,
) -> Engine:
    """Returns an engine by name, ``local`` or ``ray``; the rest is for Ray alone."""
    if name not in ENGINES:
        raise ConfigError(f"`engine` must be one of {ENGINES} (got {name!r}).")
    if name == "ray":
        _ray()  # missing? say so before anything else is done
        return RayEngine(address, workers, gpus)
    if address is not None or gpus is not None or (workers or 1) > 1:
        raise ConfigError(
            "The local engine runs one cell at a time in this process; use --engine ray for "
            f"address, workers and gpus (got {address!r}, {workers!r}, {gpus!r})."
        )
    return LocalEngine()


def _call(work: Work, cell: Cell) -> Outcome:
    return work(cell)


def _ray() -> Any:
    try:
        import_module("ray.exceptions")
        return import_module("ray")
    except ImportError as error:
        raise ConfigError(
            "The engine 'ray' needs the package ray: pip install 'nicegnn[cluster]'."
        ) from error
