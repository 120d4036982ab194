"""Tables of explanation quality: methods by datasets, beside the paper's."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from nicegnn_lab.bench.targets import MAIN_TARGET
from nicegnn_lab.metrics.agreement import TRUTH_METRICS
from nicegnn_lab.metrics.fidelity import REMOVALS
from nicegnn_lab.metrics.metric import get_metric, own_metrics
from nicegnn_lab.paper.methods import Method, datasets_in, methods_in
from nicegnn_lab.paper.numbers import PAPER_RESULTS
from nicegnn_lab.tables.table import (
    MISSING,
    Table,
    cells_of,
    dataset_titles,
    number,
    rows_of,
    targets_in,
)

#: Metrics that the tables need; hand them to `read_rows` as ``where={"metric": TABLE_METRICS}``.
TABLE_METRICS = (*TRUTH_METRICS, "kept_area")
UNDEFINED = "nan"


def quality_tables(rows: pd.DataFrame, target: str = "gin") -> list[Table]:
    """Returns F1, recall, precision, AUC and AP under each protocol, and fidelity per removal.

    What the rows do not hold is left out. Tables of another target than the paper's share a file.
    """
    names = (*TRUTH_METRICS, *own_metrics())
    wanted = [(metric, protocol) for protocol in ("paper", "strict") for metric in names]
    wanted += [("kept_area", removal) for removal in REMOVALS]
    there = rows.loc[rows["target"] == target, ["metric", "protocol"]].drop_duplicates()
    pairs = {(str(metric), str(protocol)) for metric, protocol in there.itertuples(index=False)}
    tables = [quality_table(rows, *pair, target) for pair in wanted if pair in pairs]
    if target == MAIN_TARGET:
        return tables
    return [replace(table, name=f"quality-{target}") for table in tables]


def quality_table(
    rows: pd.DataFrame, metric: str, protocol: str = "paper", target: str = "gin"
) -> Table:
    """Returns methods by datasets: mean ± deviation over seeds in percent, and the average rank.

    Supervised and reference methods stand below the others and have no rank. For fidelity
    `protocol` is a removal.
    """
    kind = get_metric(metric)
    chosen = rows_of(rows, metric, protocol, target)
    methods = sorted(methods_in(chosen), key=lambda method: not method.is_ranked)  # stable
    titles, marks = dataset_titles(chosen)
    cells = {key: cell for key, cell in cells_of(chosen).items() if key[0] in methods}
    has_paper = protocol == "paper" and target == MAIN_TARGET and metric in PAPER_RESULTS
    ranked = [method for method in methods if method.is_ranked]
    every = means_of(cells, methods, list(titles))
    means, over_all = every.loc[ranked], 100 * every.mean(axis=1, skipna=False)
    ranks = ranks_of(means, kind.higher_is_better is not False).mean(axis=1)
    known, lines = means.notna().sum(axis=1), []
    for method in methods:
        texts = [
            _text(cells.get((method, name)), method.paper(metric, name) if has_paper else None)
            for name in titles
        ]
        is_ranked = method in ranked and known[method]
        rank = f"{ranks[method]:.2f} ({known[method]})" if is_ranked else MISSING
        lines.append([method.label, method.group, *texts, number(over_all[method], 1), rank])
    way = "removal" if protocol in REMOVALS else "protocol"
    better = {True: "higher is better", False: "lower is better", None: "neither end is better"}
    seeds = [cell.num_seeds for cell in cells.values()]
    low, high = min(seeds, default=0), max(seeds, default=0)
    graphs = [
        f"{name} {max((c.num_graphs for key, c in cells.items() if key[1] == name), default=0)}"
        for name in titles
    ]
    notes = [
        f"{kind.description} Mean ± standard deviation over "
        f"{high if low == high else f'{low} to {high}'} seed(s) of the mean over graphs; "
        + ("the paper's mean in brackets; " if has_paper else "")
        + "best of the ranked methods in bold; last the mean over datasets, and the rank, over "
        "those on which a method has a value, their number in brackets; supervised and reference "
        f"methods are not ranked. {MISSING} is missing, {UNDEFINED} undefined on every graph.",
        f"Graphs: {', '.join(graphs)}.",
    ]
    fewer = [
        f"{m.label} on {d} ({c.num_seeds})" for (m, d), c in cells.items() if c.num_seeds < high
    ]
    if fewer:
        notes.append(f"With fewer seeds: {', '.join(fewer)}.")
    return Table(
        name=f"quality-{metric.replace('_', '-')}-{protocol}-{target}",
        title=(
            f"{kind.title} in percent ({better[kind.higher_is_better]}), {way} {protocol}, target "
            f"{target}"
        ),
        columns=["method", "group", *titles.values(), "mean", f"rank (of {len(ranked)})"],
        rows=lines,
        best=frozenset((r, c + 2) for r, c in best_cells(means, kind.higher_is_better)),
        notes=[*notes, *marks],
    )


def means_of(
    cells: Mapping[tuple[Method, str], Any], methods: Sequence[Method], datasets: Sequence[str]
) -> pd.DataFrame:
    """Returns means by method and dataset, nan where there is none."""
    means = {place: cell.mean for place, cell in cells.items()}
    table = [[means.get((method, name), math.nan) for name in datasets] for method in methods]
    index = pd.Index(methods, dtype=object)
    return pd.DataFrame(table, index=index, columns=[*datasets], dtype="float64")


def ranks_of(means: pd.DataFrame, higher_is_better: bool = True) -> pd.DataFrame:
    """Returns the rank in each column, 1 being best; equal but for float32 rounding is equal."""
    return means.round(6).rank(ascending=not higher_is_better)


def best_cells(means: pd.DataFrame, higher_is_better: bool | None = True) -> list[tuple[int, int]]:
    """Returns the best cells of each column, as (row, column); equal ones are all best."""
    if higher_is_better is None or means.empty:
        return []
    top = means.max() if higher_is_better else means.min()
    return [(int(r), int(c)) for r, c in np.argwhere((means == top).to_numpy())]


def _text(cell: Any, paper: float | None = None) -> str:
    if cell is None:
        text = MISSING
    elif math.isnan(cell.mean):
        text = UNDEFINED
    else:
        spread = "" if math.isnan(cell.std) else f" ± {number(100 * cell.std, 1)}"
        text = f"{number(100 * cell.mean, 1)}{spread}"
    return text if paper is None else f"{text} ({paper:.1f})"


#: What is ranked: heading, then metrics with their protocol or removal that share its weight.
QUANTITIES: dict[str, tuple[tuple[str, str], ...]] = {
    "F1": (("f1", "paper"),),
    "recall": (("recall", "paper"),),
    "AUC": (("roc_auc", "paper"),),
    "fidelity area": (("kept_area", "em"), ("kept_area", "nc")),
}
SIDE_BY_SIDE = ("agreement", "fidelity area", "mean rank")  # columns for each backbone


def backbones_table(rows: pd.DataFrame) -> Table:
    r"""Returns ranks by agreement, by fidelity and together on every target, 1 being best.

    .. math:: \bar R_k = \tfrac1{|Q|} \sum_{q \in Q} \tfrac1{|M_q|} \sum_{m \in M_q}
        \tfrac1{|D|} \sum_{d \in D} \mathrm{rank}_{md}(k)

    Symbols: :math:`Q, M_q` -> `QUANTITIES`; :math:`D` -> datasets of the rows. Agreement is the
    mean of the ranks by truth. An explainer counts once, with its own mechanism. Supervised
    methods, random scores and the truth itself are not ranked, nor is a method without a value
    somewhere.
    """
    ranks = {target: _ranked(rows[rows["target"] == target], target) for target in targets_in(rows)}
    every = pd.concat([one[[*SIDE_BY_SIDE]] for one in ranks.values()], axis=1, keys=ranks)
    places = every.xs("mean rank", axis=1, level=1)
    every["mean", ""] = places.mean(axis=1, skipna=False)  # nan where a target is missing
    every = every.sort_values(("mean", ""), kind="stable")
    sizes = ", ".join(f"{len(one)} on {target}" for target, one in ranks.items())
    return Table(
        name="ranks-backbones",
        title="Mean ranks on every backbone (lower is better)",
        columns=["method", *(" ".join(name).strip() for name in every.columns)],
        rows=[
            [method.label, *(MISSING if v != v else f"{v:.2f}" for v in row)]
            for method, row in zip(every.index, every.to_numpy().tolist(), strict=True)
        ],
        best=frozenset((r, c + 1) for r, c in best_cells(every, higher_is_better=False)),
        notes=[
            "Mean rank, 1 being best, among the methods with a value on all datasets, each by its "
            "mean over seeds and graphs. Truth by protocol paper; agreement is the mean of F1, "
            "recall and AUC; fidelity area: share of predictions kept by the best 10-90% of bonds, "
            "half under EM, half under NC. The mean rank is that of F1, recall, AUC and fidelity "
            f"area. Ranked are {sizes}. The last column is the mean of the mean ranks, for methods "
            "that were run on all of them."
        ],
    )


def _ranked(rows: pd.DataFrame, target: str) -> pd.DataFrame:
    methods, datasets = [m for m in methods_in(rows) if m.is_ranked], datasets_in(rows)
    means = {
        pair: means_of(cells_of(rows_of(rows, *pair, target)), methods, datasets)
        for pairs in QUANTITIES.values()
        for pair in pairs
    }
    whole = pd.concat(means.values(), axis=1).dropna().index
    parts = {
        title: pd.concat([ranks_of(means[pair].loc[whole]) for pair in pairs], axis=1).mean(axis=1)
        for title, pairs in QUANTITIES.items()  # of all of them more is better
    }
    found = pd.DataFrame(parts, index=whole)
    found["agreement"] = found[["F1", "recall", "AUC"]].mean(axis=1)
    return found.assign(**{"mean rank": found[[*QUANTITIES]].mean(axis=1)})
