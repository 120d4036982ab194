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
import nicegnn_lab

ROOT = Path(__file__).parents[1]
BUILD = """
import sys
from setuptools import build_meta
what, folder = sys.argv[1:]  # setuptools changes `sys.argv`
if what == "both":
    build_meta.build_sdist(folder)
build_meta.build_wheel(folder)
"""
RUN = """
import sys
from pathlib import Path
import nicegnn
from nicegnn.cli.main import main

place = Path(sys.argv.pop(1))
assert place in Path(nicegnn.__file__).parents, nicegnn.__file__
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
    call("-c", BUILD, "both", str(folder), cwd=copy)
    (archive,), (wheel,) = folder.glob("*.tar.gz"), folder.glob("*.whl")
    return archive, wheel


def files_of(package: Path) -> set[str]:
    """Returns the files of a package, as they are named in a wheel."""
    return {
        path.relative_to(package.parent).as_posix()
        for path in package.rglob("*")
        if path.is_file()
        and not {"__pycache__", "build"} & set(path.parts[len(package.parts) :])
        and ".egg-info" not in str(path)
    }


def test_wheel_and_archive_hold_every_file_of_the_package(built: tuple[Path, Path]) -> None:
    ours = files_of(Path(nicegnn.__file__).parent)
    with tarfile.open(built[0]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {f"src/{name}" for name in ours} <= names
    assert {"README.md", "LICENSE", "CITATION.cff", "SECURITY.md", "pyproject.toml"} <= names
    assert not any(name.startswith(("tests", "results", "src/nicegnn_lab")) for name in names)
    with zipfile.ZipFile(built[1]) as wheel:
        inside = set(wheel.namelist())
        assert inside >= ours
        assert {name for name in inside - ours if ".dist-info/" not in name} == set()
        (metadata,) = (name for name in inside if name.endswith("METADATA"))
        told = message_from_string(wheel.read(metadata).decode())
    assert told["Version"] == nicegnn.__version__
    assert set(told.get_all("Provides-Extra", [])) >= {
        *("molecules", "plots", "tables", "cluster", "page", "speed", "docs"),
    }


def test_laboratory_is_a_wheel_of_its_own_with_its_commands(tmp_path: Path) -> None:
    laboratory = Path(nicegnn_lab.__path__[0])
    shutil.copytree(
        laboratory, tmp_path / "nicegnn_lab", ignore=shutil.ignore_patterns("__pycache__")
    )
    call("-c", BUILD, "wheel", str(tmp_path), cwd=tmp_path / "nicegnn_lab")
    (file,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(file) as wheel:
        inside = {name for name in wheel.namelist() if ".dist-info/" not in name}
        (entries,) = (name for name in wheel.namelist() if name.endswith("entry_points.txt"))
        told = wheel.read(entries).decode()
    assert inside == files_of(laboratory) - {"nicegnn_lab/pyproject.toml"}
    assert "lab = nicegnn_lab.cli.main:app" in told
    assert "lab = nicegnn_lab.rivals" in told


def test_version_is_told_the_same_everywhere() -> None:
    cited = re.search(r"^version: (.+)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    assert cited is not None
    assert cited[1] == nicegnn.__version__
    own = tomllib.loads((ROOT / "src/nicegnn_lab/pyproject.toml").read_text())["project"]
    assert own["version"] == nicegnn.__version__
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert "version" not in project
    assert project["dynamic"] == ["version"]
    sections = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert sections[0] == nicegnn.__version__
    assert len(sections) == len(set(sections))


@pytest.mark.slow
def test_installed_wheel_runs_its_commands_in_an_empty_folder(
    built: tuple[Path, Path], tmp_path: Path
) -> None:
    place, empty = tmp_path / "place", tmp_path / "empty"
    empty.mkdir()
    pip = ("-m", "pip", "--disable-pip-version-check", "install", "-q", "--no-deps", "--no-index")
    call(*pip, "--target", str(place), str(built[1]), cwd=empty)
    said = call("-c", RUN, str(place), "explain", "CCO", cwd=empty, PYTHONPATH=str(place))
    assert "with a background of" in said  # models and backgrounds are in the wheel
    assert sorted(path.name for path in empty.iterdir()) == ["explained.svg"]
