"""Results: ``nicegnn lab experiment | table | figure | report``: compute rows, then show them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from nicegnn.cli import options as common
from nicegnn.cli.options import Json, WordError, Words, opt, print_json, saying, to_file, to_folder
from nicegnn.errors import StoreError
from nicegnn_lab.cli import options
from nicegnn_lab.cli.bench import cells_of
from nicegnn_lab.studies import STUDIES, find_studies, make_study

if TYPE_CHECKING:
    from nicegnn_lab.tables.registry import Sources

#: Studies that make their own graphs.
_OWN_GRAPHS = ("motifs", "wide", "atoms")
BENCH_FOLDER = Path("results/bench")
STUDIES_FOLDER = Path("results/studies")
FIGURES_FOLDER = Path("results/figures")
STUDIES_FLAGS = ("--experiments", "--studies")
Rows = Annotated[Path, opt("Folder of the benchmark's rows.")]
Studies = Annotated[Path, opt("Folder of the studies' rows.", *STUDIES_FLAGS)]


class NamesInHelp(TyperCommand):
    """A command whose help lists all tables or figures, imported when this help is asked for."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        from nicegnn_lab.figures.registry import FIGURES
        from nicegnn_lab.tables.registry import TABLES

        name: Any = self.params[0]
        name.help = f"{', '.join(TABLES if self.name == 'table' else FIGURES)}, or all."
        super().format_help(ctx, formatter)


def experiment(
    name: Annotated[str, typer.Argument(help=f"{', '.join(STUDIES)}, or all.")],
    datasets: Annotated[
        Words, opt("Dataset; repeat, or a,b. Motifs makes its own.", "--dataset", "-d")
    ] = None,
    targets: options.Targets = None,
    seeds: Annotated[Words, opt("Seed; repeat, or 0,1.", "--seed", "--seeds", "-s")] = None,
    explainers: Annotated[
        Words, opt("Explainer, for motifs only; repeat, or a,b.", "--explainer", "-e")
    ] = None,
    out: Annotated[Path, to_folder("Folder for rows, one folder per study.")] = STUDIES_FOLDER,
    max_graphs: Annotated[int | None, opt("Most graphs per dataset.", min=1)] = None,
    device: options.Device = None,
    plugins: common.Plugins = None,
    json: Json = False,
) -> None:
    """Compute the rows of a study, by default on its own targets; finished cells are skipped.

    \b
    nicegnn lab experiment ablation -d benzene --seed 0,1
    """
    from nicegnn_lab.bench import run_study

    with common.typed_words():
        chosen = find_studies(name)
    data, models, methods = options.known_names(datasets, targets, explainers)
    if not data and any(one not in _OWN_GRAPHS for one in chosen):
        raise WordError(f"`--dataset` must name a dataset for {name}, such as -d benzene.")
    if methods and "motifs" not in chosen:
        raise WordError(f"`--explainer` is for motifs (got {methods} for {name}). Leave it out.")
    numbers = common.split_numbers("--seed", seeds, int, (0,))
    failed, say, results = 0, saying(json), {}
    for one in chosen:
        settings = {"explainers": tuple(methods)} if one == "motifs" and methods else {}
        # among all, datasets and targets are those of studies of molecules
        is_asked = one not in _OWN_GRAPHS or name != "all"
        tasks: tuple[Words, Words] = (data, models) if is_asked else (None, None)
        study = make_study(one, **settings)
        report = run_study(study, *tasks, numbers, out, device, max_graphs, progress=True, say=say)
        failed += len(report.failed)
        results[one] = {**cells_of(report), "rows": out / one}
        say(f"{one}: {report} Rows are in {out / one}")
    if json:
        print_json(results)
    if failed:
        raise StoreError(
            f"{failed} cells failed; {out}/<study>/failed says why. The same command tries them "
            "again."
        )


def table(
    name: str,
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
    from nicegnn_lab.tables.registry import TABLES, Sources, make_tables, record
    from nicegnn_lab.tables.table import save_tables

    say, results = saying(json), {}
    for one, tables, digests in _made(name, TABLES, Sources(rows, studies), make_tables):
        written = save_tables(tables, out)
        record(written, one, f"nicegnn lab table {one}", digests)
        results[one] = [*written]
        for path in written:
            say(f"{one}: {path}")
        for item in tables if name != "all" else ():
            say(item.to_markdown())
    if json:
        print_json(results)


def figure(
    name: str,
    rows: Rows = BENCH_FOLDER,
    studies: Studies = STUDIES_FOLDER,
    out: Annotated[Path, to_folder("Folder for PNG.")] = FIGURES_FOLDER,
    plugins: common.Plugins = None,
    json: Json = False,
) -> None:
    """Draw a figure of the paper as PNG, with its caption inside.

    Where it comes from is noted in manifest.json beside it.

    \b
    nicegnn lab figure fidelity
    nicegnn lab figure all
    """
    from nicegnn_lab.figures.panels import save_figure
    from nicegnn_lab.figures.registry import FIGURES
    from nicegnn_lab.tables.registry import Sources, record

    say, results = saying(json), {}
    sources = Sources(rows, studies)
    for one, figures, digests in _made(
        name, FIGURES, sources, lambda one, sources: FIGURES[one].make(sources)
    ):
        for file, item in figures.items():
            path = out / f"{file}.png"
            save_figure(item, path)
            record([path], one, f"nicegnn lab figure {one}", digests)
            results[file] = path
            say(f"{one}: {path}")
    if json:
        print_json(results)


def _made(
    name: str,
    known: Mapping[str, Any],
    sources: Sources,
    make: Callable[[str, Sources], Any],
) -> Iterator[tuple[str, Any, Any]]:
    """Yields what has rows, with digests of them; a single one without rows is an error."""
    from nicegnn_lab.tables.registry import find_artefacts

    with common.typed_words():
        chosen = find_artefacts(name, known)
    for one in chosen:
        try:
            made = make(one, sources)
        except StoreError as error:
            if name != "all":
                raise
            typer.echo(f"{one}: left out. {error}", err=True)
            continue
        yield one, made, sources.digests(known[one].reads)


def report(
    rows: Annotated[Path, opt("Folder of a benchmark, see `nicegnn lab bench`.")] = BENCH_FOLDER,
    out: Annotated[Path, to_file("The page to write.")] = Path("report.html"),
    studies: Studies = STUDIES_FOLDER,
    figures: Annotated[Path | None, opt("Folder of PNG; else results/figures.")] = None,
    plugins: common.Plugins = None,
    json: Json = False,
) -> None:
    """Write one HTML page: claims with verdicts, tables, figures.

    \b
    nicegnn lab report
    nicegnn lab report --rows mine/bench --out mine.html
    """
    from nicegnn_lab.report import make_report
    from nicegnn_lab.tables.registry import Sources

    shown = figures or (FIGURES_FOLDER if FIGURES_FOLDER.is_dir() else None)
    say = saying(json)
    page = make_report(Sources(rows, studies), shown, say=say)
    page.save(out)
    for name, problem in page.problems.items():
        typer.echo(f"{name}: {problem}", err=True)
    say(f"Look at {out} ({page.num_bytes / 1e6:.1f} MB).")
    if json:
        print_json({"page": out, "problems": page.problems})
