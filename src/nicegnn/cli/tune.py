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
    out: Annotated[Path, typer.Option(help="Folder for the logs of trials.")] = Path(
        "results/tuning"
    ),
    chosen: Annotated[
        Path | None, typer.Option(help="Write the best settings of all logs to this TOML file.")
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
    from nicegnn.bench.targets import MAIN_TARGET, load_target, target_path
    from nicegnn.bench.tuning import TuneConfig, best_settings, read_search, settings_toml, tune
    from nicegnn.datasets import load_dataset
    from nicegnn.rivals.registry import find_entry
    from nicegnn.store import write_text
    from nicegnn.target.zoo import device_of

    console = Console()
    space = read_search(search)
    where = device_of(device)
    config = TuneConfig(
        num_graphs=num_graphs,
        fit_graphs=fit_graphs,
        steps=steps,
        chunk_edges=2_000_000 if where.type == "cuda" else 400_000,
    )
    for name in split_commas(datasets):
        dataset = load_dataset(name, progress=True)
        for target in split_commas(targets) or [MAIN_TARGET]:
            model = load_target(target_path(targets_folder, name, target), device=where)
            for explainer in split_commas(explainers) or list(space):
                entry, _ = find_entry(explainer)
                candidates = space.get(explainer, space.get(entry.name, [{}]))
                log = out / f"{name}-{target}-{explainer}.json"
                trials = tune(dataset, model, explainer, candidates, config, log=log)
                console.print(
                    f"{dataset.title} {target} {explainer}: {len(trials)} trials, best "
                    f"{trials[0].criterion:.4f} with {trials[0].settings}, worst "
                    f"{trials[-1].criterion:.4f}",
                    soft_wrap=True,
                )
    if chosen is not None:
        write_text(chosen, settings_toml(best_settings(out)))
        console.print(f"Chosen settings are in {chosen}.")
