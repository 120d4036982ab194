"""Tables of explanation quality: methods by datasets, beside the paper's."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

import torch
from torch import Tensor

from nicegnn_lab.metrics import REMOVALS, Metric, average_ranks, get_metric, own_metrics
from nicegnn_lab.paper.methods import Method, methods_in
from nicegnn_lab.paper.numbers import PAPER_RESULTS
from nicegnn_lab.tables.table import MISSING, Measured, Table, cells_of, dataset_titles, rows_of

if TYPE_CHECKING:
    import pandas as pd

#: Agreement with the truth, in the order of tables.
TRUTH = ("f1", "recall", "precision", "roc_auc", "average_precision")
#: Metrics that the tables need; hand them to `read_rows` as ``where={"metric": TABLE_METRICS}``.
TABLE_METRICS = (*TRUTH, "kept_area")
UNDEFINED = "nan"
Column = TypeVar("Column")


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
        protocol: of the metric; a removal for fidelity.
        explainers: names in the order wanted, ``pgexplainer+nc`` for a mechanism that is not the
            explainer's own; by default all in the rows, each with its own.
    """
    kind = get_metric(metric)
    chosen = rows_of(rows, metric, protocol=protocol, target=target)
    methods = methods_in(chosen, explainers)
    methods.sort(key=lambda method: not method.is_ranked)  # stable
    titles, marks = dataset_titles(chosen)
    cells = cells_of(chosen)
    has_paper = protocol == "paper" and target == "gin" and metric in PAPER_RESULTS
    ranked = [method for method in methods if method.is_ranked]
    means = means_of({key: cell.mean for key, cell in cells.items()}, ranked, list(titles))
    ranks = dict(zip(ranked, rank_texts(means, kind)[1], strict=True))
    lines = []
    for method in methods:
        texts = [
            _text(cells.get((method, name)), method.paper(metric, name) if has_paper else None)
            for name in titles
        ]
        lines.append([method.label, method.group, *texts, ranks.get(method, MISSING)])
    way = "removal" if protocol in REMOVALS else "protocol"
    better = {True: "higher is better", False: "lower is better", None: "neither end is better"}
    return Table(
        name=f"quality-{metric.replace('_', '-')}-{protocol}-{target}",
        title=(
            f"{kind.title} in percent ({better[kind.higher_is_better]}), {way} {protocol}, target "
            f"{target}"
        ),
        columns=["method", "group", *titles.values(), f"rank (of {len(ranked)})"],
        rows=lines,
        best=frozenset((r, c + 2) for r, c in best_cells(means, kind.higher_is_better)),
        notes=[*_notes(cells, methods, list(titles), kind, has_paper), *marks],
    )


def all_quality_tables(
    rows: pd.DataFrame, *, protocols: Sequence[str] = ("paper",), target: str = "gin"
) -> list[Table]:
    """Returns F1, recall, precision, AUC and AP under each protocol, and fidelity per removal.

    What the rows do not hold is left out.
    """
    names = (*TRUTH, *own_metrics())
    wanted = [(metric, protocol) for protocol in protocols for metric in names]
    wanted += [("kept_area", removal) for removal in REMOVALS]
    there = rows.loc[rows["target"] == target, ["metric", "protocol"]].drop_duplicates()
    pairs = {(str(metric), str(protocol)) for metric, protocol in there.itertuples(index=False)}
    return [quality_table(rows, *pair, target) for pair in wanted if pair in pairs]


def means_of(
    means: Mapping[tuple[Method, Column], float],
    methods: Sequence[Method],
    columns: Sequence[Column],
) -> Tensor:
    """Returns means as a table, nan where there is none, ``[K, C]``."""
    table = [[means.get((method, column), math.nan) for column in columns] for method in methods]
    return torch.tensor(table, dtype=torch.double).view(len(methods), len(columns))


def best_cells(means: Tensor, higher_is_better: bool | None = True) -> list[list[int]]:
    """Returns the best cells of each column, as (row, column); equal ones are all best."""
    if means.size(0) == 0 or higher_is_better is None:
        return []
    worth = means if higher_is_better else -means
    top = worth.nan_to_num(-torch.inf).max(0).values  # [C]
    cells: list[list[int]] = (worth == top).nonzero().tolist()
    return cells


def rank_texts(means: Tensor, metric: Metric) -> tuple[list[float], list[str]]:
    """Returns the mean rank of each row, and as text with the number of columns behind it."""
    if 0 in means.shape:
        return [math.inf] * len(means), [MISSING] * len(means)
    ranks = average_ranks(means, [metric] * means.size(1)).nan_to_num(torch.inf).tolist()
    counts = (~means.isnan()).sum(1).tolist()
    texts = [
        f"{rank:.2f} ({num})" if num else MISSING for rank, num in zip(ranks, counts, strict=True)
    ]
    return ranks, texts


def _text(cell: Measured | None, paper: float | None = None) -> str:
    """Returns mean ± deviation in percent, with the paper's mean in brackets if there is one."""
    if cell is None:
        text = MISSING
    elif math.isnan(cell.mean):
        text = UNDEFINED
    else:
        spread = "" if math.isnan(cell.std) else f" ± {100 * cell.std:.1f}"
        text = f"{100 * cell.mean:.1f}{spread}"
    return text if paper is None else f"{text} ({paper:.1f})"


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
