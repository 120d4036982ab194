"""docs/own-things.md runs as it stands, and changed plugins are measured again."""

from __future__ import annotations

import re
import runpy
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from nicegnn.cli.main import app
from nicegnn_lab.bench.rows import read_rows
from tests.lab.own_names import names_restored

PAGE = Path(__file__).parents[2] / "docs" / "own-things.md"
TEXT = PAGE.read_text(encoding="utf-8")


def run(line: str) -> str:
    done = CliRunner().invoke(app, shlex.split(line)[1:], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with the files of the page."""
    for name, content in re.findall(r'```python title="(.+?)"\n(.+?)```', TEXT, re.DOTALL):
        (tmp_path / name).write_text(content)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NICEGNN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("NICEGNN_DATA", str(tmp_path / "data"))
    with names_restored():
        yield tmp_path


def again(line: str) -> str:
    """Runs a command as a new process would: its plugins are loaded anew."""
    with names_restored():
        return run(line)


def test_the_page_runs_as_it_stands(folder: Path) -> None:
    (block,) = re.findall(r"```sh\n(.+?)```", TEXT, re.DOTALL)
    table, *commands = block.splitlines()
    runpy.run_path(table.removeprefix("python "))
    said = {line.split()[2]: again(line) for line in commands}
    assert "240 graphs, 120 positives" in said["data"]
    assert "  test accuracy" in said["train-targets"]
    assert "3 cells: 3 measured" in said["bench"]
    assert "Mass in percent (higher is better), protocol paper, target small" in said["table"]
    assert "| lonely | rival |" in (folder / "results/tables/quality-small.md").read_text()

    bench, plugin = commands[2], folder / "mine.py"
    assert "all 3 cells are finished" in again(bench)
    packed = again("nicegnn lab pack")  # a file for each family of explainers
    assert "1 cells, " in packed
    assert "2 cells, " in packed
    rows = read_rows(folder / "results/bench", {"metric": "mass", "explainer": "lonely"})
    plugin.write_text(plugin.read_text().replace("1 / torch.bin", "-1 * torch.bin"))
    assert "3 cells: 3 measured" in again(bench)
    changed = read_rows(folder / "results/bench", {"metric": "mass", "explainer": "lonely"})
    assert len(changed) == len(rows) > 0
    assert rows["value"].notna().all()
    assert changed["value"].isna().all()  # no score is positive now


def test_a_name_without_its_plugin_is_unknown_and_says_what_to_do(folder: Path) -> None:
    done = CliRunner().invoke(app, shlex.split("lab bench -d nitro -e lonely"))
    assert done.exit_code == 2
    assert "`--dataset` must be one of" in done.stderr
    assert "Name the --plugin that adds it" in done.stderr
