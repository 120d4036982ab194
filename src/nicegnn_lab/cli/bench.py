"""``nicegnn lab bench | experiment | tune | pack``: run cells, choose settings, pack rows."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from nicegnn.cli import options as common
from nicegnn.cli.options import WordError, Words, opt, to_file, to_folder
from nicegnn_lab.cli import options
from nicegnn_lab.studies import STUDIES, make_study

EXPLAINER = "Explainer, name or name+nc (em, exchange); repeat, or a,b"


def bench(
    datasets: options.Datasets,
    explainers: Annotated[list[str], opt(f"{EXPLAINER}.", "--explainer", "-e")],
    seeds: options.Seeds = None,
    targets: options.Targets = None,
    targets_folder: options.TargetsFolder = options.TARGETS_FOLDER,
    out: Annotated[Path, to_folder("Folder for rows.")] = Path("results/bench"),
    max_graphs: options.MaxGraphs = None,
    fit_graphs: options.FitGraphs = None,
    device: options.Device = None,
    config: Annotated[
        Path | None, opt("TOML settings of explainers; else the package's own.")
    ] = None,
    metric: Annotated[Words, opt("Metric of a plugin; repeat, or a,b.")] = None,
    fidelity: Annotated[Words, opt("em, nc, delete; repeat, or a,b; or none.")] = None,
    plugins: common.Plugins = None,
) -> None:
    """Run explainers on benchmarks with known truth; what is finished is never repeated.

    \b
    nicegnn lab bench -d benzene -e nice,occlusion,random --seed 0,1
    nicegnn lab bench -d nitro -t small -e lonely --metric mass --plugin mine.py
    """
    from nicegnn_lab.bench.measure import Benchmark, MetricConfig
    from nicegnn_lab.bench.plan import CHOSEN_FILE, read_settings
    from nicegnn_lab.bench.run import run_study

    with common.plain_errors():
        names, models, methods = options.known_names(datasets, targets, explainers)
        removals = [word for word in options.split_commas(fidelity) if word != "none"]
        usual = MetricConfig() if fidelity is None else MetricConfig(tuple(removals))
        metrics = replace(usual, own=tuple(options.split_commas(metric)))
        report = run_study(
            Benchmark(tuple(methods), read_settings(config or CHOSEN_FILE), metrics),
            names,
            models,
            options.split_seeds(seeds),
            out=out,
            targets_folder=targets_folder,
            device=device,
            max_graphs=max_graphs,
            fit_graphs=fit_graphs,
            say=typer.echo,
        )
    typer.echo(f"{report} Rows are in {out / 'rows'}.")
    options.tell_failures(report, out)


def experiment(
    name: Annotated[str, typer.Argument(help=f"{', '.join(STUDIES)}.")],
    datasets: Annotated[
        Words, opt("Dataset; repeat, or a,b. Wide and atoms have their own.", "--dataset", "-d")
    ] = None,
    targets: options.Targets = None,
    seeds: options.Seeds = None,
    out: Annotated[Path, to_folder("Folder for rows, one folder per study.")] = Path(
        "results/studies"
    ),
    max_graphs: options.MaxGraphs = None,
    device: options.Device = None,
    plugins: common.Plugins = None,
) -> None:
    """Compute the rows of a study, by default on its own targets; finished cells are skipped.

    \b
    nicegnn lab experiment ablation -d benzene --seed 0,1
    """
    from nicegnn_lab.bench.run import run_study

    with common.typed_words():
        study = make_study(name)
    data, models, _ = options.known_names(datasets, targets, study=study)
    if not data and study.datasets is None:
        raise WordError(f"`--dataset` must name a dataset for {name}, such as -d benzene.")
    report = run_study(
        study,
        data,
        models,
        options.split_seeds(seeds),
        out=out / name,
        max_graphs=max_graphs,
        device=device,
        say=typer.echo,
    )
    typer.echo(f"{name}: {report} Rows are in {out / name}")
    options.tell_failures(report, out / name)


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
) -> None:
    """Choose settings of explainers without truth: by the probability their best bonds keep.

    \b
    nicegnn lab tune -d benzene -e pgexplainer --chosen chosen.toml
    """
    from nicegnn.store import write_text
    from nicegnn_lab.bench import tuning
    from nicegnn_lab.bench.plan import SEARCH_FILE
    from nicegnn_lab.bench.run import run_study

    names, models, methods = options.known_names(datasets, targets, explainers)
    known = tuning.read_search(search or SEARCH_FILE)
    # one without candidates has one trial, with its defaults
    space = {name: known.get(name, known.get(name.partition("+")[0], [{}])) for name in methods}
    report = run_study(
        tuning.Tuning(space or known, num_graphs=num_graphs),
        names,
        models,
        out=out,
        targets_folder=targets_folder,
        device=device,
        fit_graphs=fit_graphs,
        say=typer.echo,
    )
    if len(report.failed) == len(report.cells):
        options.tell_failures(report, out)
    tried = {(cell.dataset, cell.target, cell.variant.explainer) for cell in report.cells}
    for best in tuning.best_trials(out):
        if (best.dataset, best.target, best.explainer.partition("+")[0]) in tried:
            typer.echo(
                f"{best.dataset} {best.target} {best.explainer}: {best.num_trials} trials, best "
                f"{best.criterion:.4f} with {best.settings}, worst {best.worst:.4f}"
            )
    if chosen is not None:
        write_text(chosen, tuning.settings_toml(tuning.best_settings(out)))
        typer.echo(f"Chosen settings are in {chosen}.")
    options.tell_failures(report, out)


def pack(
    results: Annotated[
        Path,
        typer.Argument(help="Folder of all results; the rows of every study in it are packed."),
    ] = Path("results"),
) -> None:
    """Put the rows of all finished cells into a few small files per study, which all tables read.

    \b
    nicegnn lab pack
    """
    from nicegnn_lab.bench.rows import cells_in, pack_all

    with common.plain_errors():
        for file in pack_all(results):
            cells = cells_in(file)
            num_rows = sum(cell.num_rows for cell in cells)
            size = file.stat().st_size / 1e3
            typer.echo(f"{len(cells)} cells, {num_rows} rows, {size:.0f} kB: {file}")
