"""Kills `nicegnn explain` at random moments, and looks whether the output is as without kills.

    python benchmarks/kills.py molecules.csv --kills 20          # worker processes and driver
    python benchmarks/kills.py molecules.csv --kills 20 --ray    # a local cluster of two nodes
    python benchmarks/kills.py molecules.csv --kills 20 --term   # SIGTERM instead of SIGKILL

On Ray a kill hits a task's process, a whole node (another one joins afterwards) or the driver. A
driver that was killed is started again with the same command. ``--out`` keeps the outcome in a JSON
file, one entry per engine.
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
from functools import partial
from pathlib import Path
from typing import Any

from nicegnn.screening.tables import read_table
from nicegnn.store import write_json

LIMIT = 600.0  # seconds for the next shard to appear
Kill = Callable[["subprocess.Popen[bytes]", random.Random], str]  # returns what it hit, or ""


def start(out: Path, words: Sequence[str]) -> subprocess.Popen[bytes]:
    """Starts the command with its output in a file."""
    command = [sys.executable, "-m", "nicegnn.cli.main", "explain", *words, "--format", "rows"]
    with out.with_suffix(".log").open("ab") as log:
        return subprocess.Popen(
            [*command, "--out", str(out), "--quiet"], stdout=log, stderr=log, start_new_session=True
        )


def shards(out: Path) -> dict[str, bytes]:
    """Returns all shards by name; the same numbers are written as the same bytes."""
    return {path.name: path.read_bytes() for path in sorted(_names(out))}


def rows(out: Path) -> Counter[int]:
    """Returns how often each row of the input is in the shards."""
    return Counter(row["row"] for path in _names(out) for row in read_table(path, ["row"]))


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


def kill_local(
    driver: subprocess.Popen[bytes], rng: random.Random, number: int = signal.SIGKILL
) -> str:
    """Sends a signal to one of the workers, or to the driver."""
    workers = [pid for pid in _children(driver.pid) if "spawn_main" in _command(pid)]
    pid = rng.choice([driver.pid, *workers])
    with suppress(ProcessLookupError):
        os.kill(pid, number)
        return "driver" if pid == driver.pid else "worker"
    return ""


def _children(pid: int) -> list[int]:
    with suppress(OSError):
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def _descendants(pid: int) -> list[int]:
    return [one for child in _children(pid) for one in (child, *_descendants(child))]


def _command(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    return ""


@contextmanager
def two_nodes(number: int = signal.SIGKILL) -> Iterator[tuple[str, Kill]]:
    """Yields the address of a local Ray cluster of two nodes, and what ends parts of it."""
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
        below = _descendants(os.getpid())  # nodes are ours, and tasks run below nodes
        tasks = [pid for pid in below if _command(pid).startswith("ray::_safely")]
        if what == "task" and not tasks:
            return ""
        with suppress(ProcessLookupError):
            os.kill(driver.pid if what == "driver" else rng.choice(tasks), number)
            return what
        return ""

    try:
        yield cluster.address, kill
    finally:
        cluster.shutdown()


def compare(
    molecules: Path, words: Sequence[str], on_ray: bool, num_kills: int, seed: int, number: int
) -> dict[str, Any]:
    """Runs without kills and with them; returns what was hit and how the outputs differ."""
    rng = random.Random(seed)
    given = [str(molecules), *words]
    with tempfile.TemporaryDirectory() as folder:
        whole, out = Path(folder, "whole"), Path(folder, "killed")
        began = time.monotonic()
        code = start(whole, [*given, "--workers", "1"]).wait()
        if code not in (0, 3):
            raise RuntimeError(f"Without kills: {whole.with_suffix('.log').read_text()}")
        undisturbed = time.monotonic() - began
        began = time.monotonic()
        if not on_ray:
            kill = partial(kill_local, number=number)
            hit = disturb(out, [*given, "--workers", "2"], kill, num_kills, rng)
        else:
            with two_nodes(number) as (address, hit_cluster):
                hit = disturb(out, [*given, "--ray", address], hit_cluster, num_kills, rng)
        seconds = time.monotonic() - began
        expected, found, rejects = rows(whole), rows(out), "rejects.csv"
        return {
            "molecules": len(expected),
            "shards": len(shards(whole)),
            "kills": dict(sorted(hit.items())),
            "lost": (expected - found).total(),
            "doubled": (found - expected).total(),
            "equal_files": shards(whole) == shards(out),
            "equal_rejects": (whole / rejects).read_bytes() == (out / rejects).read_bytes(),
            "left_over": sorted(path.name for path in (out / "shards").glob(".*")),
            "seconds_without_kills": round(undisturbed),  # one worker
            "seconds": round(seconds),  # two workers or nodes, with all restarts
            "seed": seed,
            "options": list(words),
        }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("molecules", type=Path)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--ray", action="store_true", help="on a local cluster of two nodes")
    parser.add_argument("--term", action="store_true", help="send SIGTERM instead of SIGKILL")
    parser.add_argument("--model", default="benzene")
    parser.add_argument("--explainer", default="")
    parser.add_argument("--shard-size", default="16")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="JSON file, to which the outcome is added")
    given = parser.parse_args()
    words = ["--model", given.model, "--shard-size", given.shard_size, "--no-atoms"]
    words += ["--explainer", given.explainer] if given.explainer else []
    number = signal.SIGTERM if given.term else signal.SIGKILL
    found = compare(given.molecules, words, given.ray, given.kills, given.seed, number)
    print(json.dumps(found))
    if given.out:
        kept = json.loads(given.out.read_text()) if given.out.is_file() else {}
        write_json(
            given.out, {**kept, ("ray" if given.ray else "local") + "-term" * given.term: found}
        )
    is_same = found["equal_files"] and found["equal_rejects"] and not found["left_over"]
    if sum(found["kills"].values()) < given.kills:
        sys.exit("The run ended before all kills. Give more molecules.")
    sys.exit(0 if is_same else 1)


if __name__ == "__main__":
    main()
