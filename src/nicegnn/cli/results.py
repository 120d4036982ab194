"""``nicegnn experiment | table | figure``: compute rows, then show them."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from nicegnn.cli.options import split_commas, split_seeds
from nicegnn.errors import ConfigError, StoreError
from nicegnn.report.artefacts import EXPERIMENTS, FIGURES, TABLES, Sources, find

console = Console()
Rows = Annotated[Path, typer.Option(help="Folder of the benchmark's rows.")]
Parts = Annotated[Path, typer.Option(help="Folder of the experiments' rows.")]


def experiment(
    name: Annotated[str, typer.Argument(help=f"{', '.join(EXPERIMENTS)}, or all.")],
    datasets: Annotated[
        list[str] | None,
        typer.Option("--dataset", "-d", help="Dataset; repeat, or a,b. Motifs makes its own."),
    ] = None,
    targets: Annotated[
        list[str] | None, typer.Option("--target", "-t", help="Target model; repeat, or a,b.")
    ] = None,
    seeds: Annotated[
        list[str] | None, typer.Option("--seed", "--seeds", "-s", help="Seed; repeat, or 0,1.")
    ] = None,
    explainers: Annotated[
        list[str] | None,
        typer.Option("--explainer", "-e", help="Explainer, for motifs only; repeat, or a,b."),
    ] = None,
    out: Parts = Path("results/experiments"),
    max_graphs: Annotated[int | None, typer.Option(min=1, help="Most graphs per dataset.")] = None,
    device: Annotated[str | None, typer.Option(help="cpu or cuda; by default what is there.")] = (
        None
    ),
) -> None:
    """Compute the rows of an experiment; finished parts are skipped."""
    chosen = find(name, EXPERIMENTS, "name")
    datasets, targets = split_commas(datasets), split_commas(targets)
    explainers = split_commas(explainers)
    if not datasets and chosen != ["motifs"]:
        raise ConfigError(f"{name} needs `--dataset`, such as -d benzene (got none).")
    if explainers and "motifs" not in chosen:
        raise ConfigError(f"`--explainer` is for motifs (got {explainers} for {name}).")
    for one in chosen:
        given: dict[str, Any] = {} if max_graphs is None else {"max_graphs": max_graphs}
        if one != "motifs":
            given |= {"datasets": datasets, "targets": tuple(targets or ["gin"])}
        else:  # among all, datasets and targets are those of the others
            given |= {"datasets": datasets} if datasets and name != "all" else {}
            given |= {"targets": targets} if targets and name != "all" else {}
            given |= {"explainers": explainers} if explainers else {}
        import_module(EXPERIMENTS[one]).compute(
            seeds=split_seeds(seeds), out=out, device=device, **given
        )
        console.print(f"{one}: rows are in {out}", soft_wrap=True)


def table(
    name: Annotated[str, typer.Argument(help=f"{', '.join(TABLES)}, or all.")],
    rows: Rows = Path("results/bench"),
    experiments: Parts = Path("results/experiments"),
    out: Annotated[Path, typer.Option(help="Folder for Markdown and LaTeX.")] = Path(
        "results/tables"
    ),
) -> None:
    """Write a table of the paper, ours and the paper's side by side, as Markdown and LaTeX.

    Where it comes from is noted in manifest.json beside it.
    """
    from nicegnn.tables.manifest import record

    sources = Sources(rows, experiments)
    for one in find(name, TABLES, "name"):
        try:
            found = TABLES[one].make(sources)
        except StoreError as error:
            _left_out(one, name, error)
            continue
        digests = TABLES[one].digests(sources)
        for item in found:
            paths = item.save(out)
            record(paths, one, f"nicegnn table {one}", digests)
            console.print(f"{one}: {paths[0]}", soft_wrap=True)
            if name != "all":
                console.print(item.to_markdown(), soft_wrap=True, markup=False)


def figure(
    name: Annotated[str, typer.Argument(help=f"{', '.join(FIGURES)}, or all.")],
    rows: Rows = Path("results/bench"),
    experiments: Parts = Path("results/experiments"),
    speed: Annotated[
        Path | None,
        typer.Option(help="Times of one machine, see benchmarks/explainer_speed.py; else rows'."),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for PNG and PDF.")] = Path("results/figures"),
) -> None:
    """Draw a figure of the paper as PNG and PDF, with its caption.

    Where it comes from is noted in manifest.json beside it.
    """
    from nicegnn.figures.style import save
    from nicegnn.tables.manifest import record

    sources = Sources(rows, experiments, speed)
    for one in find(name, FIGURES, "name"):
        try:
            found = FIGURES[one].make(sources)
        except StoreError as error:
            _left_out(one, name, error)
            continue
        digests = FIGURES[one].digests(sources)
        for file, item in found.items():
            paths = save(item, out, file)
            record(paths, one, f"nicegnn figure {one}", digests)
            console.print(f"{one}: {paths[0]}", soft_wrap=True)


def _left_out(one: str, name: str, error: StoreError) -> None:
    """Says why one of many is missing; a single one that is missing is an error."""
    if name != "all":
        raise error
    console.print(f"{one}: left out. {error}", soft_wrap=True, markup=False)
