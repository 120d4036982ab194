"""The site builds strictly and offline; code, commands and names of the pages are real."""

from __future__ import annotations

import importlib
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields
from functools import reduce
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

import nicegnn
from nicegnn.cli.main import app
from nicegnn.config import NICEConfig
from nicegnn_lab.rivals import EXPLAINERS
from tests.lab.own_names import names_restored

ROOT = Path(__file__).parents[1]
RUN = [ROOT / "README.md", *ROOT.glob("docs/tutorial-*.md"), *ROOT.glob("docs/howto/*.md")]
#: Pages that speak of the present; the others tell what was.
PRESENT = [
    path
    for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("benchmarks/*.md")]
    if path.name not in ("CHANGELOG.md", "what-went.md")
]
_BLOCK = re.compile(
    r'^```(python|console|csv)(?: title="(.+?)")?\n(.*?)^```', re.DOTALL | re.MULTILINE
)
_NUMBER = re.compile(r"(?<![\w.,])\d+\.\d+(?![\w.])")
_CODE = re.compile(r"```\w*[^\n]*\n(.*?)```|`([^`\n]+)`", re.DOTALL)


def names_of(paths: list[Path]) -> list[str]:
    return sorted(path.relative_to(ROOT).as_posix() for path in paths)


# --- the site ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    for package in ("mkdocs", "material", "mkdocstrings"):
        pytest.importorskip(package)
    folder = tmp_path_factory.mktemp("docs") / "site"
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "-d", str(folder)],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_site_builds_strictly_and_asks_nothing_of_the_network(site: Path) -> None:
    assert "explanation" in (site / "reference/explaining.html").read_text()
    for page in site.rglob("*.html"):
        text = page.read_text()
        loaded = re.findall(r'<(?:script|img)[^>]* src="(https?:[^"]+)"', text)
        loaded += re.findall(
            r'<link rel="(?:stylesheet|preconnect)"[^>]*href="(https?:[^"]+)', text
        )
        assert loaded == [], page
        assert ".. math::" not in text, page
        for name in re.findall(r'(?:href|src)="([\w./-]*results/[^"#]+)"', text):
            assert (page.parent / name).is_file(), (page, name)


def test_search_works_in_pages_that_are_opened_from_disk(site: Path, browser: Any) -> None:
    page = browser.new_page()
    asked: list[str] = []
    page.on("request", lambda one: asked.append(one.url))
    page.goto((site / "howto" / "many.html").as_uri())
    page.focus("input[name=query]")
    page.keyboard.type("k-medoids")
    page.wait_for_selector(".md-search-result__item a[href*='method.html']", timeout=20_000)
    assert [url for url in asked if not url.startswith(("file:", "about:"))] == []
    page.close()


@pytest.mark.parametrize("name", ["README.md", "CHANGELOG.md"])
def test_links_of_files_outside_the_site_lead_somewhere(name: str) -> None:
    links = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", (ROOT / name).read_text(encoding="utf-8"))
    assert len(links) > 2
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_table_of_explainers_is_that_of_the_registry() -> None:
    page = (ROOT / "docs" / "explainers.md").read_text(encoding="utf-8")
    lines = [
        f"| `{one.name}` | {one.summary} | {one.cost} | {', '.join(one.mechanisms) or '-'} "
        f"| {one.group} | {one.citation} |"
        for one in EXPLAINERS.values()
    ]
    assert lines == [line for line in page.splitlines() if line.startswith("| `")]


# --- numbers -------------------------------------------------------------------------------------


def rows_of_numbers(text: str) -> Iterator[tuple[str, list[str]]]:
    """Yields the first cell and the numbers with a decimal point of each row of a page's tables."""
    for line in text.splitlines():
        if line.startswith("|"):
            row = re.sub(r"`[^`]*`|\*\*", "", line)
            if numbers := _NUMBER.findall(row):
                yield row.split("|")[1].strip(), numbers


