"""``nicegnn data``: list, download, prepare, verify and describe the benchmark datasets."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from nicegnn.datasets.data_files import MissingDataError, cache_folder, data_folder
from nicegnn.datasets.dataset import STAND_IN, load_dataset
from nicegnn.datasets.download import download_dataset
from nicegnn.datasets.prepare import find_files, prepare_dataset
from nicegnn.datasets.registry import DATASETS, FAMILIES, facts_of
from nicegnn.datasets.statistics import dataset_statistics
from nicegnn.datasets.verify import verify_dataset
from nicegnn.paper.dataset_statistics import statistics_markdown
from nicegnn.paper.numbers import PAPER_STATISTICS
from nicegnn.store import write_text

data_app = typer.Typer(no_args_is_help=True, help="Benchmark datasets.")

Root = Annotated[Path | None, typer.Option("--root", help="Data folder; else NICEGNN_DATA.")]
Cache = Annotated[Path | None, typer.Option("--cache", help="Cache folder; else NICEGNN_CACHE.")]
Layout = Annotated[str | None, typer.Option("--layout", help="'tidy' or 'published'.")]
Keep = Annotated[bool, typer.Option("--keep-damaged", help="Use the sound part of damaged files.")]
Names = Annotated[list[str] | None, typer.Argument(help="Datasets; all by default.")]


def _say(text: str) -> None:
    Console().print(text, highlight=False, markup=False, soft_wrap=True)


@data_app.command("ls")
def list_datasets(root: Root = None) -> None:
    """Lists all datasets and whether their files are there."""
    folder = data_folder(root)
    table = Table("dataset", "label 1", "files", title=f"data folder: {folder}")
    for facts in DATASETS.values():
        try:
            layout = find_files(FAMILIES[facts.family], folder).layout
            state = f"{layout.name}, {STAND_IN}" if layout.is_stand_in else layout.name
        except MissingDataError:
            state = "missing"
        table.add_row(facts.name, facts.meaning, state)
    Console().print(table)


@data_app.command()
def download(
    names: Names = None,
    root: Root = None,
    force: Annotated[bool, typer.Option("--force", help="Fetch files anew.")] = False,
) -> None:
    """Fetches the published files."""
    for name in _one_per_family(names):
        for file in download_dataset(name, root=root, force=force, progress=True):
            note = " (no checksum was known: recorded this one)" * (file.status == "first use")
            _say(f"{file.status}: {file.path} sha256 {file.sha256}{note}")


@data_app.command("prepare")
def prepare_datasets(
    names: Names = None,
    root: Root = None,
    cache: Cache = None,
    layout: Layout = None,
    keep_damaged: Keep = False,
    rebuild: Annotated[bool, typer.Option("--rebuild", help="Even if the cache is fresh.")] = False,
) -> None:
    """Reads the files and fills the cache."""
    for name in _one_per_family(names):
        prepared = prepare_dataset(
            name,
            root=root,
            cache=cache,
            layout=layout,
            on_damage="keep" if keep_damaged else "error",
            rebuild=rebuild,
            progress=True,
        )
        _say(f"{facts_of(name).family}: {prepared.report}\n  in {prepared.path}")


@data_app.command()
def verify(
    names: Names = None,
    root: Root = None,
    layout: Layout = None,
    every: Annotated[int, typer.Option(min=1, help="Check every n-th molecule.")] = 1,
    shown: Annotated[int, typer.Option(min=0, help="Exceptions to list for each set.")] = 20,
) -> None:
    """Compares published labels and masks with those derived from chemistry."""
    num_differing = 0
    for name in names or list(DATASETS):
        result = verify_dataset(name, root=root, layout=layout, every=every, progress=True)
        num_differing += len(result.disagreements)
        _say(
            f"{name} ({result.layout}): {result.num_agreeing} of {result.num_checked} agree with "
            f"{result.compared}; {result.num_unreadable} rows unreadable; files: "
            + ", ".join(f"{file} {state}" for file, state in result.checksums.items())
        )
        for item in result.disagreements[:shown]:
            _say(f"  row {item.row} {item.smiles}: {item.what}")
    if num_differing:
        raise typer.Exit(2)


@data_app.command()
def show(
    name: str,
    root: Root = None,
    cache: Cache = None,
    split: Annotated[str | None, typer.Option(help="random, scaffold, or 0 to 4.")] = None,
    seed: int = 0,
    keep_damaged: Keep = False,
) -> None:
    """Describes one dataset: question, truth, sizes, and what was read."""
    dataset = load_dataset(
        name,
        root=root,
        cache=cache,
        split=split,
        seed=seed,
        on_damage="keep" if keep_damaged else "error",
        progress=True,
    )
    facts = dataset.facts
    _say(f"{dataset.title}\n  label 1: {facts.meaning}\n  truth: {facts.truth}")
    if facts.note:
        _say(f"  note: {facts.note}")
    parts = {"train": dataset.train, "valid": dataset.valid, "test": dataset.test}
    for part, graphs in {"all": dataset, **parts}.items():
        figures = dataset_statistics(graphs)
        _say(
            f"  {part}: {figures.num_graphs} graphs, {figures.positive_ratio:.2f} % positive, "
            f"{figures.mean_nodes:.2f} nodes, {figures.mean_edges:.2f} edges, "
            f"true edges of positives {figures.union_positives} %"
        )
    _say(f"  split: {dataset.origin.split}\n{dataset.report}")


@data_app.command()
def stats(
    names: Names = None,
    root: Root = None,
    cache: Cache = None,
    markdown: Annotated[Path | None, typer.Option(help="Write the table to this file.")] = None,
) -> None:
    """Puts our figures beside the paper's and explains where they differ."""
    chosen = names or list(PAPER_STATISTICS)
    text = statistics_markdown(
        [load_dataset(name, root=root, cache=cache, progress=True) for name in chosen]
    )
    if markdown is None:
        _say(text)
    else:
        markdown.parent.mkdir(parents=True, exist_ok=True)
        write_text(markdown, text)
        _say(f"wrote {markdown}; prepared data are in {cache_folder(cache)}")


def _one_per_family(names: list[str] | None) -> list[str]:
    """The first of the given datasets in each family: they share their files."""
    families = {facts_of(name).family: name for name in reversed(names or list(DATASETS))}
    return list(reversed(families.values()))
