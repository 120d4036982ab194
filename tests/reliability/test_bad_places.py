"""Full disks, forbidden folders, killed and competing processes: whole files or none."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from nicegnn import store
from nicegnn.cli.main import app, main
from nicegnn.errors import StoreError
from nicegnn.store import load_tensors, save_tensors, write_json, write_text
from nicegnn_lab.bench.rows import read_rows
from nicegnn_lab.datasets.dataset import load_dataset
from tests.lab.bench.small_bench import command_environment, use_world, without_clocks

linux = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc and file size limits")
BIG = {"a": torch.zeros(50_000)}


@contextmanager
def full_disk(num_bytes: int) -> Iterator[None]:
    """Lets no file grow beyond a size: the system refuses a write half-way."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def picture(path: Path) -> None:
    pytest.importorskip("matplotlib")
    from matplotlib.figure import Figure

    from nicegnn_lab.figures.panels import save_figure

    figure = Figure()
    figure.subplots().plot(range(1000))
    save_figure(figure, path)


@linux
@pytest.mark.parametrize(
    "write",
    [
        lambda path: save_tensors(path, BIG, {"kind": "k"}),
        lambda path: write_text(path, "x" * 100_000),
        lambda path: write_json(path, list(range(50_000))),
        picture,
    ],
    ids=["tensors", "text", "json", "figure"],
)
def test_a_write_that_is_cut_off_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, write: Callable[[Path], None]
) -> None:
    path = tmp_path / "file.png"
    path.write_text("old")
    with full_disk(5_000), pytest.raises(StoreError, match=r"Cannot write .*file\.png: "):
        write(path)
    assert path.read_text() == "old"
    assert [file.name for file in tmp_path.iterdir()] == ["file.png"]
    write(path)
    assert path.stat().st_size > 5_000


def no_space(*arguments: object, **settings: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_ends_the_benchmark_with_one_line_and_it_goes_on_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    world, out = use_world(monkeypatch), tmp_path / "out"
    words = [
        "lab",
        "bench",
        "-d",
        "benzene",
        "-e",
        "random",
        "--max-graphs",
        "3",
        "--fidelity",
        "none",
    ]
    words += ["--out", str(out), "--targets-folder", str(world.targets), "--device", "cpu"]
    monkeypatch.setattr("sys.argv", ["nicegnn", *words])
    with monkeypatch.context() as patch:
        patch.setattr(store.os, "replace", no_space)
        with pytest.raises(SystemExit) as stop:
            main()
    assert stop.value.code == 1
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("Error: Cannot write ")
    assert "No space left on device. Make room" in last
    assert [path for path in out.rglob("*") if path.is_file()] == []
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 0
    assert "1 cells: 1 measured" in capsys.readouterr().out


@linux
@pytest.mark.parametrize(
    "words",
    [("train", "in.csv", "--out"), ("lab", "bench", "-d", "benzene", "-e", "random", "--out")],
)
def test_a_folder_that_nobody_can_write_is_one_line_with_code_two(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["nicegnn", *words, "/proc/nosuch/place"])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 2
    out, line = capsys.readouterr()
    assert out == ""
    assert "that can be written (got /proc/nosuch/place: " in line
    assert len(line.splitlines()) == 1


@linux
def test_data_are_read_without_a_cache_that_can_be_written(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    world = use_world(monkeypatch)
    found = load_dataset("benzene", cache="/proc/nosuch")
    assert len(found) == len(world.dataset())
    assert "Cannot write /proc/nosuch/" in caplog.text
    assert "Set NICEGNN_CACHE" in caplog.text


KILLED = """
import os, random, signal, sys, time
from pathlib import Path
import torch
from nicegnn.store import load_tensors, save_tensors, write_json

torch.set_num_threads(1)
folder, rounds = Path(sys.argv[1]), 60
path = folder / "file.safetensors"
save_tensors(path, {"a": torch.full((200_000,), 0.0)}, {"kind": "k"})
whole = 0
for number in range(rounds):
    child = os.fork()
    if child == 0:
        while True:
            for value in (1.0, 2.0):
                save_tensors(path, {"a": torch.full((200_000,), value)}, {"kind": "k"})
    time.sleep(random.Random(number).uniform(0.001, 0.02))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    values = load_tensors(path, "k")[0]["a"].unique().tolist()
    assert len(values) == 1, values
    whole += values[0] > 0
print(whole, len(os.listdir(folder)) - 1)
"""


@linux
def test_a_killed_process_leaves_the_old_file_or_the_new_one(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(KILLED), str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    replaced, half_way = map(int, done.stdout.split())
    assert replaced > 0
    assert half_way > 0  # some were killed while they wrote; else this shows nothing
    rest = [path.name for path in tmp_path.iterdir() if path.name != "file.safetensors"]
    assert all(name.startswith(".") for name in rest)  # no reader looks at hidden files
    assert load_tensors(tmp_path / "file.safetensors", "k")


@pytest.mark.slow
def test_two_processes_share_a_cache_and_a_folder_of_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = use_world(monkeypatch)
    environment = command_environment(world) | {"NICEGNN_CACHE": str(tmp_path / "cache")}
    words = [
        "lab",
        "bench",
        "-d",
        "benzene",
        "-e",
        "random,saliency",
        "-s",
        "0,1",
        "--device",
        "cpu",
    ]
    words += ["--max-graphs", "4", "--fidelity", "em"]
    words += ["--targets-folder", str(world.targets), "--out"]
    command = [sys.executable, "-m", "nicegnn_lab.cli.main", *words[1:]]
    command += [str(tmp_path / "shared")]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    both = [subprocess.Popen(command, env=environment, **pipes) for _ in range(2)]  # type: ignore[call-overload]
    alone = CliRunner().invoke(app, [*words, str(tmp_path / "alone")])
    assert alone.exit_code == 0, alone.output
    for process in both:
        said, _ = process.communicate(timeout=200)
        assert process.returncode == 0, said
    shared, single = (without_clocks(read_rows(tmp_path / name)) for name in ("shared", "alone"))
    assert len(shared) > 0
    assert shared.equals(single)
    assert len(list((tmp_path / "shared" / "rows").iterdir())) == 4
    assert list(tmp_path.rglob("*.part")) == []
    assert len(list((tmp_path / "cache" / "datasets").iterdir())) == 1