def sources_of(path: Path) -> list[str]:
    """Returns what a page links to below results/: lines of tables, and whole files of JSON."""
    text = path.read_text(encoding="utf-8")
    linked = [path.parent / link for link in re.findall(r"\]\(([^)#]*results/[^)#]+)", text)]
    folders = [ROOT / name for name in re.findall(r"`(results/[\w/-]+/)`", text)]
    json = [file for folder in folders for file in folder.rglob("*.json")]
    json += [file for file in linked if file.suffix == ".json"]
    tables = [file.read_text(encoding="utf-8") for file in linked if file.suffix == ".md"]
    lines = [line for table in tables for line in table.splitlines()]
    return [*(file.read_text(encoding="utf-8") for file in json), *lines]


def is_in(number: str, source: str) -> bool:
    """Whether a source has a number, perhaps with more digits, or as a share of 1."""
    value, places = float(number), len(number.partition(".")[2])
    known = [float(one) for one in _NUMBER.findall(source)]
    return any(round(scale * one, places) == value for one in known for scale in (1, 100))


@pytest.mark.parametrize("name", names_of([*ROOT.glob("docs/**/*.md"), ROOT / "README.md"]))
def test_every_number_in_a_table_stands_in_a_file_of_results_that_the_page_names(name: str) -> None:
    """They stand together in one row or file there, or in rows of the same name."""
    rows = [*rows_of_numbers((ROOT / name).read_text(encoding="utf-8"))]
    sources, lost = sources_of(ROOT / name), []
    for label, numbers in rows if name != "docs/datasets.md" else []:  # that page is made of data
        near = sources if name == "docs/readings.md" else [one for one in sources if label in one]
        together = any(all(is_in(number, one) for number in numbers) for one in sources)
        if not together and not all(any(is_in(one, line) for line in near) for one in numbers):
            lost.append((label, numbers))
    assert lost == []


