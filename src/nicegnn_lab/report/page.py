"""The report: one HTML page that holds all it needs and opens without a network."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from jinja2 import Environment

import nicegnn
from nicegnn.errors import NicegnnError, StoreError
from nicegnn.screening.rendering import make_environment
from nicegnn.store import write_text
from nicegnn_lab.figures.panels import read_caption
from nicegnn_lab.figures.registry import FIGURES
from nicegnn_lab.tables.registry import TABLES, Sources, make_tables
from nicegnn_lab.tables.table import Table

TITLE = "NICE: what the measurements say"
CLAIMS = "claims"  # the table that stands first


@dataclass(frozen=True)
class Report:
    """A finished page."""

    html: str
    problems: Mapping[str, str]  # why a table is left out, by its name

    @property
    def num_bytes(self) -> int:
        return len(self.html.encode())

    def save(self, path: str | Path) -> Path:
        """Writes the page, whole or not at all."""
        write_text(path, self.html)
        return Path(path)


@dataclass(frozen=True)
class Picture:
    """One picture of a folder."""

    name: str  # file name without ending, the anchor on the page
    title: str
    caption: str  # what the file says about itself, or nothing
    uri: str  # the file itself as a ``data:`` address


def make_report(
    sources: Sources,
    figures: str | Path | None = None,
    *,
    say: Callable[[str], None] = lambda _: None,
) -> Report:
    """Returns the report of stored rows and of the pictures in a folder; `say` is told each step.

    Tables without rows are left out; without rows of a benchmark there is no page.
    """
    sources.bench(["roc_auc"])  # says what to do if there are none
    tables: dict[str, list[Table]] = {}
    problems: dict[str, str] = {}
    for name in TABLES:
        say(f"{name} ...")
        try:
            tables[name] = make_tables(name, sources)
        except NicegnnError as error:
            problems[name] = str(error)
    html = (
        _environment()
        .get_template("report.html")
        .render(
            title=TITLE,
            claims=tables.pop(CLAIMS, []),
            tables={TABLES[name].title: made for name, made in tables.items()},
            pictures=read_pictures(figures),
            problems=problems,
            facts={**sources.digests(_sources_of(tables)), "page made by": nicegnn.__version__},
        )
    )
    return Report(html, problems)


def _sources_of(names: Mapping[str, object]) -> list[str]:
    return list(dict.fromkeys(read for name in names for read in TABLES[name].reads))


def read_pictures(folder: str | Path | None) -> list[Picture]:
    """Returns all PNG files of a folder."""
    if folder is None:
        return []
    if not Path(folder).is_dir():
        raise StoreError(f"`figures` must be a folder that exists (got {str(folder)!r}).")
    pictures = []
    for path in sorted(Path(folder).glob("*.png")):
        content = base64.b64encode(path.read_bytes()).decode()
        uri = f"data:image/png;base64,{content}"
        pictures.append(Picture(path.stem, figure_title(path.stem), read_caption(path), uri))
    return pictures


def figure_title(picture: str) -> str:
    """Returns what a picture shows: the title of the figure that its name begins with.

    Example:
        >>> figure_title("cost"), figure_title("mine")
        ('Seconds per graph against agreement with the truth', 'Mine')
    """
    for name in sorted(FIGURES, key=len, reverse=True):
        if picture == name or picture.startswith(f"{name}-"):
            rest = picture[len(name) + 1 :]
            return f"{FIGURES[name].title}: {rest}" if rest else FIGURES[name].title
    return picture.replace("-", " ").replace("_", " ").capitalize()


@cache
def _environment() -> Environment:
    return make_environment("nicegnn_lab.report", "templates", "assets")
