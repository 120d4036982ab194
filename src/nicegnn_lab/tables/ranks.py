"""Mean ranks of all methods, by truth and by fidelity."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from nicegnn_lab.metrics import average_ranks, get_metric
from nicegnn_lab.paper.methods import Method, datasets_in, methods_in
from nicegnn_lab.tables.quality import best_cells, means_of
from nicegnn_lab.tables.table import MISSING, Table, cells_of, rows_of, targets_in

if TYPE_CHECKING:
    import pandas as pd

#: What is ranked: heading, then metrics with their protocol or removal that share its weight.
QUANTITIES: dict[str, tuple[tuple[str, str], ...]] = {
    "F1": (("f1", "paper"),),
    "recall": (("recall", "paper"),),
    "AUC": (("roc_auc", "paper"),),
    "fidelity area": (("kept_area", "em"), ("kept_area", "nc")),
}
SIDE_BY_SIDE = ("agreement", "fidelity area", "mean rank")  # columns for each backbone


def rank_table(rows: pd.DataFrame, target: str = "gin") -> Table:
    r"""Returns the mean rank of each method, 1 being best.

    .. math:: \bar R_k = \tfrac1{|Q|} \sum_{q \in Q} \tfrac1{|M_q|} \sum_{m \in M_q}
        \tfrac1{|D|} \sum_{d \in D} \mathrm{rank}_{md}(k)

    Symbols: :math:`Q, M_q` -> `QUANTITIES`; :math:`D` -> datasets of the rows. Agreement is the
    mean of the ranks by truth. An explainer counts once, with its own mechanism. Supervised
    methods, random scores and the truth itself are not ranked, nor is a method without a value
    somewhere.
    """
    ranks = _ranked(rows, target)
    order = ranks.columns["mean rank"].argsort(stable=True).tolist()
    texts = [
        [f"{values[k]:.2f}" for values in ranks.columns.values()]
        + [f"{100 * means[k]:.1f}" for means in ranks.means.values()]
        for k in order
    ]
    lines = [
        [ranks.methods[k].label, ranks.methods[k].group, *text]
        for k, text in zip(order, texts, strict=True)
    ]
    blank = [MISSING] * (len(ranks.columns) + len(ranks.means))
    lines += [[method.label, method.group, *blank] for method in ranks.left_out]
    grids = (list(ranks.columns.values()), False), (list(ranks.means.values()), True)
    best, start = set(), 2
    for columns, is_higher in grids:
        grid = torch.stack(columns, dim=1)[order]
        best |= {(r, c + start) for r, c in best_cells(grid, higher_is_better=is_higher)}
        start += len(columns)
    notes = [
        f"Mean rank, 1 being best, among the {len(ranks.methods)} methods with a value on all of "
        f"{', '.join(ranks.datasets)}, each by its mean over seeds and graphs. Truth by protocol "
        "paper; agreement is the mean of F1, recall and AUC; fidelity area: share of predictions "
        "kept by the best 10-90% of bonds, half under EM, half under NC. The mean rank is that of "
        "F1, recall, AUC and fidelity area. The last columns are means over datasets in percent."
    ]
    if ranks.left_out:
        names = ", ".join(method.label for method in ranks.left_out)
        notes.append(f"Not run on all datasets: {names}.")
    return Table(
        name=f"ranks-{target}",
        title=f"Mean ranks of all methods, target {target} (lower is better)",
        columns=["method", "group", *ranks.columns, *(f"{name} %" for name in ranks.means)],
        rows=lines,
        best=frozenset(best),
        notes=notes,
    )


def backbones_table(rows: pd.DataFrame) -> Table:
    """Returns ranks by agreement, by fidelity and together on every target, side by side."""
    targets = targets_in(rows)
    by_target = {target: _ranked(rows, target) for target in targets}
    cells = {
        (method, target, column): float(ranks.columns[column][k])
        for target, ranks in by_target.items()
        for k, method in enumerate(ranks.methods)
        for column in SIDE_BY_SIDE
    }
    methods = dict.fromkeys(method for ranks in by_target.values() for method in ranks.methods)
    grid = torch.tensor(
        [
            [
                cells.get((method, target, column), math.nan)
                for target in targets
                for column in SIDE_BY_SIDE
            ]
            for method in methods
        ]
    )
    # nan where a target is missing
    total = grid[:, len(SIDE_BY_SIDE) - 1 :: len(SIDE_BY_SIDE)].mean(1)
    order = total.argsort(stable=True).tolist()
    every = torch.cat([grid, total.unsqueeze(1)], dim=1)[order]
    names = list(methods)
    lines = [
        [names[k].label, *(MISSING if v != v else f"{v:.2f}" for v in row)]
        for k, row in zip(order, every.tolist(), strict=True)
    ]
    best = best_cells(every, higher_is_better=False)
    sizes = ", ".join(f"{len(ranks.methods)} on {target}" for target, ranks in by_target.items())
    return Table(
        name="ranks-backbones",
        title="Mean ranks on every backbone (lower is better)",
        columns=[
            "method",
            *(f"{target} {name}" for target in targets for name in SIDE_BY_SIDE),
            "mean",
        ],
        rows=lines,
        best=frozenset((r, c + 1) for r, c in best),
        notes=[
            f"As in the tables of ranks of single targets; ranked are {sizes}. The last column is "
            "the mean of the mean ranks, for methods that were run on all of them."
        ],
    )


@dataclass(frozen=True)
class _Ranks:
    """Ranks of methods on one target."""

    methods: list[Method]  # those with a value everywhere
    left_out: list[Method]
    datasets: list[str]
    columns: dict[str, Tensor]  # mean ranks by heading, [K] each
    means: dict[str, Tensor]  # means over datasets by heading, [K] each


def _ranked(rows: pd.DataFrame, target: str) -> _Ranks:
    there = rows[rows["target"] == target]
    datasets = datasets_in(there)
    methods = [method for method in methods_in(there) if method.is_ranked]
    values = {}
    for metric, protocol in {pair for pairs in QUANTITIES.values() for pair in pairs}:
        cells = cells_of(rows_of(there, metric, protocol=protocol, target=target))
        means = {key: cell.mean for key, cell in cells.items()}
        values[metric, protocol] = means_of(means, methods, datasets)
    is_whole = ~torch.stack([value.isnan().any(1) for value in values.values()]).any(0)  # [K]
    parts, averages = {}, {}
    for title, pairs in QUANTITIES.items():
        kinds = [(values[pair][is_whole], get_metric(pair[0])) for pair in pairs]
        ranks = [average_ranks(value, [kind] * len(datasets)) for value, kind in kinds]
        parts[title] = torch.stack(ranks).mean(0)  # [K]
        averages[title] = torch.stack([value.mean(1) for value, _ in kinds]).mean(0)
    fidelity = parts.pop("fidelity area")
    agreement = torch.stack(list(parts.values())).mean(0)
    total = torch.stack([*parts.values(), fidelity]).mean(0)
    parts |= {"agreement": agreement, "fidelity area": fidelity, "mean rank": total}
    whole = [m for m, yes in zip(methods, is_whole.tolist(), strict=True) if yes]
    left_out = [m for m in methods if m not in whole]
    return _Ranks(whole, left_out, datasets, parts, averages)
