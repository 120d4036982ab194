"""Engines: every block is done once, whatever happens to workers."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch

from nicegnn.errors import ConfigError
from nicegnn.screening import engines
from nicegnn.screening.engines import Block, WorkerError, here, in_processes, on_ray
from nicegnn.screening.reading import Record
from nicegnn.screening.settings import EngineConfig
from tests.screening.small_screen import DyingWork, FailingWork


def blocks(num: int) -> Iterator[Block]:
    for number in range(num):
        yield Block(number, (Record(number + 1, str(number), "C", {}),))


def test_blocks_of_workers_that_die_are_done_by_others(tmp_path: Path) -> None:
    found = list(in_processes(blocks(6), DyingWork(tmp_path, {0: 1, 4: 1}), 2))
    assert sorted(found) == [0, 1, 2, 3, 4, 5]
    assert len(list(tmp_path.iterdir())) == 2  # so many died


def test_a_block_that_kills_every_worker_ends_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "MOST_DEATHS", 2)
    work = DyingWork(tmp_path, {0: 2})
    with pytest.raises(WorkerError, match=r"survive rows 1 to 1 .* code -9"):
        list(in_processes(blocks(1), work, 1))


def test_an_error_of_a_worker_is_told_in_its_words() -> None:
    with pytest.raises(WorkerError, match=r"^Cannot write \d: no space left\.$"):
        list(in_processes(blocks(3), FailingWork(), 1))


def test_only_as_many_blocks_are_read_as_workers_can_take(tmp_path: Path) -> None:
    taken: list[int] = []

    def watched() -> Iterator[Block]:
        for block in blocks(50):
            taken.append(block.number)
            yield block

    run = here(watched(), DyingWork(tmp_path, {}))
    assert [next(run), next(run)] == taken == [0, 1]


def test_one_thread_here_as_in_workers_and_then_as_before() -> None:
    torch.set_num_threads(2)
    try:
        run = here(blocks(1), lambda block: torch.get_num_threads())
        assert list(run) == [1]
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)


@pytest.mark.parametrize(
    ("words", "num", "device", "chosen"),
    [
        ({}, 300, "cpu", "here"),
        ({}, 10**6, "cuda", "here"),
        ({"workers": 3}, 300, "cpu", "in_processes"),
        ({"ray": "auto"}, 300, "cpu", "on_ray"),
    ],
)
def test_settings_and_the_number_of_molecules_choose_the_engine(
    words: dict[str, Any], num: int, device: str, chosen: str
) -> None:
    found = engines.do_all((), len, EngineConfig(**words), num, device)
    assert found.__name__ == chosen  # type: ignore[attr-defined]


def test_ray_that_is_not_installed_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ImportError, match=r"nicegnn\[cluster\]"):
        list(on_ray(blocks(1), len, EngineConfig(ray="local")))


@pytest.mark.cluster
@pytest.mark.skipif(find_spec("ray") is None, reason="ray is not installed (extra 'cluster')")
def test_a_block_that_kills_every_worker_ends_the_run_on_ray(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "MOST_RETRIES", 2)
    run = on_ray(blocks(3), DyingWork(tmp_path, {0: 1, 1: 3}), EngineConfig(ray="local", workers=1))
    assert next(run) == 0  # its worker died once
    with pytest.raises(WorkerError, match=r"^Ray must do rows 2 to 2 .* after 2 retries"):
        list(run)


@pytest.mark.skipif(find_spec("ray") is None, reason="ray is not installed (extra 'cluster')")
def test_an_address_where_nobody_listens_is_told_at_once(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, but it does not listen
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ConfigError, match=f"`address` must be .*{address}.*ray start --head"):
            list(on_ray(blocks(1), DyingWork(tmp_path, {}), EngineConfig(ray=address)))
