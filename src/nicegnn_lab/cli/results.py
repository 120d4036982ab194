"""Results: ``nicegnn lab experiment | table | figure | report``: compute rows, then show them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
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
_OWN_GRAPHS = ("motifs", "shapes", "unseen", "wide")
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
    failed, say, told = 0, saying(json), {}
    for one in chosen:
        settings = {"explainers": tuple(methods)} if one == "motifs" and methods else {}
        # among all, datasets and targets are those of studies of molecules
        is_asked = one not in _OWN_GRAPHS or name != "all"
        tasks: tuple[Words, Words] = (data, models) if is_asked else (None, None)
        study = make_study(one, **settings)
        report = run_study(study, *tasks, numbers, out, device, max_graphs, progress=True, say=say)
        failed += len(report.failed)
        told[one] = {**cells_of(report), "rows": out / one}
        say(f"{one}: {report} Rows are in {out / one}")
    if json:
        print_json(told)
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
    latex: Annotated[bool, opt("Write LaTeX as well.", "--latex")] = False,
    plugins: common.Plugins = None,
    json: Json = False,
) -> None:
    """Write a table of the paper, ours and the paper's side by side, as Markdown.

    Where it comes from is noted in manifest.json beside it.

    \b
    nicegnn lab table quality
    nicegnn lab table all --latex
    """
    from nicegnn_lab.tables.registry import TABLES, Sources, record
    from nicegnn_lab.tables.table import save_tables

    say, told = saying(json), {}
    for one, found, digests in _made(name, TABLES, Sources(rows, studies)):
        written = save_tables(found, out, latex=latex)
        record(written, one, f"nicegnn lab table {one}", digests)
        told[one] = [*written]
        for path in written:
            say(f"{one}: {path}")
        for item in found if name != "all" else ():
            say(item.to_markdown())
    if json:
        print_json(told)


def figure(
    name: str,
    rows: Rows = BENCH_FOLDER,
    studies: Studies = STUDIES_FOLDER,
    speed: Annotated[
        Path | None, opt("Times of one machine, see benchmarks/suite.py --only all; else rows'.")
    ] = None,
    out: Annotated[Path, to_folder("Folder for PNG.")] = FIGURES_FOLDER,
    pdf: Annotated[bool, opt("Write PDF as well.", "--pdf")] = False,
    plugins: common.Plugins = None,
    json: Json = False,
) -> None:
    """Draw a figure of the paper as PNG, with its caption inside.

    Where it comes from is noted in manifest.json beside it.

    \b
    nicegnn lab figure fidelity
    nicegnn lab figure all --pdf
    """
    from nicegnn_lab.figures.panels import save
    from nicegnn_lab.figures.registry import FIGURES
    from nicegnn_lab.tables.registry import Sources, record

    say, told = saying(json), {}
    for one, found, digests in _made(name, FIGURES, Sources(rows, studies, speed)):
        for file, item in found.items():
            paths = save(item, out, file, pdf=pdf)
            record(paths, one, f"nicegnn lab figure {one}", digests)
            told[file] = [*paths]
            say(f"{one}: {paths[0]}")
    if json:
        print_json(told)


def _made(name: str, known: Mapping[str, Any], sources: Sources) -> Iterator[tuple[str, Any, Any]]:
    """Yields what has rows, with digests of them; a single one without rows is an error."""
    from nicegnn_lab.tables.registry import find_artefacts

    with common.typed_words():
        chosen = find_artefacts(name, known)
    for one in chosen:
        try:
            found = known[one].make(sources)
        except StoreError as error:
            if name != "all":
                raise
            typer.echo(f"{one}: left out. {error}", err=True)
            continue
        yield one, found, sources.digests(known[one].reads)


def report(
    rows: Annotated[Path, opt("Folder of a benchmark, see `nicegnn lab bench`.")] = BENCH_FOLDER,
    out: Annotated[Path, to_file("The page to write.")] = Path("report.html"),
    studies: Annotated[
        Path | None, opt("Folder of the studies' rows; else results/studies.", *STUDIES_FLAGS)
    ] = None,
    figures: Annotated[Path | None, opt("Folder of PNG and SVG; else results/figures.")] = None,
    molecules: Annotated[int, opt("Most molecules of each dataset in the rows.", min=0)] = 12,
    target: Annotated[str | None, opt("Target that is judged and shown; by default gin.")] = None,
    seed: Annotated[int | None, opt("Seed of explained molecules; by default the lowest.")] = None,
    plugins: common.Plugins = None,
    json: Json = False,
) -> None:
    """Write one HTML page: claims with verdicts, tables, figures, molecules, sources.

    \b
    nicegnn lab report
    nicegnn lab report --rows mine/bench --out mine.html
    """
    from nicegnn_lab.paper.claims import Verdict
    from nicegnn_lab.report import GalleryConfig, ReportConfig, make_report

    options.known_names(None, [target] if target else None)
    config = ReportConfig(
        rows,
        studies or (STUDIES_FOLDER if STUDIES_FOLDER.is_dir() else None),
        figures or (FIGURES_FOLDER if FIGURES_FOLDER.is_dir() else None),
        target,
        GalleryConfig(molecules=molecules, seed=seed),
    )
    say = saying(json)
    found = make_report(config, say=say)
    found.save(out)
    for dataset, problem in found.problems.items():
        typer.echo(f"{dataset}: {problem}", err=True)
    count = Counter(finding.verdict for _, finding in found.claims)
    say("Claims: " + ", ".join(f"{verdict} {count[verdict]}" for verdict in Verdict) + ".")
    say(f"Look at {out} ({found.num_bytes / 1e6:.1f} MB).")
    if json:
        claims = {str(verdict): count[verdict] for verdict in Verdict}
        print_json({"page": out, "claims": claims, "problems": found.problems})