# --- code and commands ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", names_of(RUN))
def test_page_runs_as_it_stands(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks run in order, in one folder; those with a title are files."""
    package = {"chemprop": "chemprop", "admet": "admet_ai"}.get(Path(name).stem, "torch")
    if find_spec(package) is None:
        pytest.skip(f"needs {package}")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    text = (ROOT / name).read_text(encoding="utf-8")
    names: dict[str, object] = {"__name__": "page"}
    with names_restored():  # of plugins
        for found in _BLOCK.finditer(text):
            kind, title, content = found.groups()
            if title:
                (tmp_path / title).write_text(content, encoding="utf-8")
                monkeypatch.delitem(sys.modules, Path(title).stem, raising=False)
            elif kind == "python":
                line = text[: found.start(3)].count("\n")
                exec(compile("\n" * line + content, name, "exec"), names)
            else:
                _type(content)


def _type(block: str) -> None:
    """Types the commands of a block; numbers apart, each line that it shows must be printed."""
    for typed in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, *shown = typed.replace("\\\n", " ").strip().splitlines()
        words = shlex.split(command, comments=True)
        assert words[0] == "nicegnn", command
        done = CliRunner().invoke(app, words[1:], catch_exceptions=False)
        assert done.exit_code in (0, 3), done.output
        printed = {_without_numbers(line) for line in done.output.splitlines()}
        for line in shown:
            assert line.strip() == "..." or _without_numbers(line) in printed, done.output


def _without_numbers(line: str) -> str:
    """Returns a line with zeros for its numbers, but for those of atoms (C12)."""
    return re.sub(r"(?<![\w.])[+-]?\d+(\.\d+)?", "0", " ".join(line.split()))


# --- names ---------------------------------------------------------------------------------------


def code_of(path: Path) -> list[str]:
    """Returns the code of a page, lines of blocks and words between backticks."""
    text = path.read_text(encoding="utf-8").replace("\\\n", " ")
    return [line for block, word in _CODE.findall(text) for line in (block or word).splitlines()]


def commands() -> Iterator[tuple[str, Any]]:
    """Yields all commands and groups by their full names."""
    waiting = [("nicegnn", typer.main.get_command(app))]
    while waiting:
        name, one = waiting.pop()
        yield name, one
        waiting += [(f"{name} {word}", inner) for word, inner in _inner(one).items()]


def _inner(command: Any) -> dict[str, Any]:
    return getattr(command, "commands", {})


def made_on(name: str) -> set[str]:
    """Returns the names that a page gives to things of its own."""
    code = "\n".join(code_of(ROOT / name))
    return set(re.findall(r"^def (\w+)", code, re.MULTILINE)) | set(
        re.findall(r'^ +name = "(\w+)"', code, re.MULTILINE)
    )


def unknown_word(line: str) -> str | None:
    """Returns the first word of a typed command that nicegnn does not know, if there is one."""
    words, command = line.split(" # ")[0].split()[1:], typer.main.get_command(app)
    while words and _inner(command) and re.fullmatch(r"[a-z][a-z-]+", words[0]):
        if words[0] not in _inner(command):
            return words[0]
        command = _inner(command)[words.pop(0)]
    known = {flag for param in command.params for flag in (*param.opts, *param.secondary_opts)}
    known |= {"--help", "-h", "--version"}
    flags = [word.partition("=")[0] for word in words if re.match(r"--?[a-zA-Z]", word)]
    return next((flag for flag in flags if flag not in known), None)


@pytest.mark.parametrize("line", ["nicegnn quick", "nicegnn explain --sharp", "nicegnn lab draw"])
def test_a_wrong_command_is_noticed(line: str) -> None:
    assert unknown_word(line) == line.split()[-1]


@pytest.mark.parametrize("name", names_of(PRESENT))
def test_a_page_names_no_command_or_option_that_does_not_exist(name: str) -> None:
    typed = [re.match(r"(?:\$ )?(nicegnn [a-z-].*)", line.strip()) for line in code_of(ROOT / name)]
    wrong = {found[1]: unknown_word(found[1]) for found in typed if found}
    assert {line: word for line, word in wrong.items() if word not in (None, *made_on(name))} == {}


def test_every_help_has_an_example_that_can_be_typed() -> None:
    for name, command in commands():
        if not _inner(command):
            lines = [line.strip() for line in str(command.help).splitlines()]
            examples = [line for line in lines if line.startswith(f"{name} ") or line == name]
            assert examples, f"{name} --help must show an example"
            assert [unknown_word(line) for line in examples] == [None] * len(examples), name


@pytest.mark.parametrize("name", names_of(PRESENT))
def test_a_page_names_no_module_attribute_setting_or_file_that_does_not_exist(name: str) -> None:
    code = "\n".join(code_of(ROOT / name))
    settings = [f"{part}.{one.name}" for part, of in _parts().items() for one in fields(of)]
    wrong = []
    for dotted in re.findall(r"(?<![\w./-])nicegnn(?:_lab)?(?:\.\w+)+(?!\.?[\w/])", code):
        last = dotted.rpartition(".")[2]
        if not _exists(dotted) and last not in ("plugins", "commands", *made_on(name)):
            wrong.append(dotted)  # entry points have such names too
    for owner, attribute in re.findall(r"(?<![\w.])([A-Z]\w+)\.(\w+)", code):
        kind = getattr(nicegnn, owner, None) if owner in nicegnn.__all__ else None
        if kind and not (hasattr(kind, attribute) or attribute in _annotations(kind)):
            wrong.append(f"{owner}.{attribute}")
    for part, setting in re.findall(r"\b(boundary|attribution)(?:__|\.)(\w+)(?!\.?\w*[(/])", code):
        if f"{part}.{setting}" not in settings and not _exists(f"nicegnn.{part}.{setting}"):
            wrong.append(f"{part}.{setting}")
    for path in re.findall(r"(?<![\w/.])((?:src|tests|benchmarks|examples|docs)/[\w/.-]+)", code):
        if not (ROOT / path).exists():
            wrong.append(path)
    assert wrong == []


def _parts() -> dict[str, Any]:
    config = NICEConfig()
    return {"boundary": type(config.boundary), "attribution": type(config.attribution)}


def _annotations(kind: type) -> set[str]:
    return {name for one in kind.__mro__ for name in getattr(one, "__annotations__", ())}


def _exists(dotted: str) -> bool:
    """Whether a dotted name leads to a module, or to what is in one."""
    words = dotted.split(".")
    for number in range(len(words), 0, -1):
        try:
            found = importlib.import_module(".".join(words[:number]))
        except ImportError:
            continue
        try:
            reduce(getattr, words[number:], found)
        except AttributeError:
            return False
        return True
    return False
