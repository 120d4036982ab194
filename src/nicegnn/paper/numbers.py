"""Every number of the paper, once: what tables, figures and claims set beside ours."""

from __future__ import annotations

from dataclasses import dataclass

from nicegnn.datasets.statistics import Share

# ruff: noqa: E501

Pair = tuple[float, float]  # mean and standard deviation

#: Datasets in the order of the paper's tables.
PAPER_DATASETS = (
    "mutagenicity",
    "benzene",
    "alkane-carbonyl",
    "fluoride-carbonyl",
    "indole",
    "pains",
    "rings-count",
    "rings-max",
)

# Table 1 and, for precision, Appendix F: mean and standard deviation in percent, dataset by dataset
_RESULTS = """
random          f1        20.06 0.55 30.80 0.40 8.90 1.09 24.52 0.43 29.49 0.10 29.00 0.23 41.23 0.08 34.95 0.47
random          recall    39.52 1.33 32.71 0.31 33.89 4.29 35.55 0.73 29.93 0.13 29.88 0.34 30.00 0.06 40.11 0.32
random          precision 15.58 0.68 29.90 0.57 5.17 0.63 19.23 0.34 31.46 0.08 31.74 0.19 68.52 0.15 30.96 1.03
random          roc_auc   55.47 0.72 51.94 0.24 52.05 2.24 53.33 0.40 49.94 0.08 49.97 0.21 50.01 0.11 50.47 0.19
saliency        f1        49.00 0.07 47.29 0.01 0.00 0.00 48.09 0.00 50.03 0.00 49.97 0.01 37.97 0.01 46.97 0.00
saliency        recall    90.13 0.12 50.85 0.02 0.00 0.00 69.21 0.00 53.34 0.00 54.70 0.01 27.67 0.00 57.19 0.00
saliency        precision 38.70 0.24 44.98 0.02 0.00 0.00 37.79 0.00 51.52 0.00 52.39 0.02 63.18 0.01 41.14 0.00
saliency        roc_auc   84.86 0.02 64.17 0.01 34.32 0.00 73.46 0.00 66.32 0.00 67.33 0.01 45.95 0.00 67.37 0.00
guided-backprop f1        37.50 0.00 45.31 0.01 15.17 0.00 41.68 0.00 42.67 0.00 51.66 0.01 38.77 0.01 47.03 0.00
guided-backprop recall    70.89 0.00 48.52 0.01 56.19 0.00 57.89 0.00 44.17 0.00 53.26 0.00 28.26 0.00 56.94 0.00
guided-backprop precision 30.74 0.00 43.35 0.02 8.86 0.00 33.73 0.00 44.85 0.00 54.74 0.01 64.43 0.01 41.67 0.00
guided-backprop roc_auc   73.85 0.00 62.59 0.01 63.76 0.00 66.99 0.00 60.33 0.00 66.93 0.00 46.85 0.01 67.17 0.00
gnnexplainer    f1        31.79 1.90 25.88 1.00 32.16 2.21 30.95 0.49 42.22 0.50 38.97 0.04 51.50 0.09 45.80 1.01
gnnexplainer    recall    59.37 3.67 50.71 2.01 59.99 4.20 59.65 1.68 45.68 0.37 41.29 0.14 37.99 0.40 53.24 1.44
gnnexplainer    precision 24.47 1.51 19.68 0.44 24.84 1.87 23.20 0.68 43.41 0.55 42.31 0.10 85.03 1.08 42.59 1.33
gnnexplainer    roc_auc   66.84 2.07 61.68 1.10 67.22 2.37 66.78 1.00 60.92 0.27 58.12 0.08 62.97 0.17 65.33 0.83
pgexplainer     f1        51.67 0.24 64.96 0.18 26.39 0.00 61.79 0.40 46.65 0.03 45.98 0.00 52.65 0.00 53.17 0.00
pgexplainer     recall    91.52 0.29 66.77 0.24 94.69 0.00 84.97 0.58 49.43 0.05 49.43 0.05 37.89 0.00 57.87 0.00
pgexplainer     precision 39.74 0.22 66.20 0.13 15.53 0.00 49.96 0.33 48.76 0.03 49.00 0.00 88.02 0.00 51.15 0.00
pgexplainer     roc_auc   85.55 0.17 76.40 0.14 84.03 0.00 83.50 0.35 63.84 0.03 64.44 0.00 63.53 0.00 69.15 0.00
refine          f1        43.60 0.82 42.88 0.31 11.48 0.00 30.36 2.42 37.39 0.06 54.18 0.07 53.73 0.00 51.67 0.00
refine          recall    40.24 0.19 44.72 0.28 89.38 0.00 67.07 1.80 35.91 0.05 55.58 0.08 40.62 0.01 60.03 0.00
refine          precision 34.43 0.75 42.77 0.47 6.17 0.00 19.84 2.11 40.89 0.08 58.01 0.05 86.40 0.08 48.65 0.00
refine          roc_auc   56.38 0.13 60.44 0.19 60.18 0.00 69.99 1.04 54.79 0.04 68.90 0.05 65.65 0.03 69.91 0.00
d4explainer     f1        30.68 0.57 61.91 0.22 26.58 0.77 28.25 1.02 36.29 0.43 40.50 0.10 50.96 0.18 46.80 1.38
d4explainer     recall    57.15 1.18 96.83 0.08 93.95 1.11 43.15 1.49 35.30 0.33 39.79 0.16 35.40 0.52 52.26 0.92
d4explainer     precision 23.29 0.76 47.48 0.20 15.73 0.54 21.54 0.91 39.11 0.69 43.86 0.21 92.43 2.13 44.40 1.60
d4explainer     roc_auc   65.40 0.66 71.36 0.08 83.68 0.62 57.74 0.85 64.08 0.24 57.36 0.10 63.25 0.66 65.09 0.69
proxyexplainer  f1        36.33 0.00 49.52 0.01 14.28 0.00 38.22 0.00 38.53 0.12 37.18 0.02 50.83 0.00 51.29 0.02
proxyexplainer  recall    56.82 0.00 52.24 0.01 50.00 0.00 56.42 0.00 38.63 0.07 40.36 0.01 35.98 0.00 57.06 0.03
proxyexplainer  precision 30.79 0.00 48.54 0.04 8.45 0.00 29.77 0.00 40.91 0.19 38.62 0.03 89.40 0.00 48.04 0.02
proxyexplainer  roc_auc   66.44 0.00 65.38 0.00 60.54 0.00 65.64 0.00 76.43 0.06 57.26 0.01 63.38 0.00 68.18 0.02
confexplainer   f1        52.19 0.00 73.45 0.01 24.99 0.00 49.97 0.06 57.82 0.00 56.04 0.00 53.27 0.00 51.97 0.00
confexplainer   recall    87.99 0.00 76.38 0.01 93.36 0.00 67.91 0.01 59.87 0.00 57.56 0.01 40.26 0.00 61.17 0.00
confexplainer   precision 42.57 0.00 73.46 0.01 14.56 0.00 40.81 0.06 60.38 0.00 59.08 0.01 86.42 0.00 48.99 0.00
confexplainer   roc_auc   84.24 0.00 82.74 0.01 83.25 0.00 73.34 0.01 71.66 0.00 69.93 0.01 75.49 0.01 70.71 0.00
nice            f1        53.90 0.15 78.49 0.04 27.31 0.12 65.49 0.05 68.66 0.00 59.38 0.01 59.47 0.00 58.37 0.00
nice            recall    93.92 0.12 82.60 0.08 97.64 0.51 88.50 0.05 76.56 0.00 61.93 0.00 44.26 0.01 68.42 0.00
nice            precision 41.70 0.19 77.10 0.05 16.10 0.07 53.64 0.04 72.29 0.00 57.04 0.00 90.61 0.00 50.90 0.00
nice            roc_auc   87.08 0.11 86.62 0.04 85.59 0.27 85.86 0.03 82.94 0.00 76.49 0.01 83.17 0.01 84.15 0.00
"""
# Table 2 (Rings) and the table of Appendix G: D_repr with true and random gates, then D_pred
_DISTANCES = """
mutagenicity      em 0.77 0.12 0.46 0.19 0.53 0.17 0.29 0.02
mutagenicity      nc 0.45 0.14 0.38 0.12 0.52 0.11 0.44 0.11
benzene           em 0.03 0.07 0.11 0.09 0.77 0.26 0.38 0.18
benzene           nc 0.03 0.03 0.06 0.04 0.74 0.15 0.43 0.26
alkane-carbonyl   em 0.92 0.33 0.61 0.12 0.39 0.26 0.42 0.08
alkane-carbonyl   nc 0.88 0.13 0.56 0.04 0.44 0.25 0.53 0.06
fluoride-carbonyl em 0.61 0.17 0.83 0.21 0.16 0.16 0.11 0.12
fluoride-carbonyl nc 0.59 0.11 0.76 0.24 0.17 0.15 0.19 0.16
rings-count       em 0.31 0.09 0.63 0.22 0.57 0.15 0.59 0.12
rings-count       nc 0.07 0.02 0.08 0.02 0.02 0.01 0.04 0.04
rings-max         em 0.45 0.10 0.61 0.11 0.36 0.16 0.48 0.18
rings-max         nc 0.16 0.03 0.16 0.04 0.14 0.05 0.13 0.06
"""


