"""Where blocks of molecules are explained: in this process, in worker processes, or on Ray.

An engine is given a stream of blocks and a function that explains a block and writes its shard. A
block whose worker dies is given to another one, so the function must give the same result each time
and write it whole or not at all.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import traceback
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any, Protocol, TypeVar

import torch

from nicegnn.cluster import connected, require_ray, run_tasks
from nicegnn.config import check_choice
from nicegnn.errors import ConfigError, NicegnnError
from nicegnn.screening.reading import Record

MOST_DEATHS = 5  # of workers with the same block, before it is taken to be the block's fault
MOST_RETRIES = 20  # of a block on Ray, where nodes may come and go
_PATIENCE = 10  # seconds in which a worker may put its things away when the run is stopped


@dataclass(frozen=True)
class Block:
    """Molecules that are explained and written together."""

    number: int
    records: tuple[Record, ...]

    @property
    def rows(self) -> str:
        """Where the molecules stand in the input."""
        return f"rows {self.records[0].row} to {self.records[-1].row}"


Done = TypeVar("Done")
Work = Callable[[Block], Done]  # must be picklable for engines with several processes


class WorkerError(NicegnnError, RuntimeError):
    """A worker cannot do its work, or died with the same block again and again."""


class Engine(Protocol):
    """Does the work of all blocks and yields what it returns, in the order of ending."""

    def run(self, blocks: Iterable[Block], work: Work[Done]) -> Iterator[Done]: ...


@dataclass(frozen=True)
class HereEngine:
    """Does one block after the other in this process, with one thread, as workers do."""

    def run(self, blocks: Iterable[Block], work: Work[Done]) -> Iterator[Done]:
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            for block in blocks:
                yield work(block)
        finally:
            torch.set_num_threads(threads)


@dataclass(frozen=True)
class ProcessEngine:
    """Does blocks in worker processes of this machine; a worker that dies is replaced."""

    workers: int

    def run(self, blocks: Iterable[Block], work: Work[Done]) -> Iterator[Done]:
        waiting, again, deaths = iter(blocks), deque[Block](), Counter[int]()
        crew = [_Worker(work) for _ in range(self.workers)]
        try:
            while True:
                for place, worker in enumerate(crew):
                    block = None
                    if worker.block is None:
                        block = again.popleft() if again else next(waiting, None)
                    if block is not None and not worker.give(block):  # it died while it was idle
                        crew[place] = _Worker(work)
                        again.append(block)
                busy = {worker.pipe: place for place, worker in enumerate(crew) if worker.block}
                if not busy and not again:
                    return
                for pipe in wait([*busy]):
                    place = busy[pipe]  # type: ignore[index]
                    worker, block = crew[place], crew[place].block
                    assert block is not None
                    is_alive, answer = worker.take()
                    if is_alive:
                        yield _checked(answer)
                        continue
                    deaths[block.number] += 1
                    if deaths[block.number] == MOST_DEATHS:
                        raise WorkerError(
                            f"A worker must survive {block.rows} of the input (got {MOST_DEATHS} "
                            f"workers that died, the last with code {worker.end()}). Is the memory "
                            "full? Use fewer --workers or a smaller --batch-size, or leave these "
                            "molecules out."
                        )
                    worker.end()
                    crew[place] = _Worker(work)
                    again.append(block)
        finally:
            _dismiss(crew)


class _Worker:
    """A process at the other end of a pipe. It ends when the pipe does, also if we are killed."""

    def __init__(self, work: Work[Any]) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs, work), daemon=True)
        self.block: Block | None = None
        self.process.start()
        theirs.close()  # else we would not hear that it died

    def give(self, block: Block) -> bool:
        """Hands a block over; returns whether the worker lives."""
        try:
            self.pipe.send(block)
        except OSError:
            return False
        self.block = block
        return True

    def take(self) -> tuple[bool, Any]:
        """Returns whether the worker lives, and its answer."""
        self.block = None
        try:
            return True, self.pipe.recv()
        except (EOFError, OSError):
            return False, None

    def end(self) -> int | None:
        """Waits until the process is gone; returns its exit code."""
        self.pipe.close()
        self.process.join(_PATIENCE)
        return self.process.exitcode


def _dismiss(crew: Sequence[_Worker]) -> None:
    """Ends all workers: idle ones by closing their pipe, others by a signal they tidy up after."""
    for worker in crew:
        if worker.block is not None:
            worker.process.terminate()
        worker.pipe.close()
    for worker in crew:
        worker.process.join(_PATIENCE)
        if worker.process.is_alive():
            worker.process.kill()
            worker.process.join()


def _serve(pipe: Connection[Any, Any], work: Work[Any]) -> None:
    """What a worker does until its pipe is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that started us
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # half-written files are removed
    torch.set_num_threads(1)
    while True:
        try:
            block = pipe.recv()
        except (EOFError, OSError):
            return
        try:
            answer: Any = work(block)
        except Exception as error:
            answer = _Failure(error)
        try:
            pipe.send(answer)
        except OSError:
            return


