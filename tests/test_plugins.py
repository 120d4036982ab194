"""Plugins are loaded once, and a broken one is named with its file and line."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from nicegnn.cli.main import main
from nicegnn.errors import ConfigError
from nicegnn.explain import registry
from nicegnn.explain.registry import EXPLAINERS, load_plugins
from tests.lab.own_names import names_restored

GOOD = """
from nicegnn import register_explainer
from nicegnn_lab.rivals.references import Random

@register_explainer("Dice.")
class Dice(Random):
    name = "dice"
"""


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    with names_restored():
        yield


def write(folder: Path, text: str, name: str = "mine.py") -> Path:
    (folder / name).write_text(text)
    return folder / name


def test_a_file_is_loaded_once(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD)
    load_plugins(path)
    kind = EXPLAINERS["dice"].load()
    load_plugins(str(path))
    assert EXPLAINERS["dice"].load() is kind


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("x = 1\nx +\n", r"mine\.py, line 2: SyntaxError: invalid syntax\. Correct"),
        ("\n\nimport nosuchthing\n", r"mine\.py, line 3: ModuleNotFoundError: No module named"),
        ("def f():\n    1 / 0\n\nf()\n", r"mine\.py, line 2: ZeroDivisionError"),
        (GOOD.replace('"dice"', '"nice"'), r"line \d: The name of an explainer must be new \(got"),
        (
            "from nicegnn_lab import register_dataset\nregister_dataset('benzene', 'a.csv')\n",
            r"line 2: The name of a dataset must be new \(got 'benzene', which a benchmark uses\)",
        ),
    ],
)
def test_a_broken_file_is_named_with_its_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    text: str,
    told: str,
) -> None:
    path = write(tmp_path, text)
    with pytest.raises(ConfigError, match=told):
        load_plugins(path)
    assert f"nicegnn_plugin_{path.stem}" not in sys.modules  # it may be mended and loaded again
    monkeypatch.setattr("sys.argv", ["nicegnn", "explainers", "--plugin", str(path)])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 2
    out, line = capsys.readouterr()
    assert out == ""
    assert line.startswith("Error: Cannot load the plugin")
    assert len(line.splitlines()) == 1


def test_a_missing_file_and_a_second_file_of_one_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"must be a Python file \(got .*nosuch\.py"):
        load_plugins(tmp_path / "nosuch.py")
    with pytest.raises(ConfigError, match="must be a Python file"):
        load_plugins(write(tmp_path, GOOD, "mine.txt"))
    load_plugins(write(tmp_path, GOOD))
    (tmp_path / "other").mkdir()
    with pytest.raises(ConfigError, match="its own file name"):
        load_plugins(write(tmp_path / "other", GOOD))


def test_installed_packages_are_found_and_a_broken_one_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path, GOOD, "dice_package.py")
    write(tmp_path, "import nosuchthing", "broken_package.py")
    monkeypatch.syspath_prepend(tmp_path)
    entries = [
        EntryPoint(name, name, "nicegnn.plugins") for name in ("broken_package", "dice_package")
    ]
    monkeypatch.setattr(registry, "entry_points", lambda group: entries)
    registry._load_installed.cache_clear()
    try:
        with caplog.at_level(logging.WARNING):
            load_plugins()
    finally:
        registry._load_installed.cache_clear()
        sys.modules.pop("dice_package", None)
    assert EXPLAINERS["dice"].where == "dice_package:Dice"
    assert "The plugin broken_package of broken_package is left out" in caplog.text
