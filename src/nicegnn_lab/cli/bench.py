"""``nicegnn lab bench | tune | pack``: run cells, choose settings by them, pack their rows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nicegnn.cli import options as common
from nicegnn.cli.options import (
    Json,
    Words,
    opt,
    print_json,
    saying,
    split_commas,
    to_file,
    to_folder,
)
from nicegnn_lab.cli import options

if TYPE_CHECKING:
    from nicegnn_lab.bench import RunReport

EXPLAINER = "Explainer, name or name+nc (em, exchange); repeat, or a,b"


def bench(
    datasets: options.Datasets,
    explainers: Annotated[list[str], opt(f"{EXPLAINER}.", "--explainer", "-e")],
    seeds: Annotated[Words, opt("Seed of the explainers; repeat, or 0,1.", "--seed", "-s")] = None,
    targets: options.Targets = None,
    targets_folder: options.TargetsFolder = options.TARGETS_FOLDER,
    out: Annotated[Path, to_folder("Folder for scores and rows.")] = Path("results/bench"),
    max_graphs: Annotated[int | None, opt("Most graphs explained, same for all.", min=1)] = None,
    fit_graphs: options.FitGraphs = None,
    device: options.Device = None,
    config: Annotated[
        Path | None, opt("TOML settings of explainers; else the package's own.")
    ] = None,
    protocol: Annotated[Words, opt("paper, strict; repeat, or a,b; or none.")] = None,
    metric: Annotated[Words, opt("Metric of a plugin; repeat, or a,b.")] = None,
    fidelity: Annotated[Words, opt("Removals: em, nc, delete; repeat, or a,b; or none.")] = None,
    plugins: common.Plugins = None,
    json: Json = False,
) -> None:
    """Run explainers on benchmarks with known truth; what is finished is never repeated.

    \b
    nicegnn lab bench -d benzene -e nice,occlusion,random --seed 0,1
    nicegnn lab bench -d nitro -t small -e lonely --metric mass --plugin mine.py
    """
    from nicegnn_lab.bench import BenchConfig, MetricConfig, read_settings, run_bench
    from nicegnn_lab.bench.plan import CHOSEN_FILE
    from nicegnn_lab.bench.targets import MAIN_TARGET

    usual, say = MetricConfig(), saying(json)
    with common.plain_errors():
        names, models, methods = options.known_names(datasets, targets, explainers)
        settings = BenchConfig(
            datasets=tuple(names),
            explainers=tuple(methods),
            targets=tuple(models) or (MAIN_TARGET,),
            seeds=common.split_numbers("--seed", seeds, int, (0,)),
            out=out,
            targets_folder=targets_folder,
            settings=read_settings(config or CHOSEN_FILE),
            max_graphs=max_graphs,
            fit_graphs=fit_graphs,
            device=device,
            metrics=MetricConfig(
                protocols=_some(protocol, usual.protocols),
                removals=_some(fidelity, usual.removals),
                own=tuple(split_commas(metric)),
            ),
        )
        report = run_bench(settings, progress=True, say=say)
    say(f"{report} Rows are in {out / 'rows'}.")
    if json:
        print_json({**cells_of(report), "rows": out / "rows"})
    _tell_failures(report, out)


def cells_of(report: RunReport) -> dict[str, Any]:
    """Returns what became of the cells of a run, for JSON."""
    return {
        "cells": len(report.cells),
        "finished": len(report.finished),
        "explained": report.num_explained,
        "measured": report.num_measured,
        "failed": [str(cell) for cell in report.failed],
    }


def _tell_failures(report: RunReport, out: Path) -> None:
    """Ends the command with code 1 if cells failed."""
    if report.failed:
        typer.echo(f"What went wrong is in {out / 'failed'}:", err=True)
        for cell in report.failed:
            typer.echo(f"  {cell}: {out / 'failed' / cell.key}.json", err=True)
        raise typer.Exit(1)


def _some(values: Words, usual: tuple[str, ...]) -> tuple[str, ...]:
    items = split_commas(values)
    return () if "none" in items else tuple(items) or usual


def tune(
    datasets: options.Datasets,
    explainers: Annotated[Words, opt(f"{EXPLAINER}; else all.", "--explainer", "-e")] = None,
    targets: options.Targets = None,
    search: Annotated[Path | None, opt("TOML settings to try; else the package's own.")] = None,
    targets_folder: options.TargetsFolder = options.TARGETS_FOLDER,
    out: Annotated[Path, to_folder("Folder for the rows of trials.")] = Path("results/tuning"),
    chosen: Annotated[Path | None, to_file("TOML file for the best settings of trials.")] = None,
    num_graphs: Annotated[int, opt("Validation graphs to explain.", min=1)] = 200,
    fit_graphs: options.FitGraphs = None,
    device: options.Device = None,
    plugins: common.Plugins = None,
    json: Json = False,
) -> None:
    """Choose settings of explainers without truth: by the probability their best bonds keep.

    \b
    nicegnn lab tune -d benzene -e pgexplainer --chosen chosen.toml
    """
    from nicegnn.store import write_text
    from nicegnn_lab.bench import tuning
    from nicegnn_lab.bench.plan import SEARCH_FILE
    from nicegnn_lab.bench.targets import MAIN_TARGET

    names, models, methods = options.known_names(datasets, targets, explainers)
    report = tuning.run_tuning(
        tuning.read_search(search or SEARCH_FILE),
        names,
        models or [MAIN_TARGET],
        methods,
        out=out,
        targets_folder=targets_folder,
        device=device,
        fit_graphs=fit_graphs,
        progress=True,
        num_graphs=num_graphs,
    )
    if len(report.failed) == len(report.cells):
        _tell_failures(report, out)
    tried = {(cell.dataset, cell.target, cell.explainer) for cell in report.cells}
    say, results = saying(json), []
    for best in tuning.best_trials(out):
        if (best.dataset, best.target, best.explainer.partition("+")[0]) in tried:
            results.append(vars(best))
            say(
                f"{best.dataset} {best.target} {best.explainer}: {best.num_trials} trials, best "
                f"{best.criterion:.4f} with {best.settings}, worst {best.worst:.4f}"
            )
    if chosen is not None:
        write_text(chosen, tuning.settings_toml(tuning.best_settings(out)))
        say(f"Chosen settings are in {chosen}.")
    if json:
        print_json({**cells_of(report), "best": results})
    _tell_failures(report, out)


def pack(
    results: Annotated[
        Path,
        typer.Argument(help="Folder of all results; the rows of every study in it are packed."),
    ] = Path("results"),
    rows: Annotated[Path | None, opt("Folder of one study, such as results/bench, alone.")] = None,
    json: Json = False,
) -> None:
    """Put the rows of all finished cells into one small file per study, which all tables read.

    \b
    nicegnn lab pack
    nicegnn lab pack --rows results/bench
    """
    from nicegnn_lab.bench import pack, pack_all
    from nicegnn_lab.bench.rows import packed_cells

    say, packed = saying(json), []
    with common.plain_errors():
        for file in pack_all(results) if rows is None else [pack(rows)]:
            cells = packed_cells(file)
            num_rows = sum(cell.num_rows for cell in cells.values())
            size = file.stat().st_size / 1e3
            packed.append({"file": file, "cells": len(cells), "rows": num_rows})
            say(f"{len(cells)} cells, {num_rows} rows, {size:.0f} kB: {file}")
    if json:
        print_json(packed)
