"""``nicegnn lab table | figure | report``: show what was measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nicegnn.cli import options as common
from nicegnn.cli.options import opt, to_file, to_folder
from nicegnn.errors import StoreError

if TYPE_CHECKING:
    from nicegnn_lab.tables.sources import Sources

BENCH_FOLDER = Path("results/bench")
STUDIES_FOLDER = Path("results/studies")
FIGURES_FOLDER = Path("results/figures")
Rows = Annotated[Path, opt("Folder of the benchmark's rows.")]
Studies = Annotated[Path, opt("Folder of the studies' rows.", "--experiments", "--studies")]


def table(
    name: Annotated[str, typer.Argument(help="Table, or all; an unknown name lists them.")],
    rows: Rows = BENCH_FOLDER,
    studies: Studies = STUDIES_FOLDER,
    out: Annotated[Path, to_folder("Folder for Markdown.")] = Path("results/tables"),
    plugins: common.Plugins = None,
) -> None:
    """Write a table of the paper, ours and the paper's side by side, as Markdown.

    Where it comes from is noted in manifest.json beside it.

    \b
    nicegnn lab table quality
    nicegnn lab table all
    """
    from nicegnn_lab.tables.registry import TABLES, make_tables
    from nicegnn_lab.tables.sources import Sources
    from nicegnn_lab.tables.table import save_tables

    for one, tables, noted in _made("table", name, TABLES, Sources(rows, studies), make_tables):
        for path in noted(save_tables(tables, out)):
            typer.echo(f"{one}: {path}")
        for item in tables if name != "all" else ():
            typer.echo(item.to_markdown())


def figure(
    name: Annotated[str, typer.Argument(help="Figure, or all; an unknown name lists them.")],
    rows: Rows = BENCH_FOLDER,
    studies: Studies = STUDIES_FOLDER,
    out: Annotated[Path, to_folder("Folder for PNG.")] = FIGURES_FOLDER,
    plugins: common.Plugins = None,
) -> None:
    """Draw a figure of the paper as PNG, with its caption inside.

    Where it comes from is noted in manifest.json beside it.

    \b
    nicegnn lab figure sensitivity
    nicegnn lab figure all
    """
    from nicegnn_lab.figures.panels import save_figure
    from nicegnn_lab.figures.registry import FIGURES
    from nicegnn_lab.tables.sources import Sources

    for one, figures, noted in _made("figure", name, FIGURES, Sources(rows, studies)):
        for file, item in figures.items():
            path = out / f"{file}.png"
            save_figure(item, path)
            noted([path])
            typer.echo(f"{one}: {path}")


def _made(
    what: str,
    name: str,
    known: Mapping[str, Any],
    sources: Sources,
    make: Callable[[str, Sources], Any] | None = None,
) -> Iterator[tuple[str, Any, Callable[[list[Path]], list[Path]]]]:
    """Yields what has rows, with what notes its files; a single one without rows is an error."""
    from nicegnn.config import check_choice
    from nicegnn_lab.tables.sources import record

    plain = name.replace("_", "-")
    with common.typed_words():
        check_choice("name", plain, (*known, "all"))
    for one in known if plain == "all" else [plain]:
        try:
            made = known[one].make(sources) if make is None else make(one, sources)
        except StoreError as error:
            if plain != "all":
                raise
            typer.echo(f"{one}: left out. {error}", err=True)
            continue

        def noted(files: list[Path], one: str = one) -> list[Path]:
            digests = sources.digests(known[one].reads)
            record(files, one, f"nicegnn lab {what} {one}", digests)
            return files

        yield one, made, noted


def report(
    rows: Rows = BENCH_FOLDER,
    out: Annotated[Path, to_file("The page to write.")] = Path("report.html"),
    studies: Studies = STUDIES_FOLDER,
    figures: Annotated[Path | None, opt("Folder of PNG; else results/figures.")] = None,
    plugins: common.Plugins = None,
) -> None:
    """Write one HTML page: tables and figures.

    \b
    nicegnn lab report
    nicegnn lab report --rows mine/bench --out mine.html
    """
    from nicegnn_lab.report.page import write_report
    from nicegnn_lab.tables.sources import Sources

    shown = figures or (FIGURES_FOLDER if FIGURES_FOLDER.is_dir() else None)
    problems = write_report(out, Sources(rows, studies), shown, say=typer.echo)
    for name, problem in problems.items():
        typer.echo(f"{name}: {problem}", err=True)
    typer.echo(f"Look at {out} ({out.stat().st_size / 1e6:.1f} MB).")
