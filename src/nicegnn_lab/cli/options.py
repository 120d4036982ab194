"""What commands of the laboratory share beside the options of all commands."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nicegnn.cli.options import WordError, Words, opt, typed_words

if TYPE_CHECKING:
    from nicegnn_lab.bench.run import RunReport
    from nicegnn_lab.bench.study import Study


def split_commas(values: Words) -> list[str]:
    """Returns the words of an option that is repeated, or has commas between its words.

    >>> split_commas(["a,b", "c"]), split_commas(None)
    (['a', 'b', 'c'], [])
    """
    parts = [part.strip() for value in values or [] for part in value.split(",")]
    return [part for part in parts if part]


def split_seeds(values: Words) -> tuple[int, ...]:
    """Returns the seeds of such an option, by default seed 0."""
    try:
        return tuple(int(text) for text in split_commas(values)) or (0,)
    except ValueError:
        raise WordError(f"`--seed` must be whole numbers, such as 0,1 (got {values}).") from None


def known_names(
    datasets: Words, targets: Words, explainers: Words = None, study: Study | None = None
) -> list[list[str]]:
    """Returns the names of three options; an unknown one is an error before any file is read.

    A study may have datasets and targets of its own.
    """
    from nicegnn.config import check_choice
    from nicegnn.explain.registry import EXPLAINERS
    from nicegnn_lab.bench.targets import TARGETS
    from nicegnn_lab.datasets.registry import DATASETS

    own, own_targets = (study.datasets or (), study.targets) if study else ((), ())
    choices_of = {
        "--dataset": (datasets, [*DATASETS, *own]),
        "--target": (targets, [*TARGETS, *own_targets]),
        "--explainer": (explainers, [*EXPLAINERS]),
    }
    typed = []
    for flag, (values, choices) in choices_of.items():
        typed.append(split_commas(values))
        with typed_words("Name the --plugin that adds it, or choose one of these."):
            for name in typed[-1]:
                check_choice(flag, name.partition("+")[0], dict.fromkeys(choices))
    return typed


def tell_failures(report: RunReport, out: Path) -> None:
    """Ends the command with code 1 if cells failed."""
    if report.failed:
        typer.echo(f"What went wrong is in {out / 'failed'}:", err=True)
        for cell in report.failed:
            typer.echo(f"  {cell}: {out / 'failed' / cell.key}.json", err=True)
        raise typer.Exit(1)


DATASET = opt("Benchmark dataset; repeat, or a,b.", "--dataset", "-d")
Datasets = Annotated[list[str], DATASET]
Targets = Annotated[Words, opt("gin, gin-mean, gcn, gat; repeat, or a,b.", "--target", "-t")]
Seeds = Annotated[Words, opt("Seed; repeat, or 0,1.", "--seed", "--seeds", "-s")]
TargetsFolder = Annotated[Path, opt("Folder of trained targets.")]
TARGETS_FOLDER = Path("results/targets")
MaxGraphs = Annotated[int | None, opt("Most graphs explained, same for all.", min=1)]
FitGraphs = Annotated[int | None, opt("Most training graphs to fit on, the same for all.", min=1)]
Device = Annotated[str | None, opt("cpu or cuda; by default what is there.")]
