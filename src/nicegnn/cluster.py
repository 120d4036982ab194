"""Work on a Ray cluster: connect, hand out tasks, a few at a time, and take what they return."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any, TypeVar

from nicegnn.errors import ConfigError

Item = TypeVar("Item")
_PATIENCE = 10.0  # seconds for an address to answer


@contextmanager
def connected(address: str, num_cpus: int | None = None) -> Iterator[Any]:
    """Yields Ray, connected to a cluster; a connection that was there before stays.

    Args:
        address: of a running cluster, "auto" for this machine's; "local": start one.
        num_cpus: of a cluster that is started; by default all of this machine.
    """
    try:
        import ray
        import ray.exceptions
    except ImportError as error:
        raise ConfigError("Engine 'ray' needs Ray: pip install 'nicegnn[cluster]'.") from error
    is_ours = not ray.is_initialized()
    if is_ours:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is sent anywhere
        settings: dict[str, Any] = {"logging_level": "ERROR", "log_to_driver": False}
        if address == "local":
            settings |= {"num_cpus": num_cpus, "include_dashboard": False}
        host, _, port = address.rpartition("://")[2].rpartition(":")
        try:
            if host and port.isdecimal():  # if nobody listens there, Ray tries for many minutes
                socket.create_connection((host, int(port)), timeout=_PATIENCE).close()
            ray.init(address=address, **settings)
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"`address` must be that of a running Ray cluster, auto, or local (got {address!r}:"
                f" {error}). Start one with `ray start --head`."
            ) from error
    try:
        yield ray
    finally:
        if is_ours:
            ray.shutdown()


def run_tasks(
    ray: Any,
    function: Callable[[Any, Item], object],
    shared: object,
    items: Iterable[Item],
    *,
    at_a_time: int,
    **needs: Any,
) -> Iterator[tuple[Item, Any]]:
    """Yields each item with what ``function(shared, item)`` returns, in the order of ending.

    Items are taken when there is room, so that a long stream of them is never in memory. If a task
    cannot be done, its item comes with the ``RayError``.

    Args:
        shared: sent once, not with each task.
        at_a_time: tasks that are handed out.
        needs: ``num_cpus``, ``num_gpus``, ``max_retries`` and others of ``ray.remote``.
    """
    task = ray.remote(**needs)(function)
    sent, waiting, running = ray.put(shared), iter(items), dict[Any, Item]()
    while True:
        for item in islice(waiting, at_a_time - len(running)):
            running[task.remote(sent, item)] = item
        if not running:
            return
        (ended, *_), _ = ray.wait(list(running), num_returns=1)
        item = running.pop(ended)
        try:
            answer = ray.get(ended)
        except ray.exceptions.RayError as error:
            answer = error
        yield item, answer
