"""CONTRIBUTING says what is true: its flow, the way of one molecule, and recipes that run."""

from __future__ import annotations

import re
import runpy
import shlex
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import pytest
from typer.testing import CliRunner

import nicegnn
from nicegnn.cli.main import app
from nicegnn.explain.registry import Entry, load_plugins
from nicegnn_lab.studies import STUDIES
from nicegnn_lab.tables.registry import TABLES
from tests.lab.own_names import names_restored
from tests.test_flow import FLOW, SHARED

TEXT = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text(encoding="utf-8")
PRODUCT = Path(nicegnn.__path__[0])
RECIPES = ("explainer", "mechanism", "dataset", "metric", "study", "table", "command")


def recipe(name: str) -> str:
    """Returns the section of a recipe."""
    found = re.search(rf"^### An? {name}\n(.*?)(?=^##|\Z)", TEXT, re.DOTALL | re.MULTILINE)
    assert found, name
    return found[1]


def block(kind: str, text: str) -> str:
    found = re.search(rf'^```{kind}(?: title=".+?")?\n(.*?)^```', text, re.DOTALL | re.MULTILINE)
    assert found, kind
    return found[1]


def type_in(line: str) -> str:
    """Runs a line of a shell; returns what it printed."""
    program, *words = shlex.split(line)
    if program == "python":
        runpy.run_path(words[0])
        return ""
    assert program == "nicegnn"
    done = CliRunner().invoke(app, words, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Does all recipes, one after the other in one folder; what each printed, by its name."""
    folder, said = tmp_path_factory.mktemp("recipes"), {}
    with pytest.MonkeyPatch.context() as patch, names_restored():
        patch.chdir(folder)
        patch.setenv("NICEGNN_CACHE", str(folder / "cache"))
        patch.setenv("NICEGNN_DATA", str(folder / "data"))
        patch.setattr(app, "registered_commands", [*app.registered_commands])
        try:
            for name in RECIPES:
                text, file = recipe(name), folder / f"{name}.py"
                assert f'title="{file.name}"' in text
                file.write_text(block("python", text))
                if name == "command":
                    load_plugins(file)
                said[name] = "".join(type_in(line) for line in block("sh", text).splitlines())
            yield said
        finally:
            STUDIES.pop("prototypes", None)
            TABLES.pop("prototypes", None)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("explainer", "Explained by lonely"),
        ("mechanism", ""),
        ("dataset", "60 graphs, 30 positives"),
        ("metric", "2 cells: 2 measured"),
        ("study", "prototypes: 2 cells: 2 measured"),
        ("table", "AUC by the number of prototypes"),
        ("command", "3 atoms"),
    ],
)
def test_a_recipe_does_what_it_says(done: dict[str, str], name: str, told: str) -> None:
    assert told in done[name]


def test_the_entry_of_an_explainer_is_one_of_the_registry() -> None:
    text = recipe("explainer")
    ((name, about),) = tomllib.loads(block("toml", text)).items()
    package, _, kind = Entry(name, **about).where.partition(":")
    assert package == f"nicegnn_lab.rivals.{name}"
    assert f"class {kind}(ScoreExplainer)" in text


def test_every_recipe_names_files_and_names_that_exist() -> None:
    for name in RECIPES:
        where = recipe(name).partition("In the library")[2]
        assert where, name
        for path in re.findall(r"`(src/[\w/.]+)`", where):
            assert (PRODUCT.parents[1] / path).exists(), path


def test_tables_of_the_flow_are_those_that_are_enforced() -> None:
    packages = re.findall(r"^\| `(\w+)` \|", TEXT, re.MULTILINE)
    assert packages == [*FLOW["nicegnn"], *FLOW["nicegnn_lab"]]
    (roots,) = re.findall(r"A root holds what all share: (.*?)\. ", TEXT, re.DOTALL)
    assert sorted(re.findall(r"`(\w+)`", roots)) == sorted(SHARED)


def test_one_molecule_goes_through_the_listed_functions_in_their_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = re.findall(r"^\d+\. `(.+?\.py)`: `(\w+)`", TEXT, re.MULTILINE)
    assert 5 < len(listed) <= 12
    called: list[tuple[str, str]] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        path = Path(frame.f_code.co_filename)
        if event == "call" and PRODUCT in path.parents:
            called.append((path.relative_to(PRODUCT).as_posix(), frame.f_code.co_name))

    monkeypatch.chdir(tmp_path)
    from nicegnn.screening.run import load_once

    load_once.cache_clear()
    sys.setprofile(note)
    try:
        type_in("nicegnn explain CCO")
    finally:
        sys.setprofile(None)
    place = iter(called)
    assert [one for one in listed if one not in place] == []  # each after the one before
