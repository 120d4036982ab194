"""Tables of explanation quality: methods by datasets, with the paper's values beside ours."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from nicegnn.metrics import REMOVALS, Metric, average_ranks, get_metric
from nicegnn.paper.methods import Method, methods_in
from nicegnn.paper.numbers import PAPER_RESULTS
from nicegnn.tables.cells import MISSING, Measured, cells_of, dataset_titles, rows_of
from nicegnn.tables.table import Table

if TYPE_CHECKING:
    import pandas as pd

#: Agreement with the truth, in the order of tables.
TRUTH = ("f1", "recall", "precision", "roc_auc", "average_precision")
#: Metrics that the tables need; hand them to `read_rows` as ``where={"metric": TABLE_METRICS}``.
TABLE_METRICS = (*TRUTH, "kept_area")

UNDEFINED = "nan"


def quality_table(
    rows: pd.DataFrame,
    metric: str,
    protocol: str = "paper",
    target: str = "gin",
    explainers: Sequence[str] | None = None,
) -> Table:
    """Returns methods by datasets: mean ± deviation over seeds in percent, and the average rank.

    Supervised and reference methods stand below the others and have no rank.

    Args:
        rows: from `read_rows`.
        metric: one of `METRICS`.
        protocol: of the metric; a removal for fidelity.
        explainers: names in the order wanted, ``pgexplainer+nc`` for a mechanism that is not the
            explainer's own; by default all in the rows, each with its own.
    """
    kind = get_metric(metric)
    chosen = rows_of(rows, metric, protocol=protocol, target=target)
    methods = methods_in(chosen, explainers)
    methods.sort(key=lambda method: not method.is_ranked)  # stable
    titles, marks = dataset_titles(chosen)
    datasets = list(titles)
    cells = cells_of(chosen)
    has_paper = protocol == "paper" and target == "gin" and metric in PAPER_RESULTS
    ranked = [method for method in methods if method.is_ranked]
    means = _means(cells, ranked, datasets)  # [K, D]
    ranks = average_ranks(means, [kind] * len(datasets)) if ranked else means.new_zeros(0)
    lines = []
    for number, method in enumerate(methods):
        texts = [
            _text(cells.get((method, name)), method.paper(metric, name) if has_paper else None)
            for name in datasets
        ]
        rank = MISSING
        if method.is_ranked and not torch.isnan(ranks[number]):
            rank = f"{float(ranks[number]):.2f} ({int((~means[number].isnan()).sum())})"
        lines.append([method.label, method.group, *texts, rank])
    return Table(
        name=f"quality-{metric.replace('_', '-')}-{protocol}-{target}",
        title=_title(kind, protocol, target),
        columns=[
            "method",
            "group",
            *titles.values(),
            f"rank (of {len(ranked)})",
        ],
        rows=lines,
        best=frozenset((r, c + 2) for r, c in _best(means, kind)),
        notes=[
            *_notes(cells, methods, datasets, kind, has_paper),
            *marks,
        ],
    )


def all_quality_tables(
    rows: pd.DataFrame,
    *,
    protocols: Sequence[str] = ("paper",),
    target: str = "gin",
    explainers: Sequence[str] | None = None,
) -> list[Table]:
    """Returns F1, recall, precision, AUC and AP under each protocol, and fidelity per removal.

    What the rows do not hold is left out.
    """
    wanted = [(metric, protocol) for protocol in protocols for metric in TRUTH]
    wanted += [("kept_area", removal) for removal in REMOVALS]
    there = rows.loc[rows["target"] == target, ["metric", "protocol"]].drop_duplicates()
    known = {(str(metric), str(protocol)) for metric, protocol in there.itertuples(index=False)}
    return [
        quality_table(rows, metric, protocol, target, explainers)
        for metric, protocol in wanted
        if (metric, protocol) in known
    ]


def _means(
    cells: dict[tuple[Method, str], Measured], methods: Sequence[Method], datasets: Sequence[str]
) -> Tensor:
    """Returns means, nan where there is none, ``[K, D]``."""
    means = torch.full((len(methods), len(datasets)), torch.nan, dtype=torch.double)
    for r, method in enumerate(methods):
        for c, dataset in enumerate(datasets):
            if (method, dataset) in cells:
                means[r, c] = cells[method, dataset].mean
    return means


def _best(means: Tensor, metric: Metric) -> Iterator[tuple[int, int]]:
    """Yields the best cells of each column; equal ones are all best."""
    if means.size(0) == 0 or metric.higher_is_better is None:
        return
    worth = means if metric.higher_is_better else -means
    top = worth.nan_to_num(-torch.inf).max(0).values  # [D]
    yield from (worth == top).nonzero().tolist()


def _text(cell: Measured | None, paper: float | None) -> str:
    if cell is None:
        text = MISSING
    elif math.isnan(cell.mean):
        text = UNDEFINED
    elif math.isnan(cell.std):
        text = f"{100 * cell.mean:.1f}"
    else:
        text = f"{100 * cell.mean:.1f} ± {100 * cell.std:.1f}"
    return text if paper is None else f"{text} ({paper:.1f})"


def _title(kind: Metric, protocol: str, target: str) -> str:
    way = "removal" if protocol in REMOVALS else "protocol"
    better = {True: "higher is better", False: "lower is better", None: "neither end is better"}
    return (
        f"{kind.title} in percent ({better[kind.higher_is_better]}), {way} {protocol}, target "
        f"{target}"
    )


def _notes(
    cells: dict[tuple[Method, str], Measured],
    methods: Sequence[Method],
    datasets: Sequence[str],
    kind: Metric,
    has_paper: bool,
) -> list[str]:
    shown = {key: cell for key, cell in cells.items() if key[0] in methods}
    seeds = [cell.num_seeds for cell in shown.values()]
    low, high = min(seeds, default=0), max(seeds, default=0)
    graphs = {
        name: max((cell.num_graphs for key, cell in shown.items() if key[1] == name), default=0)
        for name in datasets
    }
    notes = [
        f"{kind.description} Mean ± standard deviation over "
        f"{high if low == high else f'{low} to {high}'} seed(s) of the mean over graphs; "
        + ("the paper's mean in brackets; " if has_paper else "")
        + "best of the ranked methods in bold. The rank is the mean over the datasets on which a "
        "method has a value, their number in brackets; supervised and reference methods are not "
        f"ranked. {MISSING} is missing, {UNDEFINED} undefined on every graph.",
        "Graphs: " + ", ".join(f"{name} {num}" for name, num in graphs.items()) + ".",
    ]
    fewer = [
        f"{m.label} on {d} ({c.num_seeds})" for (m, d), c in shown.items() if c.num_seeds < high
    ]
    if fewer:
        notes.append(f"With fewer seeds: {', '.join(fewer)}.")
    return notes
