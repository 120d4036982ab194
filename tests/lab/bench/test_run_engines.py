"""Where cells run: a killed run goes on, Ray gives the same rows, the command tells what it did."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from nicegnn.errors import ConfigError
from nicegnn_lab.bench import BenchConfig, RayEngine, make_engine, read_rows, run_bench
from nicegnn_lab.cli.main import app
from tests.lab.bench.small_bench import (
    NICE,
    QUICK,
    World,
    command_environment,
    use_world,
    without_clocks,
)

ROOT = Path(__file__).parents[3]
LONG = NICE | {"boundary__steps": 60}


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> World:
    monkeypatch.chdir(tmp_path)
    return use_world(monkeypatch)


def arguments(world: World, out: Path, *explainers: str) -> list[str]:
    names = [part for name in explainers for part in ("--explainer", name)]
    return [
        *("bench", "--dataset", "benzene", *names, "--out", str(out), "--device", "cpu"),
        *("--targets-folder", str(world.targets), "--fidelity", "em", "--ratio", "0.3,0.6"),
    ]


def run_command(*given: str):  # type: ignore[no-untyped-def]
    return CliRunner().invoke(app, list(given), catch_exceptions=False)


@pytest.mark.slow
def test_killed_run_goes_on_and_ends_as_an_uninterrupted_one(world: World, tmp_path: Path) -> None:
    settings = tmp_path / "long.toml"
    settings.write_text("[nice]\n" + "\n".join(f"{k} = {v}" for k, v in LONG.items()))
    out = tmp_path / "killed"
    command = [*arguments(world, out, "random", "nice", "saliency"), "--config", str(settings)]
    process = subprocess.Popen(
        [sys.executable, "-m", "nicegnn_lab.cli.main", *command],
        env=command_environment(world),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + 120
        while not list(out.glob("fits/*.part")) and time.monotonic() < deadline:
            assert process.poll() is None, "it ended before it could be killed"
            time.sleep(0.01)
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    assert len(list(out.glob("rows/*.parquet"))) == 1  # random only
    assert len(list(out.glob("fits/*.part"))) == 1  # the fit was under way

    tables = {"nice": LONG}
    names = ("random", "nice", "saliency")
    rest = run_bench(world.config(out, *names, settings=tables))
    assert len(rest.found) == 1
    assert rest.num_explained == 2
    whole = tmp_path / "whole"
    assert run_bench(world.config(whole, *names, settings=tables)).num_explained == 3
    rows, expected = read_rows(out), read_rows(whole)
    assert without_clocks(rows).equals(without_clocks(expected))
    assert len(rows) == len(expected) > 100
    seconds = rows[(rows["explainer"] == "nice") & (rows["metric"] == "fit_seconds")]["value"]
    assert seconds.isna().all()  # it was resumed, so nobody knows how long it took
    assert not list(out.glob("fits/*.part"))


@pytest.mark.slow
@pytest.mark.skipif(find_spec("ray") is None, reason="ray is not installed (extra 'cluster')")
def test_ray_gives_the_rows_of_a_local_run(world: World, tmp_path: Path) -> None:
    names = ("random", "nice", "ground-truth")
    local = world.config(tmp_path / "local", *names)
    assert run_bench(local).num_explained == 3
    code = f"""
from nicegnn_lab.bench import BenchConfig, MetricConfig, RayEngine, run_bench
config = BenchConfig(
    datasets=("benzene",), explainers={names!r}, out="ray", settings={{"nice": {NICE!r}}},
    targets_folder={str(world.targets)!r}, device="cpu",
    metrics=MetricConfig(removals={QUICK.removals!r}, ratios={QUICK.ratios!r}),
)
report = run_bench(config, engine=RayEngine(workers=1), say=print)
print(report)
print(run_bench(config, engine=RayEngine(workers=1)))
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=command_environment(world),
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert "3 explained" in done.stdout
    assert "Nothing to compute" in done.stdout
    rows = read_rows(tmp_path / "ray")
    assert without_clocks(rows).equals(without_clocks(read_rows(local.out)))
    assert {p.name for p in (tmp_path / "ray" / "rows").iterdir()} == {
        p.name for p in (local.out / "rows").iterdir()
    }


class RayError(Exception):
    """As Ray raises it when a worker dies."""


class PretendedRay:
    """Runs tasks when they are waited for; the second one dies with its worker."""

    exceptions = SimpleNamespace(RayError=RayError)

    def __init__(self) -> None:
        self.most_running = 0
        self.num_sent = 0
        self.tasks: dict[int, tuple[Callable[..., object], tuple[object, ...]]] = {}

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": 2.0}

    def put(self, value: object) -> object:
        return value

    def remote(self, **needs: float) -> Callable[..., SimpleNamespace]:
        assert needs["num_gpus"] == 0.0
        return lambda function: SimpleNamespace(remote=lambda *args: self._send(function, args))

    def _send(self, function: Callable[..., object], args: tuple[object, ...]) -> int:
        self.num_sent += 1
        self.tasks[self.num_sent] = (function, args)
        return self.num_sent

    def wait(self, running: list[int], num_returns: int) -> tuple[list[int], list[int]]:
        self.most_running = max(self.most_running, len(running))
        return running[-1:], running[:-1]  # the newest ends first

    def get(self, task: int) -> object:
        if task == 2:
            raise RayError("The worker died.")
        function, args = self.tasks[task]
        return function(*args)


