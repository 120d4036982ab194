"""Work on a Ray cluster: connect, hand out tasks, a few at a time, and take what they return."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from itertools import islice
from typing import Any, TypeVar

from nicegnn.errors import ConfigError

Item = TypeVar("Item")
_PATIENCE = 10.0  # seconds for an address to answer


def require_ray() -> Any:
    """Returns Ray, or says how to install it."""
    try:
        import_module("ray.exceptions")
        return import_module("ray")
    except ImportError as error:
        raise ConfigError("Engine 'ray' needs Ray: pip install 'nicegnn[cluster]'.") from error


@contextmanager
def connected(
    address: str | None = None,
    num_cpus: int | None = None,
    environment: Mapping[str, str] | None = None,
) -> Iterator[Any]:
    """Yields Ray, connected to a cluster; a connection that was there before stays.

    Args:
        address: of a running cluster, "auto" for this machine's; "local" or none: start one.
        num_cpus: of a cluster that is started; by default all of this machine.
        environment: variables that tasks see.
    """
    ray = require_ray()
    is_ours = not ray.is_initialized()
    if is_ours:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is sent anywhere
        settings: dict[str, Any] = {"logging_level": "ERROR", "log_to_driver": False}
        if environment:
            settings["runtime_env"] = {"env_vars": dict(environment)}
        if address in (None, "local"):
            settings |= {"num_cpus": num_cpus, "include_dashboard": False}
        try:
            _knock(address or "local")
            ray.init(address=address or "local", **settings)
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


def _knock(address: str) -> None:
    """Raises if nobody listens at ``host:port``; Ray would try for many minutes."""
    host, _, port = address.rpartition("://")[2].rpartition(":")
    if host and port.isdecimal():
        socket.create_connection((host, int(port)), timeout=_PATIENCE).close()


def run_tasks(
    ray: Any,
    function: Callable[[Any, Item], object],
    shared: object,
    items: Iterable[Item],
    *,
    at_a_time: int | None = None,
    **needs: Any,
) -> Iterator[tuple[Item, Any]]:
    """Yields each item with what ``function(shared, item)`` returns, in the order of ending.

    Items are taken when there is room, so that a long stream of them is never in memory. If a task
    cannot be done, its item comes with the ``RayError``.

    Args:
        shared: sent once, not with each task.
        at_a_time: tasks that are handed out; by default one per CPU of the cluster.
        needs: ``num_cpus``, ``num_gpus``, ``max_retries`` and others of ``ray.remote``.
    """
    task = ray.remote(**needs)(function)
    most = at_a_time or max(1, int(ray.cluster_resources().get("CPU", 1)))
    sent, waiting, running = ray.put(shared), iter(items), dict[Any, Item]()
    while True:
        for item in islice(waiting, most - len(running)):
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
