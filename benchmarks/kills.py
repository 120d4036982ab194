"""Kills `nicegnn explain-many` at random moments, and looks whether the output is as without kills.

    python benchmarks/kills.py molecules.csv --kills 20               # worker processes and driver
    python benchmarks/kills.py molecules.csv --kills 20 --engine ray  # a local cluster of two nodes

On Ray a kill hits a task's process, a whole node (another one joins afterwards) or the driver.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

LIMIT = 600.0  # seconds for the next shard to appear
Kill = Callable[["subprocess.Popen[bytes]", random.Random], str]  # returns what it hit, or ""


def start(out: Path, words: Sequence[str]) -> subprocess.Popen[bytes]:
    """Starts the command with its output in a file."""
    command = [sys.executable, "-m", "nicegnn.cli.main", "explain-many", *words]
    with out.with_suffix(".log").open("ab") as log:
        return subprocess.Popen(
            [*command, "--out", str(out), "--quiet"], stdout=log, stderr=log, start_new_session=True
        )


def shards(out: Path) -> dict[str, bytes]:
    """Returns all shards by name; the same numbers are written as the same bytes."""
    return {path.name: path.read_bytes() for path in sorted((out / "shards").glob("*.parquet"))}


def disturb(
    out: Path, words: Sequence[str], kill: Kill, num_kills: int, rng: random.Random
) -> Counter[str]:
    """Runs the command until it ends by itself, after so many kills; returns what they hit."""
    hit: Counter[str] = Counter()
    driver = start(out, words)
    try:
        while hit.total() < num_kills:
            _wait(driver, out, rng)
            if driver.poll() is not None:  # it ended before all kills
                break
            what = kill(driver, rng)
            hit[what] += bool(what)
            if what == "driver":
                driver.wait()
                driver = start(out, words)
        code = driver.wait(timeout=LIMIT)
    finally:
        if driver.poll() is None:
            os.kill(driver.pid, signal.SIGKILL)
            driver.wait()
    if code not in (0, 3):
        raise RuntimeError(f"The run ended with code {code}: {out.with_suffix('.log').read_text()}")
    return +hit


def _wait(driver: subprocess.Popen[bytes], out: Path, rng: random.Random) -> None:
    """Waits for up to two further shards and then for a moment, or until the driver ends."""
    deadline, wanted = time.monotonic() + LIMIT, len(_names(out)) + rng.randrange(3)
    while driver.poll() is None and len(_names(out)) < wanted and time.monotonic() < deadline:
        time.sleep(0.002)
    time.sleep(rng.uniform(0, 0.3))


def _names(out: Path) -> list[Path]:
    return list((out / "shards").glob("*.parquet"))


def kill_local(driver: subprocess.Popen[bytes], rng: random.Random) -> str:
    """Kills one of the workers, or the driver."""
    workers = [pid for pid in _children(driver.pid) if "spawn_main" in _command(pid)]
    pid = rng.choice([driver.pid, *workers])
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
        return "driver" if pid == driver.pid else "worker"
    return ""


def _children(pid: int) -> list[int]:
    with suppress(OSError):
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def _command(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    return ""


@contextmanager
def two_nodes() -> Iterator[tuple[str, Kill]]:
    """Yields the address of a local Ray cluster of two nodes, and what kills parts of it."""
    from ray.cluster_utils import Cluster

    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0"}
    cluster: Any = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    nodes = [cluster.add_node(num_cpus=1)]

    def kill(driver: subprocess.Popen[bytes], rng: random.Random) -> str:
        what = rng.choice(["driver", "node", "task"])
        if what == "node":
            cluster.remove_node(nodes.pop(), allow_graceful=False)
            nodes.append(cluster.add_node(num_cpus=1))
            return what
        tasks = [
            int(path.name)
            for path in Path("/proc").iterdir()
            if path.name.isdigit() and _command(int(path.name)).startswith("ray::_ray_task")
        ]
        if what == "task" and not tasks:
            return ""
        with suppress(ProcessLookupError):
            os.kill(driver.pid if what == "driver" else rng.choice(tasks), signal.SIGKILL)
            return what
        return ""

    try:
        yield cluster.address, kill
    finally:
        cluster.shutdown()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("molecules", type=Path)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--engine", choices=("local", "ray"), default="local")
    parser.add_argument("--explainer", default="")
    parser.add_argument("--shard-size", default="16")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    words = [str(given.molecules), "--model", "benzene", "--batch-size", "8"]
    words += ["--shard-size", given.shard_size]
    words += ["--explainer", given.explainer] if given.explainer else []
    rng, began = random.Random(given.seed), time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        whole, out = Path(folder, "whole"), Path(folder, "killed")
        start(whole, [*words, "--workers", "1"]).wait()
        undisturbed = time.monotonic() - began
        if given.engine == "local":
            hit = disturb(out, [*words, "--workers", "2"], kill_local, given.kills, rng)
        else:
            with two_nodes() as (address, kill):
                engine = ["--engine", "ray", "--address", address]
                hit = disturb(out, [*words, *engine], kill, given.kills, rng)
        same = shards(whole) == shards(out)
        left = [path.name for path in (out / "shards").glob(".*")]
        print(
            json.dumps(
                {
                    "engine": given.engine,
                    "kills": dict(hit),
                    "shards": len(shards(whole)),
                    "same": same,
                    "left_over": left,
                    "undisturbed_seconds": round(undisturbed),
                    "all_seconds": round(time.monotonic() - began),
                }
            )
        )
    sys.exit(0 if same and not left else 1)


if __name__ == "__main__":
    main()