def test_worker_that_dies_is_a_failure_of_its_cell_alone(world: World, tmp_path: Path) -> None:
    config = world.config(tmp_path, "random", seeds=(0, 1, 2, 3))
    ray, cells = PretendedRay(), config.cells()
    outcomes = list(RayEngine()._tasks(ray, cells, config.work))
    assert ray.most_running == 2
    assert sorted(outcome.cell.seed for outcome in outcomes) == [0, 1, 2, 3]
    assert [outcome.cell.seed for outcome in outcomes if not outcome.ok] == [1]
    record = json.loads((tmp_path / "failed" / f"{cells[1].key}.json").read_text())
    assert record["error"] == "RayError"
    assert run_bench(config).num_explained == 1


def test_engine_ray_without_ray_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, world: World, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.delitem(sys.modules, "ray.exceptions", raising=False)
    with pytest.raises(ConfigError, match=r"nicegnn\[cluster\]"):
        make_engine("ray")
    done = run_command(*arguments(world, tmp_path, "random"), "--engine", "ray")
    assert done.exit_code == 1
    assert "nicegnn[cluster]" in done.stderr
    assert not list(tmp_path.iterdir())


def test_rows_without_pyarrow_name_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ConfigError, match=r"nicegnn\[bench\]"):
        read_rows("nowhere")


def test_command_takes_lists_and_tells_what_it_did(world: World, tmp_path: Path) -> None:
    out = tmp_path / "out"
    given = [*arguments(world, out, "random,saliency", "ground-truth"), "--seed", "0,1"]
    first = run_command(*given, "--seed", "2", "--max-graphs", "3")
    assert first.exit_code == 0, first.output
    assert "[9/9]" in first.stdout
    assert "benzene gin saliency+em seed 1: 3 graphs" in first.stdout
    assert "9 cells: 9 explained" in first.stdout
    second = run_command(*given, "--seed", "2", "--max-graphs", "3")
    assert second.exit_code == 0
    assert "Nothing to compute: all 9 cells are finished." in second.stdout
    rows = read_rows(out)
    assert sorted(set(rows["seed"])) == [0, 1, 2]
    assert set(rows[rows["metric"] == "kept"]["level"]) == {0.3, 0.6}


def test_command_reads_named_settings_and_ends_with_a_code(world: World, tmp_path: Path) -> None:
    file = tmp_path / "explainers.toml"
    file.write_text("[gnnexplainer]\nsteps = 2\nlearning_rate = 1e300\n")  # nan after a step
    out = tmp_path / "out"
    given = [*arguments(world, out, "gnnexplainer,random"), "--max-graphs", "2"]
    given += ["--config", str(file)]
    done = run_command(*given)
    assert done.exit_code == 1
    assert "1 failed" in done.stdout
    assert "FAILED" in done.stdout
    assert len(list((out / "failed").iterdir())) == 1
    assert len(list((out / "rows").iterdir())) == 1
    skipped = run_command(*given, "--no-retry-failed")
    assert skipped.exit_code == 1
    assert "[1/" not in skipped.stdout
    file.write_text("[gnnexplainer]\nstep = 2\n")
    wrong = run_command(*given)
    assert wrong.exit_code == 1
    assert "step" in wrong.stderr


@pytest.mark.skipif(
    "NICEGNN_DATA" not in os.environ, reason="NICEGNN_DATA names no folder with the benchmarks"
)
def test_stored_targets_and_real_molecules(tmp_path: Path) -> None:
    config = BenchConfig(
        datasets=("alkane-carbonyl",),
        explainers=("random", "saliency", "ground-truth"),
        targets_folder=ROOT / "results" / "targets",
        out=tmp_path,
        max_graphs=25,
        device="cpu",
        metrics=QUICK,
    )
    report = run_bench(config)
    assert report.failed == ()
    rows = read_rows(tmp_path, where={"protocol": "paper", "metric": ["recall", "roc_auc"]})
    by_name = rows.groupby(["explainer", "metric"], observed=True)["value"].mean()
    assert by_name["ground-truth", "roc_auc"] == 1.0
    assert by_name["ground-truth", "recall"] == 1.0
    assert by_name["random", "roc_auc"] < by_name["saliency", "roc_auc"] < 1.0
    assert str(run_bench(config)).startswith("Nothing to compute")


def test_local_engine_refuses_what_only_ray_can_do() -> None:
    with pytest.raises(ConfigError, match="--engine ray"):
        make_engine("local", workers=4)
    with pytest.raises(ConfigError, match="must be one of"):
        make_engine("slurm")
