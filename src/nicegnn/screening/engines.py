"""Where blocks of molecules are explained: in this process, in worker processes, or on Ray.

An engine is given a stream of blocks and a function that explains a block and writes its shard, and
yields what that returns, in the order of ending. A block whose worker dies is given to another one,
so the function must give the same result each time and write it whole or not at all.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from multiprocessing.connection import Connection, wait
from typing import Any, TypeVar

import torch

from nicegnn.cluster import connected, run_tasks
from nicegnn.errors import ConfigError, NicegnnError
from nicegnn.screening.reading import Record
from nicegnn.screening.settings import EngineConfig

MOST_DEATHS = 5  # of workers with the same block, before it is taken to be the block's fault
MOST_RETRIES = 20  # of a block on Ray, where nodes may come and go
_WORTH = 2000  # molecules that are worth the start of one more worker
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
Work = Callable[[Block], Done]  # must be picklable where there are several processes


class WorkerError(NicegnnError, RuntimeError):
    """A worker cannot do its work, or died with the same block again and again."""


def do_all(
    blocks: Iterable[Block], work: Work[Done], config: EngineConfig, num: int, device: str
) -> Iterator[Done]:
    """Does the work of all blocks, which hold `num` molecules, where the settings say."""
    on_gpu = device.startswith("cuda")
    if config.ray:
        return on_ray(blocks, work, config, config.gpus * on_gpu)
    worth = 1 if on_gpu else min(len(os.sched_getaffinity(0)), -(-num // _WORTH))
    number = config.workers or worth
    return here(blocks, work) if number == 1 else in_processes(blocks, work, number)


def here(blocks: Iterable[Block], work: Work[Done]) -> Iterator[Done]:
    """Does one block after the other in this process, with one thread, as workers do."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield from map(work, blocks)
    finally:
        torch.set_num_threads(threads)


def in_processes(blocks: Iterable[Block], work: Work[Done], workers: int) -> Iterator[Done]:
    """Does blocks in worker processes of this machine; a worker that dies is replaced."""
    waiting, deaths = iter(blocks), Counter[int]()
    crew = [_Worker(work) for _ in range(workers)]
    try:
        while True:
            for worker in crew:
                if worker.block is None and (block := next(waiting, None)) is not None:
                    worker.give(block)
            busy = [worker for worker in crew if worker.block is not None]
            if not busy:
                return
            ready = wait([worker.pipe for worker in busy])
            for worker in [worker for worker in busy if worker.pipe in ready]:
                block, worker.block = worker.block, None
                assert block is not None
                try:
                    answer = worker.pipe.recv()
                except (EOFError, OSError):
                    code = worker.end()
                    deaths[block.number] += 1
                    if deaths[block.number] == MOST_DEATHS:
                        raise WorkerError(
                            f"A worker must survive {block.rows} of the input (got {MOST_DEATHS} "
                            f"workers that died, the last with code {code}). Is the memory full? "
                            "Use fewer --workers or a smaller --shard-size, or leave these "
                            "molecules out."
                        ) from None
                    crew[crew.index(worker)] = _Worker(work)
                    waiting = chain([block], waiting)
                else:
                    yield _checked(answer)
    finally:
        for worker in crew:
            if worker.block is not None:
                worker.process.terminate()  # it tidies up; idle ones end with their pipe
            worker.pipe.close()
        for worker in crew:
            worker.end()


class _Worker:
    """A process at the other end of a pipe. It ends when the pipe does, also if we are killed."""

    def __init__(self, work: Work[Any]) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs, work), daemon=True)
        self.block: Block | None = None
        self.process.start()
        theirs.close()  # else we would not hear that it died

    def give(self, block: Block) -> None:
        """Hands a block over; that the worker died while it was idle is heard from its pipe."""
        self.block = block
        with suppress(OSError):
            self.pipe.send(block)

    def end(self) -> int | None:
        """Waits until the process is gone, for a while; returns its exit code."""
        self.pipe.close()
        self.process.join(_PATIENCE)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
        return self.process.exitcode


def _serve(pipe: Connection[Any, Any], work: Work[Any]) -> None:
    """What a worker does until its pipe is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that started us
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # half-written files are removed
    with suppress(EOFError, OSError):
        while True:
            pipe.send(_safely(work, pipe.recv()))


def _safely(work: Work[Any], block: Block) -> Any:
    """Returns what the work returns, or its error in a form that can travel."""
    torch.set_num_threads(1)
    try:
        return work(block)
    except NicegnnError as error:
        return (ConfigError if isinstance(error, ConfigError) else WorkerError)(str(error))
    except Exception as error:
        return WorkerError("".join(traceback.format_exception(error)))


def _checked(answer: Any) -> Any:
    if isinstance(answer, NicegnnError):
        raise answer
    return answer


def on_ray(
    blocks: Iterable[Block], work: Work[Done], config: EngineConfig, gpus: float = 0.0
) -> Iterator[Done]:
    """Does every block as a Ray task; if its worker or node dies, Ray repeats it some times.

    All nodes must see the input's model files and the output folder under the same path. Each
    worker process loads the model once, since Ray keeps it for further tasks.
    """
    with connected(config.ray, config.workers or None) as ray:
        cpus = max(1, int(ray.cluster_resources().get("CPU", 1)))
        needs = {"num_cpus": 1, "num_gpus": gpus, "max_retries": MOST_RETRIES, "max_calls": 0}
        most = config.workers or 2 * cpus  # so that none waits for a block
        for block, answer in run_tasks(ray, _safely, work, blocks, at_a_time=most, **needs):
            if isinstance(answer, ray.exceptions.RayError):
                lines = (line.strip(" .") for line in str(answer).splitlines())
                raise WorkerError(
                    f"Ray must do {block.rows} of the input (got {next(filter(None, lines), '')}, "
                    f"after {MOST_RETRIES} retries). Look at the cluster and run the same command "
                    "again, or leave these molecules out."
                )
            yield _checked(answer)
