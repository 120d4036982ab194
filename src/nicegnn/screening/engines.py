"""Where blocks of molecules are explained: in this process, in worker processes, or on Ray.

The block of a worker that dies is done again, so work must write the same, whole or not at all.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import chain, islice
from multiprocessing.connection import Connection, wait
from typing import Any

import torch

from nicegnn.errors import ConfigError, NicegnnError
from nicegnn.molecule.smiles import require
from nicegnn.screening.reading import Record
from nicegnn.screening.settings import EngineConfig

MOST_DEATHS = 5  # of workers with the same block, before it is taken to be the block's fault
MOST_RETRIES = 20  # of a block on Ray, where nodes may come and go
_WORTH = 2000  # molecules that are worth the start of one more worker
_PATIENCE = 10  # seconds for a stopped worker to put its things away, or for an address to answer


@dataclass(frozen=True)
class Block:
    """Molecules that are explained and written together."""

    number: int
    records: tuple[Record, ...]

    @property
    def rows(self) -> str:
        """Where the molecules stand in the input."""
        return f"rows {self.records[0].row} to {self.records[-1].row}"


Work = Callable[[Block], int]  # must be picklable where there are several processes


class WorkerError(NicegnnError, RuntimeError):
    """A worker cannot do its work, or died with the same block again and again."""


def do_all(
    blocks: Iterable[Block], work: Work, config: EngineConfig, num: int, device: str
) -> Iterator[int]:
    """Does the work of all blocks, which hold `num` molecules, where the settings say."""
    on_gpu = device.startswith("cuda")
    if config.ray:
        return on_ray(blocks, work, config, config.gpus * on_gpu)
    worth = 1 if on_gpu else min(len(os.sched_getaffinity(0)), -(-num // _WORTH))
    number = config.workers or worth
    return here(blocks, work) if number == 1 else in_processes(blocks, work, number)


def here(blocks: Iterable[Block], work: Work) -> Iterator[int]:
    """Does one block after the other in this process, with one thread, as workers do."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield from map(work, blocks)
    finally:
        torch.set_num_threads(threads)


def in_processes(blocks: Iterable[Block], work: Work, workers: int) -> Iterator[int]:
    """Does blocks in worker processes of this machine; a worker that dies is replaced."""
    waiting, deaths = iter(blocks), Counter[int]()
    idle, busy = [_Worker(work) for _ in range(workers)], dict[Any, tuple[_Worker, Block]]()
    try:
        while True:
            for block in islice(waiting, len(idle)):
                worker = idle.pop()
                busy[worker.pipe] = worker, block
                with suppress(OSError):  # that it died while it was idle is heard below
                    worker.pipe.send(block)
            if not busy:
                return
            for pipe in wait([*busy]):
                worker, block = busy.pop(pipe)
                try:
                    answer = worker.pipe.recv()
                except (EOFError, OSError):
                    code = worker.end()
                    deaths[block.number] += 1
                    if deaths[block.number] == MOST_DEATHS:
                        raise WorkerError(
                            f"A worker must survive {block.rows} of the input (got {MOST_DEATHS} "
                            f"that died, the last with code {code}). Use fewer --workers or a "
                            "smaller --shard-size, or leave these molecules out."
                        ) from None
                    idle.append(_Worker(work))
                    waiting = chain([block], waiting)
                else:
                    idle.append(worker)
                    if isinstance(answer, NicegnnError):
                        raise answer
                    yield answer
    finally:
        for worker, _ in busy.values():
            worker.process.terminate()  # it tidies up; idle ones end with their pipe
            idle.append(worker)
        for worker in idle:
            worker.pipe.close()
        for worker in idle:
            worker.end()


class _Worker:
    """A process at the other end of a pipe. It ends when the pipe does, also if we are killed."""

    def __init__(self, work: Work) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs, work), daemon=True)
        self.process.start()
        theirs.close()  # else we would not hear that it died

    def end(self) -> int | None:
        self.pipe.close()
        self.process.join(_PATIENCE)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
        return self.process.exitcode


def _serve(pipe: Connection[Any, Any], work: Work) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that started us
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # half-written files are removed
    with suppress(EOFError, OSError):
        while True:
            pipe.send(_safely(work, pipe.recv()))


def _safely(work: Work, block: Block) -> int | NicegnnError:
    """Returns what the work returns, or its error in a form that can travel."""
    torch.set_num_threads(1)
    try:
        return work(block)
    except NicegnnError as error:
        return (ConfigError if isinstance(error, ConfigError) else WorkerError)(str(error))
    except Exception as error:
        return WorkerError("".join(traceback.format_exception(error)))


def on_ray(
    blocks: Iterable[Block], work: Work, config: EngineConfig, gpus: float = 0.0
) -> Iterator[int]:
    """Does every block as a Ray task; if its worker dies, Ray repeats it. All nodes share paths."""
    with _connected(config) as ray:
        needs = {"num_cpus": 1, "num_gpus": gpus, "max_retries": MOST_RETRIES, "max_calls": 0}
        task, sent = ray.remote(**needs)(_safely), ray.put(work)  # sent once, not with each task
        most = config.workers or 2 * max(1, int(ray.cluster_resources().get("CPU", 1)))
        waiting, running = iter(blocks), dict[Any, Block]()
        while True:
            running |= {task.remote(sent, b): b for b in islice(waiting, most - len(running))}
            if not running:
                return
            (ended, *_), _ = ray.wait([*running], num_returns=1)
            block = running.pop(ended)
            try:
                answer = ray.get(ended)
            except ray.exceptions.RayError as error:
                said = str(error).strip().partition("\n")[0].strip(" .")
                raise WorkerError(
                    f"Ray must do {block.rows} of the input (got {said}, after {MOST_RETRIES} "
                    "retries). Run the same command again, or leave these molecules out."
                ) from error
            if isinstance(answer, NicegnnError):
                raise answer
            yield answer


@contextmanager
def _connected(config: EngineConfig) -> Iterator[Any]:
    """Yields Ray, connected to a cluster; a connection that was there before stays."""
    ray = require("ray", "cluster", "Ray")
    if ray.is_initialized():
        yield ray
        return
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is sent anywhere
    settings: dict[str, Any] = {"logging_level": "ERROR", "log_to_driver": False}
    if config.ray == "local":
        settings |= {"num_cpus": config.workers or None, "include_dashboard": False}
    host, _, port = config.ray.rpartition("://")[2].rpartition(":")
    try:
        if host and port.isdecimal():  # if nobody listens there, Ray tries for many minutes
            socket.create_connection((host, int(port)), timeout=_PATIENCE).close()
        ray.init(address=config.ray, **settings)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"`address` must be that of a running Ray cluster, auto, or local (got {config.ray!r}:"
            f" {error}). Start one with `ray start --head`."
        ) from error
    try:
        yield ray
    finally:
        ray.shutdown()
