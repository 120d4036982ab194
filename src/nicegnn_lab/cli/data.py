"""Datasets and targets: ``nicegnn lab data | train-targets | targets``."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from nicegnn.cli import options as common
from nicegnn.cli.options import (
    Json,
    Words,
    console,
    opt,
    print_json,
    saying,
    to_file,
    to_folder,
    typed_words,
)
from nicegnn_lab.cli import options
from nicegnn_lab.cli.options import TARGETS_FOLDER

data_app = typer.Typer(no_args_is_help=True, help="Benchmark datasets.")

Root = Annotated[Path | None, opt("Data folder; else NICEGNN_DATA.", "--root")]
Cache = Annotated[Path | None, opt("Cache folder; else NICEGNN_CACHE.", "--cache")]
Layout = Annotated[str | None, opt("'tidy' or 'published'.", "--layout")]
Keep = Annotated[bool, opt("Use the sound part of damaged files.", "--keep-damaged")]
Force = Annotated[bool, opt("Fetch files anew.", "--force")]
Names = Annotated[Words, typer.Argument(help="Datasets; all by default.")]


@data_app.command("ls")
def list_datasets(root: Root = None, plugins: common.Plugins = None, json: Json = False) -> None:
    """Lists all datasets and whether their files are there.

    \b
    nicegnn lab data ls
    """
    from rich.table import Table

    from nicegnn_lab.datasets import DATASETS, FAMILIES, MissingDataError, data_folder
    from nicegnn_lab.datasets.dataset import STAND_IN
    from nicegnn_lab.datasets.prepare import find_files

    folder = data_folder(root)
    table, told = Table("dataset", "label 1", "files", title=f"data folder: {folder}"), {}
    for facts in DATASETS.values():
        try:
            layout = find_files(FAMILIES[facts.family], folder).layout
            state = f"{layout.name}, {STAND_IN}" if layout.is_stand_in else layout.name
        except MissingDataError:
            state = "missing"
        table.add_row(facts.name, facts.meaning, state)
        told[facts.name] = {"label 1": facts.meaning, "files": state}
    print_json(told) if json else console.print(table)


@data_app.command()
def download(
    names: Names = None, root: Root = None, force: Force = False, json: Json = False
) -> None:
    """Fetches the published files.

    \b
    nicegnn lab data download benzene
    """
    from nicegnn_lab.datasets import download_dataset

    say, told = saying(json), []
    for name in _by_family(names).values():
        for file in download_dataset(name, root=root, force=force, progress=True):
            note = " (no checksum was known: recorded this one)" * (file.status == "first use")
            told.append({"status": file.status, "path": file.path, "sha256": file.sha256})
            say(f"{file.status}: {file.path} sha256 {file.sha256}{note}")
    if json:
        print_json(told)


@data_app.command("prepare")
def prepare_datasets(
    names: Names = None,
    root: Root = None,
    cache: Cache = None,
    layout: Layout = None,
    keep_damaged: Keep = False,
    rebuild: Annotated[bool, opt("Even if the cache is fresh.", "--rebuild")] = False,
    plugins: common.Plugins = None,
    json: Json = False,
) -> None:
    """Reads the files and fills the cache.

    \b
    nicegnn lab data prepare benzene
    """
    from nicegnn_lab.datasets import prepare_dataset

    read = partial(prepare_dataset, root=root, cache=cache, layout=layout, rebuild=rebuild)
    say, told = saying(json), {}
    for family, name in _by_family(names).items():
        with typed_words():
            prepared = read(name, on_damage="keep" if keep_damaged else "error", progress=True)
        told[family] = prepared.path
        say(f"{family}: {prepared.report}\n  in {prepared.path}")
    if json:
        print_json(told)


@data_app.command()
def verify(
    names: Names = None,
    root: Root = None,
    layout: Layout = None,
    every: Annotated[int, opt("Check every n-th molecule.", min=1)] = 1,
    shown: Annotated[int, opt("Exceptions to list for each set.", min=0)] = 20,
    json: Json = False,
) -> None:
    """Compares published labels and masks with those derived from chemistry.

    \b
    nicegnn lab data verify benzene --every 10
    """
    from nicegnn_lab.datasets import DATASETS, verify_dataset

    num_differing, say, told = 0, saying(json), {}
    for name in names or [name for name, facts in DATASETS.items() if facts.rule]:
        with typed_words():
            result = verify_dataset(name, root=root, layout=layout, every=every, progress=True)
        num_differing += len(result.disagreements)
        told[name] = {
            "agree": result.num_agreeing,
            "checked": result.num_checked,
            "unreadable": result.num_unreadable,
            "differ": [vars(item) for item in result.disagreements],
        }
        say(
            f"{name} ({result.layout}): {result.num_agreeing} of {result.num_checked} agree with "
            f"{result.compared}; {result.num_unreadable} rows unreadable; files: "
            + ", ".join(f"{file} {state}" for file, state in result.checksums.items())
        )
        for item in result.disagreements[:shown]:
            say(f"  row {item.row} {item.smiles}: {item.what}")
    if json:
        print_json(told)
    if num_differing:
        raise typer.Exit(2)


@data_app.command()
def show(
    name: str,
    root: Root = None,
    cache: Cache = None,
    split: Annotated[str | None, opt("random, scaffold, or 0 to 4.")] = None,
    seed: int = 0,
    keep_damaged: Keep = False,
    plugins: common.Plugins = None,
    json: Json = False,
) -> None:
    """Describes one dataset: question, truth, sizes, and what was read.

    \b
    nicegnn lab data show benzene
    """
    from nicegnn_lab.datasets import dataset_statistics, load_dataset

    damage: Literal["keep", "error"] = "keep" if keep_damaged else "error"
    with typed_words():
        dataset = load_dataset(
            name, root=root, cache=cache, split=split, seed=seed, on_damage=damage, progress=True
        )
    facts, say = dataset.facts, saying(json)
    told: dict[str, Any] = {"title": dataset.title, "label 1": facts.meaning, "truth": facts.truth}
    told |= {"note": facts.note, "split": str(dataset.origin.split)}
    say(f"{dataset.title}\n  label 1: {facts.meaning}\n  truth: {facts.truth}")
    if facts.note:
        say(f"  note: {facts.note}")
    parts = {"train": dataset.train, "valid": dataset.valid, "test": dataset.test}
    for part, graphs in {"all": dataset, **parts}.items():
        figures = dataset_statistics(graphs)
        told[part] = vars(figures)
        say(
            f"  {part}: {figures.num_graphs} graphs, {figures.positive_ratio:.2f} % positive, "
            f"{figures.mean_nodes:.2f} nodes, {figures.mean_edges:.2f} edges, "
            f"true edges of positives {figures.union_positives} %"
        )
    say(f"  split: {dataset.origin.split}\n{dataset.report}")
    if json:
        print_json(told)


@data_app.command()
def stats(
    names: Names = None,
    root: Root = None,
    cache: Cache = None,
    markdown: options.Markdown = None,
    json: Json = False,
) -> None:
    """Puts our figures beside the paper's and explains where they differ.

    \b
    nicegnn lab data stats benzene
    """
    from nicegnn.store import write_text
    from nicegnn_lab.datasets import cache_folder, dataset_statistics, load_dataset
    from nicegnn_lab.paper.numbers import PAPER_STATISTICS, statistics_markdown

    wanted = names or PAPER_STATISTICS
    with typed_words():
        found = [load_dataset(one, root=root, cache=cache, progress=True) for one in wanted]
    text = statistics_markdown(found)
    say = saying(json)
    if json:
        print_json({one.facts.name: vars(dataset_statistics(one)) for one in found})
    if markdown is None:
        say(text)
    else:
        write_text(markdown, text)
        say(f"wrote {markdown}; prepared data are in {cache_folder(cache)}")


def _by_family(names: Words) -> dict[str, str]:
    """Returns the first of the given datasets for each family: a family shares its files."""
    from nicegnn_lab.datasets.registry import DATASETS, facts_of

    families: dict[str, str] = {}
    with typed_words():
        for name in names or DATASETS:
            families.setdefault(facts_of(name).family, name)
    return families


def train_targets(
    datasets: Annotated[Words, options.DATASET] = None,
    targets: options.Targets = None,
    out: Annotated[Path, to_folder("Folder for weights and manifests.")] = TARGETS_FOLDER,
    epochs: Annotated[int, opt("Most epochs.", min=1)] = 1000,
    stop_after: Annotated[
        int, opt("Epochs without a better checkpoint before it ends.", min=1)
    ] = 300,
    seed: Annotated[int, opt("First seed of weights and order.")] = 0,
    num_seeds: Annotated[int, opt("Seeds to try; the best on validation is kept.", min=1)] = 1,
    device: options.Device = None,
    plugins: common.Plugins = None,
    json: Json = False,
) -> None:
    """Train target models on the benchmarks; finished ones are skipped, broken-off ones go on.

    \b
    nicegnn lab train-targets -d benzene -t gin --num-seeds 3
    """
    from nicegnn.target.training import TrainConfig
    from nicegnn.target.zoo import device_of
    from nicegnn_lab.bench.targets import TARGETS, train_target
    from nicegnn_lab.bench.task import list_molecule_tasks
    from nicegnn_lab.datasets import load_dataset

    names, kinds, _ = options.known_names(datasets, targets)
    config = TrainConfig(epochs=epochs, stop_after=stop_after, seed=seed)
    say, told = saying(json), []
    for name in names or list_molecule_tasks():
        dataset = load_dataset(name, progress=True)
        for target in kinds or [name for name, recipe in TARGETS.items() if not recipe.is_trained]:
            say(f"{dataset.title}, {target}")
            found = train_target(
                dataset, target, out, config, num_seeds=num_seeds, device=device_of(device)
            )
            test = found.manifest["test"]
            told.append(found.manifest)
            say(
                f"  test accuracy {test['accuracy']:.2%} (95% {test['interval'][0]:.2%} to "
                f"{test['interval'][1]:.2%}), ECE {test['ece']:.3f}, best epoch "
                f"{found.manifest['best_epoch']} of {found.manifest['epochs']}"
            )
    if json:
        print_json(told)


def targets(
    folder: Annotated[Path, typer.Argument(help="Folder of trained targets.")] = TARGETS_FOLDER,
    check: Annotated[bool, opt("Load the data and repeat each test accuracy.", "--check")] = False,
    markdown: options.Markdown = None,
    figure: Annotated[Path | None, to_file("Draw confidence histograms into this file.")] = None,
    plugins: common.Plugins = None,
    json: Json = False,
) -> None:
    """Show the trained targets beside the paper's, and check that they reproduce.

    \b
    nicegnn lab targets --check
    """
    from nicegnn.store import write_text
    from nicegnn_lab.tables.inventory import check_targets, read_manifests, target_table

    text = target_table(folder).to_markdown()
    if figure is not None:
        from nicegnn_lab.figures.panels import save_figure
        from nicegnn_lab.figures.quality import calibration_figure

        save_figure(calibration_figure(read_manifests(folder)), figure)
    if markdown is not None:
        write_text(markdown, text)
    say = saying(json)
    say(text)
    for line in check_targets(folder) if check else ():
        say(line)
    if json:
        print_json(read_manifests(folder))
