"""``nicegnn lab table | figure``: show what was measured."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from nicegnn.cli import options as common
from nicegnn.cli.options import opt, to_folder
from nicegnn.errors import StoreError

BENCH_FOLDER = Path("results/bench")
STUDIES_FOLDER = Path("results/studies")
Rows = Annotated[Path, opt("Folder of the benchmark's rows.")]
Studies = Annotated[Path, opt("Folder of the studies' rows.", "--experiments", "--studies")]


def table(
    name: Annotated[str, typer.Argument(help="Table, or all; an unknown name lists them.")],
    rows: Rows = BENCH_FOLDER,
    studies: Studies = STUDIES_FOLDER,
    out: Annotated[Path, to_folder("Folder for Markdown.")] = Path("results/tables"),
    plugins: common.Plugins = None,
) -> None:
    """Write a table of the paper, ours beside it, as Markdown; manifest.json says from what.

    \b
    nicegnn lab table quality
    nicegnn lab table all
    """
    from nicegnn_lab.tables.registry import TABLES, make_tables
    from nicegnn_lab.tables.sources import Sources, record
    from nicegnn_lab.tables.table import save_tables

    sources = Sources(rows, studies)
    for one, tables in _made(name, TABLES, lambda one: make_tables(one, sources)):
        paths = save_tables(tables, out)
        record(paths, one, f"nicegnn lab table {one}", sources.digests(TABLES[one].reads))
        for path in paths:
            typer.echo(f"{one}: {path}")
        for item in tables if name != "all" else ():
            typer.echo(item.to_markdown())


def figure(
    name: Annotated[str, typer.Argument(help="Figure, or all; an unknown name lists them.")],
    rows: Rows = BENCH_FOLDER,
    studies: Studies = STUDIES_FOLDER,
    out: Annotated[Path, to_folder("Folder for PNG.")] = Path("results/figures"),
    plugins: common.Plugins = None,
) -> None:
    """Draw a figure of the paper as PNG, its caption inside; manifest.json says from what.

    \b
    nicegnn lab figure sensitivity
    nicegnn lab figure all
    """
    from nicegnn_lab.figures.panels import save_figure
    from nicegnn_lab.figures.registry import FIGURES
    from nicegnn_lab.tables.sources import Sources, record

    sources = Sources(rows, studies)
    for one, figures in _made(name, FIGURES, lambda one: FIGURES[one].make(sources)):
        for file, item in figures.items():
            path = out / f"{file}.png"
            save_figure(item, path)
            record([path], one, f"nicegnn lab figure {one}", sources.digests(FIGURES[one].reads))
            typer.echo(f"{one}: {path}")


def _made(
    name: str, known: Mapping[str, Any], make: Callable[[str], Any]
) -> Iterator[tuple[str, Any]]:
    """Yields what has rows; a single one without rows is an error."""
    from nicegnn.config import check_choice

    plain = name.replace("_", "-")
    with common.typed_words():
        check_choice("name", plain, (*known, "all"))
    for one in known if plain == "all" else [plain]:
        try:
            yield one, make(one)
        except StoreError as error:
            if plain != "all":
                raise
            typer.echo(f"{one}: left out. {error}", err=True)
