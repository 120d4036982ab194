"""Datasets and targets: ``nicegnn lab data | train-targets | targets``."""

from pathlib import Path
from typing import Annotated

import typer

from nicegnn.cli import options as common
from nicegnn.cli.options import Words, opt, to_folder, typed_words
from nicegnn_lab.cli import options
from nicegnn_lab.cli.options import TARGETS_FOLDER

data_app = typer.Typer(no_args_is_help=True, help="Benchmark datasets.")


@data_app.command("ls")
def list_datasets(plugins: common.Plugins = None) -> None:
    """Lists all datasets and whether their files are in NICEGNN_DATA.

    \b
    nicegnn lab data ls
    """
    from nicegnn_lab.datasets.data_files import data_folder
    from nicegnn_lab.datasets.dataset import STAND_IN
    from nicegnn_lab.datasets.registry import DATASETS, FAMILIES

    typer.echo(f"data folder: {data_folder()}")
    for facts in DATASETS.values():
        family = FAMILIES[facts.family]
        is_there = all((data_folder() / file).is_file() for file in family.files.values())
        state = "there" if is_there else "missing"
        state = STAND_IN if is_there and family.is_stand_in else state
        typer.echo(f"  {facts.name:20}{facts.meaning:40}{state}")


@data_app.command()
def show(name: str, plugins: common.Plugins = None) -> None:
    """Describes one dataset: question, truth, sizes, and what was read.

    \b
    nicegnn lab data show benzene
    """
    from nicegnn_lab.datasets.dataset import load_dataset

    with typed_words():
        dataset = load_dataset(name)
    facts = dataset.facts
    about = {"title": dataset.title, "label 1": facts.meaning, "truth": facts.truth}
    for what, text in {**about, "split": dataset.split}.items():
        typer.echo(f"{what}: {text}")
    parts = {"train": dataset.train, "valid": dataset.valid, "test": dataset.test}
    for part, graphs in {"all": dataset, **parts}.items():
        batch, size = graphs.batch(), max(1, len(graphs))
        typer.echo(
            f"  {part}: {len(graphs)} graphs, {int(batch.y.sum())} positives, "
            f"{batch.num_nodes / size:.2f} atoms each, {batch.num_edges / 2 / size:.2f} bonds "
            f"each, {int(batch.edge_truth.sum()) / 2 / size:.2f} true bonds each"
        )
    typer.echo(dataset.report)


def train_targets(
    datasets: Annotated[Words, options.DATASET] = None,
    targets: options.Targets = None,
    out: Annotated[Path, to_folder("Folder for weights and manifests.")] = TARGETS_FOLDER,
    epochs: Annotated[int, opt("Most epochs.", min=1)] = 1000,
    num_seeds: Annotated[int, opt("Seeds to try; the best on validation is kept.", min=1)] = 1,
    device: options.Device = None,
    plugins: common.Plugins = None,
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
    config = TrainConfig(epochs=epochs)
    for name in names or DATASETS:
        dataset = load_dataset(name)
        for target in kinds or [name for name, recipe in TARGETS.items() if not recipe.is_trained]:
            typer.echo(f"{dataset.title}, {target}")
            manifest = train_target(
                dataset, target, out, config, num_seeds=num_seeds, device=device_of(device)
            ).manifest
            test = manifest["test"]
            typer.echo(
                f"  test accuracy {test['accuracy']:.2%} (95% {test['interval'][0]:.2%} to "
                f"{test['interval'][1]:.2%}), ECE {test['ece']:.3f}, best epoch "
                f"{manifest['best_epoch']} of {manifest['epochs']}"
            )


def targets(
    folder: Annotated[Path, typer.Argument(help="Folder of trained targets.")] = TARGETS_FOLDER,
    plugins: common.Plugins = None,
) -> None:
    """Show the trained targets beside the paper's, as Markdown.

    \b
    nicegnn lab targets
    """
    from nicegnn_lab.tables.inventory import target_table

    typer.echo(target_table(folder).to_markdown())
