"""The report: one HTML page that holds all it needs and opens without a network."""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path

import nicegnn
from nicegnn.errors import NicegnnError, StoreError
from nicegnn.screening.rendering import make_environment
from nicegnn.store import write_text
from nicegnn_lab.figures.panels import read_caption
from nicegnn_lab.figures.registry import FIGURES
from nicegnn_lab.tables.registry import TABLES, make_tables
from nicegnn_lab.tables.sources import Sources

TITLE = "NICE: what the measurements say"


def write_report(
    out: str | Path,
    sources: Sources,
    figures: str | Path | None = None,
    *,
    say: Callable[[str], None] = lambda _: None,
) -> dict[str, str]:
    """Writes a page of all tables, and of the pictures in a folder.

    Without rows of a benchmark there is no page. Returns why a table is left out, by its name;
    `say` is told each step.
    """
    sources.bench(["roc_auc"])  # says what to do if there are none
    tables, problems = {}, {}
    for name in TABLES:
        say(f"{name} ...")
        try:
            tables[name] = make_tables(name, sources)
        except NicegnnError as error:
            problems[name] = str(error)
    read = dict.fromkeys(one for name in tables for one in TABLES[name].reads)
    page = make_environment("nicegnn_lab.report", "templates", "assets").get_template("report.html")
    html = page.render(
        title=TITLE,
        tables={TABLES[name].title: made for name, made in tables.items()},
        pictures=[] if figures is None else read_pictures(figures),
        problems=problems,
        facts={**sources.digests(read), "page made by": nicegnn.__version__},
    )
    write_text(out, html)
    return problems


def read_pictures(folder: str | Path) -> list[dict[str, str]]:
    """Returns all PNG files of a folder: name, title, caption, and the file as an address."""
    if not Path(folder).is_dir():
        raise StoreError(f"`figures` must be a folder that exists (got {str(folder)!r}).")
    pictures = []
    for path in sorted(Path(folder).glob("*.png")):
        uri = f"data:image/png;base64,{base64.b64encode(path.read_bytes()).decode()}"
        known = [name for name in FIGURES if f"{path.stem}-".startswith(f"{name}-")]
        title = FIGURES[known[0]].title if known else path.stem.replace("-", " ").capitalize()
        if known and (rest := path.stem.removeprefix(known[0]).strip("-")):
            title += f": {rest}"
        caption = read_caption(path)
        pictures.append({"name": path.stem, "title": title, "caption": caption, "uri": uri})
    return pictures
