"""Results: ``nicegnn experiment | table | figure``: compute rows, then show them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from nicegnn.bench import run_study
from nicegnn.cli.options import split_commas, split_seeds
from nicegnn.errors import ConfigError, StoreError
from nicegnn.figures.drawing import save
from nicegnn.figures.registry import FIGURES
from nicegnn.studies import STUDIES, find_studies, make_study
from nicegnn.tables.manifest import record
from nicegnn.tables.registry import TABLES, Sources, find_artefacts
from nicegnn.tables.table import save_tables

console = Console()
#: Studies that make their own graphs.
_OWN_GRAPHS = ("motifs", "shapes")
Rows = Annotated[Path, typer.Option(help="Folder of the benchmark's rows.")]
Studies = Annotated[
    Path, typer.Option("--experiments", "--studies", help="Folder of the studies' rows.")
]


def experiment(
    name: Annotated[str, typer.Argument(help=f"{', '.join(STUDIES)}, or all.")],
    datasets: Annotated[
        list[str] | None,
        typer.Option("--dataset", "-d", help="Dataset; repeat, or a,b. Motifs makes its own."),
    ] = None,
    targets: Annotated[
        list[str] | None,
        typer.Option("--target", "-t", help="Target model; repeat, or a,b; else the study's own."),
    ] = None,
    seeds: Annotated[
        list[str] | None, typer.Option("--seed", "--seeds", "-s", help="Seed; repeat, or 0,1.")
    ] = None,
    explainers: Annotated[
        list[str] | None,
        typer.Option("--explainer", "-e", help="Explainer, for motifs only; repeat, or a,b."),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for rows, one folder per study.")] = Path(
        "results/studies"
    ),
    max_graphs: Annotated[int | None, typer.Option(min=1, help="Most graphs per dataset.")] = None,
    device: Annotated[str | None, typer.Option(help="cpu or cuda; by default what is there.")] = (
        None
    ),
) -> None:
    """Compute the rows of a study; finished cells are skipped."""
    chosen = find_studies(name)
    datasets, targets = split_commas(datasets), split_commas(targets)
    explainers = split_commas(explainers)
    if not datasets and any(one not in _OWN_GRAPHS for one in chosen):
        raise ConfigError(f"`--dataset` must name a dataset for {name}, such as -d benzene.")
    if explainers and "motifs" not in chosen:
        raise ConfigError(f"`--explainer` is for motifs (got {explainers} for {name}).")
    failed = 0
    for one in chosen:
        settings: dict[str, Any] = {}
        if one == "motifs" and explainers:
            settings["explainers"] = tuple(explainers)
        # among all, datasets and targets are those of studies of molecules
        is_asked = one not in _OWN_GRAPHS or name != "all"
        report = run_study(
            make_study(one, **settings),
            datasets if is_asked else None,
            targets if is_asked else None,
            split_seeds(seeds),
            out,
            device,
            max_graphs,
            progress=True,
            say=lambda line: console.print(line, soft_wrap=True, markup=False),
        )
        failed += len(report.failed)
        console.print(f"{one}: {report} Rows are in {out / one}", soft_wrap=True, markup=False)
    if failed:
        raise StoreError(
            f"{failed} cells failed; {out}/<study>/failed says why. The same command tries them "
            "again."
        )


def table(
    name: Annotated[str, typer.Argument(help=f"{', '.join(TABLES)}, or all.")],
    rows: Rows = Path("results/bench"),
    studies: Studies = Path("results/studies"),
    out: Annotated[Path, typer.Option(help="Folder for Markdown.")] = Path("results/tables"),
    latex: Annotated[bool, typer.Option("--latex", help="Write LaTeX as well.")] = False,
) -> None:
    """Write a table of the paper, ours and the paper's side by side, as Markdown.

    Where it comes from is noted in manifest.json beside it.
    """
    sources = Sources(rows, studies)
    for one in find_artefacts(name, TABLES):
        try:
            found = TABLES[one].make(sources)
        except StoreError as error:
            _left_out(one, name, error)
            continue
        written = save_tables(found, out, latex=latex)
        record(written, one, f"nicegnn table {one}", sources.digests(TABLES[one].reads))
        for path in written:
            console.print(f"{one}: {path}", soft_wrap=True)
        if name != "all":
            for item in found:
                console.print(item.to_markdown(), soft_wrap=True, markup=False)


def figure(
    name: Annotated[str, typer.Argument(help=f"{', '.join(FIGURES)}, or all.")],
    rows: Rows = Path("results/bench"),
    studies: Studies = Path("results/studies"),
    speed: Annotated[
        Path | None,
        typer.Option(help="Times of one machine, see benchmarks/explainer_speed.py; else rows'."),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for PNG.")] = Path("results/figures"),
    pdf: Annotated[bool, typer.Option("--pdf", help="Write PDF as well.")] = False,
) -> None:
    """Draw a figure of the paper as PNG, with its caption inside.

    Where it comes from is noted in manifest.json beside it.
    """
    sources = Sources(rows, studies, speed)
    for one in find_artefacts(name, FIGURES):
        try:
            found = FIGURES[one].make(sources)
        except StoreError as error:
            _left_out(one, name, error)
            continue
        digests = sources.digests(FIGURES[one].reads)
        for file, item in found.items():
            paths = save(item, out, file, pdf=pdf)
            record(paths, one, f"nicegnn figure {one}", digests)
            console.print(f"{one}: {paths[0]}", soft_wrap=True)


def _left_out(one: str, name: str, error: StoreError) -> None:
    """Says why one of many is missing; a single one that is missing is an error."""
    if name != "all":
        raise error
    console.print(f"{one}: left out. {error}", soft_wrap=True, markup=False)