def _read(text: str) -> dict[str, dict[str, tuple[Pair, ...]]]:
    """Returns pairs of numbers by the first word of a line, then by its second word."""
    found: dict[str, dict[str, tuple[Pair, ...]]] = {}
    for line in text.split("\n")[1:-1]:
        first, second, *numbers = line.split()
        values = [float(number) for number in numbers]
        found.setdefault(first, {})[second] = tuple(zip(values[::2], values[1::2], strict=True))
    return found


_BY_METHOD = _read(_RESULTS)
#: Metric, explainer and dataset (in the order of `PAPER_DATASETS`) to mean and deviation.
PAPER_RESULTS = {
    metric: {name: row[metric] for name, row in _BY_METHOD.items()} for metric in _BY_METHOD["nice"]
}
#: Dataset and mechanism to D_repr (true, random gates) and D_pred (true, random gates); GIN.
PAPER_DISTANCES = _read(_DISTANCES)

#: Points by which NICE is ahead of the strongest baseline on average (Section 5.2).
PAPER_MARGIN = {"f1": 6.42, "recall": 8.67, "roc_auc": 7.57}
#: Percent by which NC reduces each distance, as the text of Section 5.3 sums up.
PAPER_REDUCTION = {"D_repr": 70.9, "D_pred": 78.8}
#: Datasets of all eight on which NICE is among the best two in precision (Appendix F).
PAPER_TOP_TWO = 7
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
