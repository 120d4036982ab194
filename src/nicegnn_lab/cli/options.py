"""What commands of the laboratory share beside the options of all commands."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

from nicegnn.cli.options import Words, opt, split_commas, to_file, typed_words


def known_names(datasets: Words, targets: Words, explainers: Words = None) -> list[list[str]]:
    """Returns the names of three options; an unknown one is an error before any file is read."""
    from nicegnn.config import check_choice
    from nicegnn.explain.registry import EXPLAINERS
    from nicegnn_lab.bench.motif_tasks import MOTIF_TASKS
    from nicegnn_lab.bench.targets import TARGETS
    from nicegnn_lab.datasets import DATASETS

    flags = ("--dataset", "--target", "--explainer")
    choices_of: tuple[Iterable[str], ...] = ((*DATASETS, *MOTIF_TASKS), TARGETS, EXPLAINERS)
    typed = [split_commas(values) for values in (datasets, targets, explainers)]
    for flag, choices, names in zip(flags, choices_of, typed, strict=True):
        with typed_words("Name the --plugin that adds it, or choose one of these."):
            for name in names:
                check_choice(flag, name.partition("+")[0], choices)
    return typed


DATASET = opt("Benchmark dataset; repeat, or a,b.", "--dataset", "-d")
Datasets = Annotated[list[str], DATASET]
Targets = Annotated[Words, opt("gin, gin-mean, gcn, gat; repeat, or a,b.", "--target", "-t")]
TargetsFolder = Annotated[Path, opt("Folder of trained targets.")]
TARGETS_FOLDER = Path("results/targets")
FitGraphs = Annotated[int | None, opt("Most training graphs to fit on, the same for all.", min=1)]
Device = Annotated[str | None, opt("cpu or cuda; by default what is there.")]
Markdown = Annotated[Path | None, to_file("Write the table to this file.")]
