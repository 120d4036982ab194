"""The page of all results: ``nicegnn report``."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated

import typer


def report(
    rows: Annotated[Path, typer.Option(help="Folder of a benchmark, see `nicegnn bench`.")] = Path(
        "results/bench"
    ),
    out: Annotated[Path, typer.Option(help="The page to write.")] = Path("report.html"),
    studies: Annotated[
        Path | None,
        typer.Option(
            "--experiments",
            "--studies",
            help="Folder of `nicegnn experiment`; by default results/studies.",
        ),
    ] = None,
    figures: Annotated[
        Path | None, typer.Option(help="Folder of PNG and SVG files; by default results/figures.")
    ] = None,
    molecules: Annotated[
        int, typer.Option(min=0, help="Most molecules of each dataset, of those in the rows.")
    ] = 12,
    target: Annotated[
        str | None, typer.Option(help="Target that is judged and shown; by default gin.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Seed of the explainers of molecules; by default the lowest.")
    ] = None,
) -> None:
    """Write one HTML page: claims with verdicts, tables, figures, molecules, sources."""
    from nicegnn.paper.claims import Verdict
    from nicegnn.report.gallery import GalleryConfig
    from nicegnn.report.page import ReportConfig, make_report

    config = ReportConfig(
        rows,
        studies or _if_there("results/studies"),
        figures or _if_there("results/figures"),
        target,
        GalleryConfig(molecules=molecules, seed=seed),
    )
    found = make_report(config, say=typer.echo)
    found.save(out)
    for dataset, problem in found.problems.items():
        typer.echo(f"{dataset}: {problem}", err=True)
    count = Counter(finding.verdict for _, finding in found.claims)
    typer.echo("Claims: " + ", ".join(f"{verdict} {count[verdict]}" for verdict in Verdict) + ".")
    typer.echo(f"Look at {out} ({found.num_bytes / 1e6:.1f} MB).")


def _if_there(folder: str) -> Path | None:
    """Returns a folder that nobody asked for only if it exists."""
    path = Path(folder)
    return path if path.is_dir() else None
