"""``nicegnn lab table | figure``: show what was measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nicegnn.cli import options as common
from nicegnn.cli.options import Json, opt, print_json, saying, to_folder
from nicegnn.errors import StoreError

if TYPE_CHECKING:
    from nicegnn_lab.tables.sources import Sources

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
    json: Json = False,
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

    say, results, sources = saying(json), {}, Sources(rows, studies)
    for one, tables, record in _made("table", name, TABLES, sources, make_tables):
        results[one] = record(save_tables(tables, out))
        for path in results[one]:
            say(f"{one}: {path}")
        for item in tables if name != "all" else ():
            say(item.to_markdown())
    if json:
        print_json(results)


def figure(
    name: Annotated[str, typer.Argument(help="Figure, or all; an unknown name lists them.")],
    rows: Rows = BENCH_FOLDER,
    studies: Studies = STUDIES_FOLDER,
    out: Annotated[Path, to_folder("Folder for PNG.")] = Path("results/figures"),
    plugins: common.Plugins = None,
    json: Json = False,
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

    say, results, sources = saying(json), {}, Sources(rows, studies)
    for one, figures, record in _made("figure", name, FIGURES, sources):
        for file, item in figures.items():
            results[file] = out / f"{file}.png"
            save_figure(item, results[file])
            record([results[file]])
            say(f"{one}: {results[file]}")
    if json:
        print_json(results)


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
