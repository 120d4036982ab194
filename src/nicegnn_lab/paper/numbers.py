"""Every number of the paper, once."""

import tomllib
from importlib.resources import files

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
#: Metric, explainer and dataset to mean and deviation.
PAPER_RESULTS = {
    metric: {
        name: dict(zip(PAPER_DATASETS, row[metric], strict=True))
        for name, row in _BY_METHOD.items()
    }
    for metric in _BY_METHOD["nice"]
}
#: Dataset and mechanism to D_repr (true, random gates) and D_pred (true, random gates); GIN.
PAPER_DISTANCES = _read(_TOLD["distances"])

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


def paper_value(metric: str, explainer: str, dataset: str) -> Pair | None:
    """Returns mean and standard deviation that the paper reports, in percent, if it does."""
    return PAPER_RESULTS.get(metric, {}).get(explainer, {}).get(dataset)
