"""``nicegnn tune``: tries settings on validation graphs and writes the chosen ones to a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from nicegnn.cli.options import split_commas


def tune(
    datasets: Annotated[
        list[str], typer.Option("--dataset", "-d", help="Benchmark; repeat, or a,b.")
    ],
    explainers: Annotated[
        list[str] | None,
        typer.Option(
            "--explainer", "-e", help="Explainer, name or name+nc; repeat, or a,b; else all."
        ),
    ] = None,
    targets: Annotated[
        list[str] | None, typer.Option("--target", "-t", help="Target model; repeat, or a,b.")
    ] = None,
    search: Annotated[Path, typer.Option(help="TOML file with the settings to try.")] = Path(
        "configs/search.toml"
    ),
    targets_folder: Annotated[Path, typer.Option(help="Folder of trained targets.")] = Path(
        "results/targets"
    ),
    out: Annotated[Path, typer.Option(help="Folder for the rows of trials.")] = Path(
        "results/tuning"
    ),
    chosen: Annotated[
        Path | None, typer.Option(help="Write the best settings of all trials to this TOML file.")
    ] = None,
    num_graphs: Annotated[int, typer.Option(min=1, help="Validation graphs to explain.")] = 200,
    fit_graphs: Annotated[
        int | None, typer.Option(min=1, help="Most training graphs to fit on.")
    ] = None,
    steps: Annotated[
        int | None, typer.Option(min=1, help="Steps of every fit, to save time; else its own.")
    ] = None,
    device: Annotated[str | None, typer.Option(help="cpu or cuda; by default what is there.")] = (
        None
    ),
) -> None:
    """Choose settings of explainers without truth: by the probability their best bonds keep."""
    from nicegnn.bench.targets import MAIN_TARGET
    from nicegnn.bench.tuning import (
        best_settings,
        best_trials,
        read_search,
        run_tuning,
        settings_toml,
    )
    from nicegnn.store import write_text

    console = Console()
    report = run_tuning(
        read_search(search),
        split_commas(datasets),
        split_commas(targets) or [MAIN_TARGET],
        split_commas(explainers),
        out=out,
        targets_folder=targets_folder,
        device=device,
        num_graphs=num_graphs,
        fit_graphs=fit_graphs,
        steps=steps,
        progress=True,
    )
    tried = {(cell.dataset, cell.target, cell.explainer) for cell in report.cells}
    for best in best_trials(out):
        if (best.dataset, best.target, best.explainer.partition("+")[0]) in tried:
            console.print(
                f"{best.dataset} {best.target} {best.explainer}: {best.num_trials} trials, best "
                f"{best.criterion:.4f} with {best.settings}, worst {best.worst:.4f}",
                soft_wrap=True,
            )
    if chosen is not None:
        write_text(chosen, settings_toml(best_settings(out)))
        console.print(f"Chosen settings are in {chosen}.")
