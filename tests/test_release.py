"""Wheel and source archive: they hold all that commands need, and run outside a checkout."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email import message_from_string
from pathlib import Path

import pytest

import nicegnn

ROOT = Path(__file__).parents[1]
BUILD = """
import sys
from setuptools import build_meta
folder = sys.argv[1]  # setuptools changes `sys.argv`
build_meta.build_sdist(folder)
build_meta.build_wheel(folder)
"""
RUN = """
import sys
from pathlib import Path
import nicegnn
from nicegnn.bench import read_settings
from nicegnn.bench.plan import CHOSEN_FILE, SEARCH_FILE
from nicegnn.bench.tuning import read_search
from nicegnn.cli.main import main

place = Path(sys.argv.pop(1))
assert place in Path(nicegnn.__file__).parents, nicegnn.__file__
assert place in CHOSEN_FILE.parents
assert "benzene" in read_settings(CHOSEN_FILE)
assert "pgexplainer" in read_search(SEARCH_FILE)
main()
"""


def call(*words: str, cwd: Path, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, *words],
        cwd=cwd,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The source archive and the wheel, built from a copy."""
    folder = tmp_path_factory.mktemp("release")
    copy = folder / "copy"
    shutil.copytree(
        ROOT / "src", copy / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info")
    )
    for path in ROOT.iterdir():
        if path.is_file():
            shutil.copy(path, copy)
    call("-c", BUILD, str(folder), cwd=copy)
    (archive,), (wheel,) = folder.glob("*.tar.gz"), folder.glob("*.whl")
    return archive, wheel


def test_wheel_and_archive_hold_every_file_of_the_package(built: tuple[Path, Path]) -> None:
    package = Path(nicegnn.__file__).parent
    ours = {
        path.relative_to(package.parent).as_posix()
        for path in package.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    with tarfile.open(built[0]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {f"src/{name}" for name in ours} <= names
    assert {"README.md", "LICENSE", "CITATION.cff", "SECURITY.md", "pyproject.toml"} <= names
    assert not any(name.startswith(("tests", "results")) for name in names)
    with zipfile.ZipFile(built[1]) as wheel:
        inside = set(wheel.namelist())
        assert inside >= ours
        assert {name for name in inside - ours if ".dist-info/" not in name} == set()
        (metadata,) = (name for name in inside if name.endswith("METADATA"))
        told = message_from_string(wheel.read(metadata).decode())
    assert told["Version"] == nicegnn.__version__
    assert set(told.get_all("Provides-Extra", [])) >= {
        *("molecules", "plots", "bench", "cluster", "page", "speed", "docs"),
    }


def test_version_is_told_the_same_everywhere() -> None:
    cited = re.search(r"^version: (.+)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    assert cited is not None
    assert cited[1] == nicegnn.__version__
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert "version" not in project
    assert project["dynamic"] == ["version"]


@pytest.mark.slow
def test_installed_wheel_runs_its_commands_in_an_empty_folder(
    built: tuple[Path, Path], tmp_path: Path
) -> None:
    place, empty = tmp_path / "place", tmp_path / "empty"
    empty.mkdir()
    pip = ("-m", "pip", "--disable-pip-version-check", "install", "-q", "--no-deps", "--no-index")
    call(*pip, "--target", str(place), str(built[1]), cwd=empty)
    demo = ("demo", "--num", "60", "--epochs", "2", "--steps", "2")
    said = call("-c", RUN, str(place), *demo, cwd=empty, PYTHONPATH=str(place))
    assert "ROC-AUC" in said
    assert (empty / "demo-output" / "index.html").is_file()
    said = call("-c", RUN, str(place), "explain", "CCO", cwd=empty, PYTHONPATH=str(place))
    assert "Explained by nice, fitted." in said  # the models and explainers are in the wheel
    assert sorted(path.name for path in empty.iterdir()) == ["demo-output", "explained.svg"]
