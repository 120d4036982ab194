"""Full disks, forbidden folders, killed and competing processes: whole files or none."""

from __future__ import annotations

import resource
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from nicegnn.cli.main import main
from nicegnn.errors import StoreError
from nicegnn.store import load_tensors, save_tensors, write_json, write_text

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


@linux
@pytest.mark.parametrize(
    "write",
    [
        lambda path: save_tensors(path, BIG, {"kind": "k"}),
        lambda path: write_text(path, "x" * 100_000),
        lambda path: write_json(path, list(range(50_000))),
    ],
    ids=["tensors", "text", "json"],
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


@linux
def test_a_folder_that_nobody_can_write_is_one_line_with_code_two(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["train", "in.csv", "--out", "/proc/nosuch/place"]
    monkeypatch.setattr("sys.argv", ["nicegnn", *words])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 2
    out, line = capsys.readouterr()
    assert out == ""
    assert "that can be written (got /proc/nosuch/place: " in line
    assert len(line.splitlines()) == 1


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
