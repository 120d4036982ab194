"""Every number of the paper, once, and its dataset figures beside ours, deviations explained."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files

from nicegnn_lab.datasets.dataset import MoleculeDataset, Share, Statistics, dataset_statistics

Pair = tuple[float, float]  # mean and standard deviation

#: Datasets in the order of the paper's tables.
PAPER_DATASETS = (
    *("mutagenicity", "benzene", "alkane-carbonyl", "fluoride-carbonyl"),
    *("indole", "pains", "rings-count", "rings-max"),
)

_TOLD = tomllib.loads(files("nicegnn_lab.paper").joinpath("paper.toml").read_text(encoding="utf-8"))


def _read(text: str) -> dict[str, dict[str, tuple[Pair, ...]]]:
    """Returns pairs of numbers by the first word of a line, then by its second word."""
    table: dict[str, dict[str, tuple[Pair, ...]]] = {}
    for line in text.splitlines():
        first, second, *numbers = line.split()
        values = [float(number) for number in numbers]
        table.setdefault(first, {})[second] = tuple(zip(values[::2], values[1::2], strict=True))
    return table


_BY_METHOD = _read(_TOLD["results"])
#: Metric, explainer and dataset (in the order of `PAPER_DATASETS`) to mean and deviation.
PAPER_RESULTS = {
    metric: {name: row[metric] for name, row in _BY_METHOD.items()} for metric in _BY_METHOD["nice"]
}
#: Dataset and mechanism to D_repr (true, random gates) and D_pred (true, random gates); GIN.
PAPER_DISTANCES = _read(_TOLD["distances"])

#: Points by which NICE is ahead of the strongest baseline on average (Section 5.2).
PAPER_MARGIN = {"f1": 6.42, "recall": 8.67, "roc_auc": 7.57}
#: Percent by which NC reduces each distance, as the text of Section 5.3 sums up.
PAPER_REDUCTION = {"D_repr": 70.9, "D_pred": 78.8}
#: Table 3, SRB on Benzene: degradation, its deviation over draws, restored share, AUC.
PAPER_SRB: dict[str, tuple[Pair, Pair, Pair, Pair]] = {
    "paper": ((0.23, 0.06), (0.06, 0.02), (0.27, 0.11), (0.87, 0.00)),
    "paper/no-variation": ((0.37, 0.08), (0.19, 0.07), (0.41, 0.13), (0.83, 0.06)),
    "paper/no-compactness": ((0.25, 0.11), (0.09, 0.04), (0.84, 0.42), (0.81, 0.02)),
}
#: Test accuracy of the GIN in percent (Appendix C).
PAPER_ACCURACY = dict(
    zip(PAPER_DATASETS, (100.0, 93.17, 100.0, 96.31, 98.68, 91.84, 94.10, 96.16), strict=True)
)


@dataclass(frozen=True)
class PaperFigures:
    """What the paper's two dataset tables state."""

    num_graphs: int
    mean_nodes: float
    mean_edges: float
    num_test: int
    positive_ratio: float
    true_edges: Share


_BXAIC = (5_000, 34.60, 75.19, 5_000)
#: Figures of the datasets; for B-XAIC they are those of its test part.
PAPER_STATISTICS: dict[str, PaperFigures] = {
    "mutagenicity": PaperFigures(1_768, 29.15, 60.83, 177, 36.20, Share(3.78, 6.85)),
    "benzene": PaperFigures(12_000, 20.58, 43.64, 1_200, 50.00, Share(13.17, 13.60)),
    "alkane-carbonyl": PaperFigures(1_125, 21.39, 45.38, 113, 33.33, Share(1.46, 2.10)),
    "fluoride-carbonyl": PaperFigures(8_671, 21.36, 45.37, 868, 17.61, Share(2.69, 6.04)),
    "indole": PaperFigures(*_BXAIC, 36.70, Share(11.54, 16.85)),
    "pains": PaperFigures(*_BXAIC, 32.94, Share(10.34, 17.01)),
    "rings-count": PaperFigures(*_BXAIC, 30.20, Share(61.00, 16.38)),
    "rings-max": PaperFigures(*_BXAIC, 5.65, Share(46.48, 17.15)),
}


def paper_value(metric: str, explainer: str, dataset: str) -> Pair | None:
    """Returns mean and standard deviation that the paper reports, in percent, if it does.

    Example:
        >>> paper_value("roc_auc", "nice", "benzene")
        (86.62, 0.04)
    """
    row = PAPER_RESULTS.get(metric, {}).get(explainer)
    if row is None or dataset not in PAPER_DATASETS:
        return None
    return row[PAPER_DATASETS.index(dataset)]


#: Why dataset figures differ from the paper's: ``always``, ``stand-in``, ``bxaic``, or a dataset.
_NOTES = {k: [" ".join(text.split()) for text in some] for k, some in _TOLD["notes"].items()}
_HEAD = (
    "| dataset | graphs | paper | nodes | paper | edges | paper | test | paper | positives % "
    "| paper | true edges %, paper's reading | paper | union, all | union, label 1 |"
)


def statistics_markdown(datasets: Sequence[MoleculeDataset]) -> str:
    """Returns a table of our figures beside the paper's, and the reasons where they differ."""
    kinds = ["always", *(dataset.name for dataset in datasets)]
    if any(dataset.is_stand_in for dataset in datasets):
        kinds.append("stand-in")
    notes = [note for kind in kinds for note in _NOTES.get(kind, ())]
    reports = [str(dataset.report).replace("\n", "\n  ") for dataset in datasets]
    lines = [
        *("# Datasets: our figures beside the paper's", ""),
        *("`nicegnn lab data stats --markdown docs/datasets.md` writes this page.", ""),
        *(_HEAD, "| --- |" + " ---: |" * (_HEAD.count("|") - 2), *map(_row, datasets)),
        *("", "## Where they differ, and why", "", *(f"- {note}" for note in notes)),
        *("", "## What was read", ""),
        *(f"- {dataset.title}: {text}" for dataset, text in zip(datasets, reports, strict=True)),
    ]
    return "\n".join(lines) + "\n"


def papers_reading(figures: Statistics) -> Share:
    """Returns the share of true edges that the paper's table follows, as far as we can tell."""
    return figures.annotation or figures.first


def _row(dataset: MoleculeDataset) -> str:
    paper = PAPER_STATISTICS[dataset.name]
    ours = dataset_statistics(dataset.test if dataset.facts.family == "bxaic" else dataset)
    values = (
        *(ours.num_graphs, paper.num_graphs, ours.mean_nodes, paper.mean_nodes),
        *(ours.mean_edges, paper.mean_edges, len(dataset.test), paper.num_test),
        *(ours.positive_ratio, paper.positive_ratio),
    )
    figures = [f"{value:,}" if isinstance(value, int) else f"{value:.2f}" for value in values]
    shares = papers_reading(ours), paper.true_edges, ours.union, ours.union_positives
    return "| " + " | ".join([dataset.title, *figures, *map(str, shares)]) + " |"
