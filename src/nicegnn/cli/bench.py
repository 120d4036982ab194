"""``nicegnn bench``: parses, runs a benchmark, prints a line per cell and a summary."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nicegnn.bench.benchmark import BenchConfig, run_bench
from nicegnn.bench.engine import make_engine
from nicegnn.bench.measure import MetricConfig
from nicegnn.bench.settings import DEFAULT_FILE, read_settings
from nicegnn.bench.targets import MAIN_TARGET
from nicegnn.cli.options import split_commas, split_seeds
from nicegnn.errors import ConfigError, NicegnnError

_DEFAULT = MetricConfig()
Names = list[str]


def bench(
    datasets: Annotated[
        Names, typer.Option("--dataset", "-d", help="Benchmark dataset; repeat, or a,b.")
    ],
    explainers: Annotated[
        Names,
        typer.Option("--explainer", "-e", help="Explainer, name or name+nc; repeat, or a,b."),
    ],
    seeds: Annotated[
        Names | None, typer.Option("--seed", "-s", help="Seed of the explainers; repeat, or 0,1.")
    ] = None,
    targets: Annotated[
        Names | None, typer.Option("--target", "-t", help="Target model; repeat, or a,b.")
    ] = None,
    targets_folder: Annotated[Path, typer.Option(help="Folder of trained targets.")] = Path(
        "results/targets"
    ),
    out: Annotated[Path, typer.Option(help="Folder for scores and rows.")] = Path("results/bench"),
    part: Annotated[str, typer.Option(help="Graphs to explain: test, or valid.")] = "test",
    explained: Annotated[
        str, typer.Option(help="Class to explain: the graph's label, or predicted.")
    ] = "label",
    max_graphs: Annotated[
        int | None, typer.Option(min=1, help="Most graphs to explain, the same for all.")
    ] = None,
    fit_graphs: Annotated[
        int | None, typer.Option(min=1, help="Most training graphs to fit on, the same for all.")
    ] = None,
    device: Annotated[str | None, typer.Option(help="cpu or cuda; by default what is there.")] = (
        None
    ),
    config: Annotated[
        Path | None,
        typer.Option(help=f"TOML file with settings of explainers; else {DEFAULT_FILE} if there."),
    ] = None,
    protocols: Annotated[
        Names | None,
        typer.Option("--protocol", help="paper, paper-best, strict; repeat, or a,b; or none."),
    ] = None,
    fidelity: Annotated[
        Names | None, typer.Option(help="Removals: em, nc, delete; repeat, or a,b; or none.")
    ] = None,
    top: Annotated[float, typer.Option(help="Share of bonds that is selected.")] = _DEFAULT.top,
    ratios: Annotated[
        Names | None, typer.Option("--ratio", help="Shares of the fidelity curve; repeat, or a,b.")
    ] = None,
    draws: Annotated[int, typer.Option(min=1, help="Noise draws of fidelity nc.")] = (
        _DEFAULT.num_draws
    ),
    engine: Annotated[str, typer.Option(help="local or ray.")] = "local",
    address: Annotated[str | None, typer.Option(help="Ray cluster; else one is started.")] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Cells at a time on Ray.")] = None,
    gpus: Annotated[float | None, typer.Option(help="Share of a GPU per cell on Ray.")] = None,
    retry_failed: Annotated[
        bool, typer.Option(help="Run cells again that failed in an earlier call.")
    ] = True,
) -> None:
    """Run explainers on benchmarks with known truth; what is finished is never repeated."""
    file = config or (DEFAULT_FILE if DEFAULT_FILE.is_file() else None)
    try:
        where = make_engine(engine, address=address, workers=workers, gpus=gpus)
        settings = BenchConfig(
            datasets=tuple(split_commas(datasets)),
            explainers=tuple(split_commas(explainers)),
            targets=tuple(split_commas(targets) or [MAIN_TARGET]),
            seeds=split_seeds(seeds),
            out=out,
            targets_folder=targets_folder,
            part=part,
            explained=explained,
            max_graphs=max_graphs,
            fit_graphs=fit_graphs,
            device=device,
            settings={} if file is None else read_settings(file),
            metrics=MetricConfig(
                protocols=_some(protocols, _DEFAULT.protocols),
                top=top,
                removals=_some(fidelity, _DEFAULT.removals),
                ratios=tuple(_share(ratio) for ratio in split_commas(ratios)) or _DEFAULT.ratios,
                num_draws=draws,
            ),
        )
        report = run_bench(
            settings, engine=where, retry_failed=retry_failed, progress=True, say=typer.echo
        )
    except NicegnnError as error:
        typer.echo(f"Error: {error}", err=True)
        raise typer.Exit(1) from error
    typer.echo(f"{report} Rows are in {out / 'rows'}.")
    if report.failed:
        typer.echo(f"What went wrong is in {out / 'failed'}:", err=True)
        for cell in report.failed:
            typer.echo(f"  {cell}: {out / 'failed' / cell.key}.json", err=True)
        raise typer.Exit(1)


def _some(values: Names | None, default: tuple[str, ...]) -> tuple[str, ...]:
    items = split_commas(values)
    if "none" in items:
        return ()
    return tuple(items) or default


def _share(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ConfigError(f"`--ratio` must be a number (got {text!r}).") from None
