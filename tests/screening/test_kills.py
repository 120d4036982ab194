"""Kills and Ctrl-C: the shards are those of an undisturbed run, and no process is left."""

from __future__ import annotations

import os
import random
import signal
import time
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from benchmarks.kills import disturb, kill_local, shards, start, two_nodes
from nicegnn.screening.reading import Reader
from nicegnn.screening.run import run
from nicegnn.screening.settings import ModelConfig, RunConfig
from nicegnn_lab.datasets.generator import generate_dataset
from tests.screening.small_screen import write_csv


def write_library(path: Path, num: int) -> Path:
    """Writes molecules of which one cannot be read."""
    rows: list[list[object]] = [[graph.smiles] for graph in generate_dataset("benzene", num)]
    rows[77] = ["C1CC("]
    return write_csv(path, ["smiles"], rows)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_library(tmp_path_factory.mktemp("library") / "in.csv", 200)


def words(library: Path, model_file: Path) -> list[str]:
    given = ("--model", str(model_file), "--explainer", "saliency", "--shard-size", "4")
    return [str(library), *given]


def undisturbed(library: Path, model_file: Path, out: Path) -> dict[str, bytes]:
    """Returns the shards of a run without kills."""
    model = ModelConfig(model=str(model_file), explainer="saliency")
    run(Reader(library), RunConfig(shard_size=4, model=model), out)
    return shards(out)


@pytest.mark.slow
def test_kills_of_workers_and_driver_leave_no_trace(
    library: Path, model_file: Path, tmp_path: Path
) -> None:
    given = [*words(library, model_file), "--workers", "2"]
    hit = disturb(tmp_path / "out", given, kill_local, 3, random.Random(2))
    assert hit.total() > 0
    assert shards(tmp_path / "out") == undisturbed(library, model_file, tmp_path / "whole")
    assert not list((tmp_path / "out" / "shards").glob(".*"))


@pytest.mark.slow
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_and_sigterm_end_all_processes_and_leave_whole_files(
    library: Path, model_file: Path, tmp_path: Path, sent: signal.Signals
) -> None:
    out = tmp_path / "out"
    driver = start(out, [*words(library, model_file), "--workers", "2"])
    deadline = time.monotonic() + 120
    while not list(out.glob("shards/*.parquet")) and time.monotonic() < deadline:
        assert driver.poll() is None, out.with_suffix(".log").read_text()
        time.sleep(0.005)
    if sent == signal.SIGINT:
        os.killpg(driver.pid, sent)  # as a terminal does
    else:
        driver.send_signal(sent)
    assert driver.wait(60) == 130
    assert "goes on from there" in out.with_suffix(".log").read_text()
    assert not list((out / "shards").glob(".*"))
    assert is_gone(driver.pid)


def is_gone(group: int) -> bool:
    """Whether all processes of a group end soon."""
    deadline = time.monotonic() + 20
    with suppress(ProcessLookupError):
        while time.monotonic() < deadline:
            os.killpg(group, 0)
            time.sleep(0.01)
        return False
    return True


@pytest.mark.cluster
@pytest.mark.skipif(find_spec("ray") is None, reason="ray is not installed (extra 'cluster')")
def test_kills_on_a_cluster_of_two_nodes_leave_no_trace(model_file: Path, tmp_path: Path) -> None:
    library, out = write_library(tmp_path / "in.csv", 1000), tmp_path / "out"
    turns = ["task", "driver", "node"]  # a worker, then the driver, then a node with its workers

    class Chosen(random.Random):
        def choice(self, seq: Any) -> Any:
            return turns[0] if turns[0] in seq else super().choice(seq)

    with two_nodes() as (address, kill):

        def in_turn(driver: Any, rng: random.Random) -> str:
            found = kill(driver, Chosen(0))
            if found:
                turns.pop(0)
            return found

        given = [*words(library, model_file), "--ray", address]
        hit = disturb(out, given, in_turn, 3, random.Random(0))
    assert hit == {"task": 1, "driver": 1, "node": 1}
    assert shards(out) == undisturbed(library, model_file, tmp_path / "whole")
