"""Datasets and targets: ``nicegnn lab data | train-targets | targets``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from nicegnn.cli import options as common
from nicegnn.cli.options import (
    Json,
    Words,
    opt,
    print_json,
    saying,
    to_folder,
    typed_words,
)
from nicegnn_lab.cli import options
from nicegnn_lab.cli.options import TARGETS_FOLDER

data_app = typer.Typer(no_args_is_help=True, help="Benchmark datasets.")

Root = Annotated[Path | None, opt("Data folder; else NICEGNN_DATA.", "--root")]
Cache = Annotated[Path | None, opt("Cache folder; else NICEGNN_CACHE.", "--cache")]


@data_app.command("ls")
def list_datasets(root: Root = None, plugins: common.Plugins = None, json: Json = False) -> None:
    """Lists all datasets and whether their files are there.

    \b
    nicegnn lab data ls
    """
    from rich.console import Console
    from rich.table import Table

    from nicegnn_lab.datasets.data_files import MissingDataError, data_folder
    from nicegnn_lab.datasets.dataset import STAND_IN
    from nicegnn_lab.datasets.prepare import find_files
    from nicegnn_lab.datasets.registry import DATASETS, FAMILIES

    folder = data_folder(root)
    table, results = Table("dataset", "label 1", "files", title=f"data folder: {folder}"), {}
    for facts in DATASETS.values():
        family = FAMILIES[facts.family]
        try:
            find_files(family, folder)
            state = STAND_IN if family.is_stand_in else "there"
        except MissingDataError:
            state = "missing"
        table.add_row(facts.name, facts.meaning, state)
        results[facts.name] = {"label 1": facts.meaning, "files": state}
    print_json(results) if json else Console().print(table)


@data_app.command()
def show(
    name: str,
    root: Root = None,
    cache: Cache = None,
    plugins: common.Plugins = None,
    json: Json = False,
) -> None:
    """Describes one dataset: question, truth, sizes, and what was read.

    \b
    nicegnn lab data show benzene
    """
    from nicegnn_lab.datasets.dataset import load_dataset

    with typed_words():
        dataset = load_dataset(name, root=root, cache=cache, progress=True)
    facts, say = dataset.facts, saying(json)
    results: dict[str, Any] = {"title": dataset.title, "label 1": facts.meaning}
    results |= {"truth": facts.truth, "note": facts.note, "split": dataset.origin.split}
    for what, text in results.items():
        say(f"{what}: {text}")
    parts = {"train": dataset.train, "valid": dataset.valid, "test": dataset.test}
    for part, graphs in {"all": dataset, **parts}.items():
        batch, size = graphs.batch(), max(1, len(graphs))
        told = {"graphs": len(graphs), "positives": int(batch.y.sum())}
        means = {"atoms": batch.num_nodes / size, "bonds": batch.num_edges / 2 / size}
        means["true bonds"] = int(batch.edge_truth.sum()) / 2 / size
        results[part] = told | means
        words = [f"{number} {what}" for what, number in told.items()]
        words += [f"{mean:.2f} {what} each" for what, mean in means.items()]
        say(f"  {part}: {', '.join(words)}")
    say(str(dataset.report))
    if json:
        print_json(results)


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
    """Train target models on the benchmarks; finished ones are skipped.

    \b
    nicegnn lab train-targets -d benzene -t gin --num-seeds 3
    """
    from nicegnn.target.training import TrainConfig
    from nicegnn.target.zoo import device_of
    from nicegnn_lab.bench.targets import TARGETS, train_target
    from nicegnn_lab.datasets.dataset import load_dataset
    from nicegnn_lab.datasets.registry import DATASETS

    names, kinds, _ = options.known_names(datasets, targets)
    config = TrainConfig(epochs=epochs, stop_after=stop_after, seed=seed)
    say, results = saying(json), []
    for name in names or DATASETS:
        dataset = load_dataset(name, progress=True)
        for target in kinds or [name for name, recipe in TARGETS.items() if not recipe.is_trained]:
            say(f"{dataset.title}, {target}")
            trained = train_target(
                dataset, target, out, config, num_seeds=num_seeds, device=device_of(device)
            )
            test = trained.manifest["test"]
            results.append(trained.manifest)
            say(
                f"  test accuracy {test['accuracy']:.2%} (95% {test['interval'][0]:.2%} to "
                f"{test['interval'][1]:.2%}), ECE {test['ece']:.3f}, best epoch "
                f"{trained.manifest['best_epoch']} of {trained.manifest['epochs']}"
            )
    if json:
        print_json(results)


def targets(
    folder: Annotated[Path, typer.Argument(help="Folder of trained targets.")] = TARGETS_FOLDER,
    markdown: options.Markdown = None,
    plugins: common.Plugins = None,
    json: Json = False,
) -> None:
    """Show the trained targets beside the paper's.

    \b
    nicegnn lab targets
    """
    from nicegnn.store import write_text
    from nicegnn_lab.tables.inventory import read_manifests, target_table

    text = target_table(folder).to_markdown()
    if markdown is not None:
        write_text(markdown, text)
    saying(json)(text)
    if json:
        print_json(read_manifests(folder))
