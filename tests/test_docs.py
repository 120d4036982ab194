"""The site builds strictly and offline; code and commands of the pages run as they stand."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from nicegnn.cli.main import app
from nicegnn_lab.tables.inventory import explainer_table

ROOT = Path(__file__).parents[1]
PAGES = [
    "README.md",
    *sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob("docs/tutorial-*.md")),
    *sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob("docs/howto/*.md")),
]
_BLOCK = re.compile(
    r'^```(python|console|csv)(?: title="(.+?)")?\n(.*?)^```', re.DOTALL | re.MULTILINE
)


@pytest.mark.skipif(
    importlib.util.find_spec("mkdocs") is None or importlib.util.find_spec("mkdocstrings") is None,
    reason="mkdocs is not installed",
)
def test_site_builds_strictly_and_asks_nothing_of_the_network(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "-d", str(tmp_path / "site")],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    linked = (tmp_path / "site" / "method.html").read_text()
    for name in re.findall(r'(?:href|src)="(results/[^"#]+)"', linked):
        assert (tmp_path / "site" / name).is_file(), name
    assert "results/tables/scale_study.html" in linked
    assert "explanation" in (tmp_path / "site/reference/explaining.html").read_text()
    for page in (tmp_path / "site").rglob("*.html"):
        text = page.read_text()
        loaded = re.findall(r'<(?:script|img)[^>]* src="(https?:[^"]+)"', text)
        loaded += re.findall(
            r'<link rel="(?:stylesheet|preconnect)"[^>]*href="(https?:[^"]+)', text
        )
        assert loaded == [], page
        assert ".. math::" not in text, page


def test_links_of_the_readme_lead_somewhere() -> None:
    links = re.findall(
        r"\]\(([^)#]+)(?:#[^)]*)?\)", (ROOT / "README.md").read_text(encoding="utf-8")
    )
    assert len(links) > 20
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_table_of_explainers_is_that_of_the_registry() -> None:
    page = (ROOT / "docs" / "explainers.md").read_text(encoding="utf-8")
    table = explainer_table().to_markdown()
    lines = [line for line in table.splitlines() if line.startswith("| `")]
    assert lines == [line for line in page.splitlines() if line.startswith("| `")]


@pytest.mark.parametrize("name", PAGES)
def test_page_runs_as_it_stands(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks run in order, in one folder; those with a title are files."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    text = (ROOT / name).read_text(encoding="utf-8")
    names: dict[str, object] = {"__name__": "page"}
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