class _Failure:
    """An error of a worker, on its way to the process that started it."""

    def __init__(self, error: Exception) -> None:
        is_plain = isinstance(error, NicegnnError)
        self.text = str(error) if is_plain else "".join(traceback.format_exception(error))
        self.is_config = isinstance(error, ConfigError)


def _checked(answer: Any) -> Any:
    if isinstance(answer, _Failure):
        raise ConfigError(answer.text) if answer.is_config else WorkerError(answer.text)
    return answer


@dataclass(frozen=True)
class RayEngine:
    """Does every block as a Ray task; if its worker or node dies, Ray repeats it some times.

    All nodes must see the input's model files and the output folder under the same path. Each
    worker process loads the model once, since Ray keeps it for further tasks.
    """

    address: str | None = None  # of a running cluster, "auto" for this machine's; none: start one
    workers: int | None = None  # blocks at a time; none: two per CPU, so that none waits for one
    gpus: float = 0.0  # share of a GPU that one block takes

    def run(self, blocks: Iterable[Block], work: Work[Done]) -> Iterator[Done]:
        with connected(self.address, self.workers) as ray:
            cpus = max(1, int(ray.cluster_resources().get("CPU", 1)))
            needs = {"num_gpus": self.gpus, "max_retries": MOST_RETRIES, "max_calls": 0}
            most = self.workers or 2 * cpus
            answers = run_tasks(ray, _ray_task, work, blocks, at_a_time=most, num_cpus=1, **needs)
            for block, answer in answers:
                if isinstance(answer, ray.exceptions.RayError):
                    raise WorkerError(
                        f"Ray must do {block.rows} of the input (got {_first_line(answer)}, after "
                        f"{MOST_RETRIES} retries). Look at the cluster and run the same command "
                        "again, or leave these molecules out."
                    )
                yield _checked(answer)


def _first_line(error: Exception) -> str:
    return next((line.strip(" .") for line in str(error).splitlines() if line.strip()), repr(error))


def _ray_task(work: Work[Any], block: Block) -> Any:
    torch.set_num_threads(1)
    try:
        return work(block)
    except Exception as error:
        return _Failure(error)


def make_engine(
    name: str = "local",
    *,
    workers: int = 0,
    address: str | None = None,
    device: str = "cpu",
    gpus: float | None = None,
) -> Engine:
    """Returns an engine by name, ``local`` or ``ray``.

    Args:
        workers: processes, or blocks at a time on Ray; 0 for one per processor, or one on a GPU.
        gpus: share of a GPU that a block takes on Ray; by default one for the device ``cuda``.
    """
    check_choice("engine", name, ("local", "ray"))
    if name == "ray":
        require_ray()  # an error if Ray is missing
        share = float(device.startswith("cuda")) if gpus is None else gpus
        return RayEngine(address, workers or None, share)
    if address is not None or gpus is not None:
        raise ConfigError(
            "`address` and `gpus` are for a Ray cluster (got them with the engine 'local'). Add "
            "--engine ray, or leave them out."
        )
    number = workers or (1 if device.startswith("cuda") else len(os.sched_getaffinity(0)))
    return HereEngine() if number == 1 else ProcessEngine(number)
