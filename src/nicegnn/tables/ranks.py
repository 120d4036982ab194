"""One rank per method over truth and fidelity, and what can be reached at all on a target."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from nicegnn.metrics import average_ranks, get_metric
from nicegnn.paper.methods import Method, datasets_in, methods_in, own_mechanism
from nicegnn.tables.cells import MISSING, Measured, cells_of, dataset_titles, rows_of
from nicegnn.tables.table import Table

if TYPE_CHECKING:
    import pandas as pd

#: What is ranked: heading, then metrics with their protocol or removal that share its weight.
QUANTITIES: dict[str, tuple[tuple[str, str], ...]] = {
    "F1": (("f1", "paper"),),
    "recall": (("recall", "paper"),),
    "AUC": (("roc_auc", "paper"),),
    "fidelity area": (("kept_area", "em"), ("kept_area", "nc")),
}
_TRUTH, _CHANCE = "ground-truth", "random"


def rank_table(rows: pd.DataFrame, target: str = "gin") -> Table:
    r"""Returns the mean rank of each method, 1 being best.

    .. math:: \bar R_k = \tfrac1{|Q|} \sum_{q \in Q} \tfrac1{|M_q|} \sum_{m \in M_q}
        \tfrac1{|D|} \sum_{d \in D} \mathrm{rank}_{md}(k)

    Symbols: :math:`Q, M_q` -> `QUANTITIES`; :math:`D` -> datasets of the rows. An explainer counts
    once, with its own mechanism. Supervised methods, random scores and the truth itself are not
    ranked, nor is a method without a value somewhere.

    Args:
        rows: from `read_rows`.
        target: whose rows.
    """
    there = rows[rows["target"] == target]
    datasets = datasets_in(there)
    methods = [method for method in methods_in(there) if method.is_ranked]
    values = {}
    for metric, protocol in {pair for pairs in QUANTITIES.values() for pair in pairs}:
        cells = cells_of(rows_of(there, metric, protocol=protocol, target=target))
        values[metric, protocol] = torch.tensor(
            [
                [cells[m, d].mean if (m, d) in cells else torch.nan for d in datasets]
                for m in methods
            ],
            dtype=torch.double,
        )
    is_whole = ~torch.stack([value.isnan().any(1) for value in values.values()]).any(0)  # [K]
    whole = [m for m, yes in zip(methods, is_whole.tolist(), strict=True) if yes]
    parts = {
        title: torch.stack(
            [
                average_ranks(values[pair][is_whole], [get_metric(pair[0])] * len(datasets))
                for pair in pairs
            ]
        ).mean(0)
        for title, pairs in QUANTITIES.items()
    }
    total = torch.stack(list(parts.values())).mean(0)  # [K]
    order = total.argsort(stable=True).tolist()
    columns = [*parts.values(), total]
    lines = [
        [whole[k].label, whole[k].group, *(f"{column[k]:.2f}" for column in columns)] for k in order
    ]
    left_out = [m for m in methods if m not in whole]
    lines += [[m.label, m.group, *[MISSING] * len(columns)] for m in left_out]
    best = {
        (order.index(k), c + 2)
        for c, column in enumerate(columns)
        for k in range(len(whole))
        if float(column[k]) == float(column.min())
    }
    notes = [
        f"Mean rank, 1 being best, among the {len(whole)} methods with a value on all of "
        f"{', '.join(datasets)}, each by its mean over seeds and graphs. Truth by protocol paper; "
        "fidelity area: share of predictions kept by the best 10-90% of bonds, half under EM, half "
        "under NC. The last column is the mean of the others."
    ]
    if left_out:
        notes.append(f"Not run on all datasets: {', '.join(m.label for m in left_out)}.")
    return Table(
        name=f"ranks-{target}",
        title=f"Mean ranks of all methods, target {target} (lower is better)",
        columns=["method", "group", *parts, "mean rank"],
        rows=lines,
        best=frozenset(best),
        notes=notes,
    )


def ceiling_table(
    rows: pd.DataFrame,
    target: str = "gin",
    explainer: str = "nice",
) -> Table:
    """Returns a row per dataset: what the truth itself scores, and how far it carries the target.

    Args:
        rows: from `read_rows`.
        target: whose rows.
        explainer: set beside the truth.
    """
    there = rows[rows["target"] == target]
    titles, marks = dataset_titles(there)
    wanted = [("f1", "paper"), ("roc_auc", "paper"), ("kept_area", "em"), ("kept_area", "nc")]
    cells = {
        pair: cells_of(rows_of(there, pair[0], protocol=pair[1], target=target)) for pair in wanted
    }

    def text(metric: str, protocol: str, name: str, dataset: str) -> str:
        found: Measured | None = cells[metric, protocol].get(
            (Method(name, own_mechanism(name)), dataset)
        )
        return MISSING if found is None else f"{100 * found.mean:.1f}"

    def best(metric: str, protocol: str, dataset: str) -> str:
        found = [
            (cell.mean, method.label)
            for (method, where), cell in cells[metric, protocol].items()
            if where == dataset and method.is_ranked
        ]
        return f"{100 * max(found)[0]:.1f} ({max(found)[1]})" if found else MISSING

    def paper(metric: str, dataset: str) -> str:
        found = Method(explainer, own_mechanism(explainer)).paper(metric, dataset)
        return MISSING if found is None else f"{found:.1f}"

    lines = []
    for dataset, title in titles.items():
        line = [title]
        for metric, protocol in wanted[:2]:
            line += [text(metric, protocol, name, dataset) for name in (_TRUTH, explainer)]
            line += [best(metric, protocol, dataset), paper(metric, dataset)]
        for metric, protocol in wanted[2:]:
            line += [text(metric, protocol, name, dataset) for name in (_CHANCE, _TRUTH, explainer)]
        lines.append(line)
    return Table(
        name=f"ceilings-{explainer}-{target}",
        title=f"What the truth reaches as an explanation, target {target}, in percent",
        columns=[
            "dataset",
            *(
                f"{what}, {who}"
                for what in ("F1", "AUC")
                for who in ("truth", explainer, "best method", "the paper's")
            ),
            *(
                f"kept {removal}, {who}"
                for removal in ("EM", "NC")
                for who in (_CHANCE, "truth", explainer)
            ),
        ],
        rows=lines,
        notes=[
            "F1 (best 30% of bonds) and AUC by protocol paper: what the truth scores is what the "
            "protocol allows, and the best of all ranked methods, with either mechanism, what "
            "anybody has reached on this target; the paper's is of its own target. Kept: share of "
            "predictions that survive on the best 10-90% of bonds alone. Where the truth keeps "
            "hardly more than random bonds, the target does not decide by the truth, and an "
            "explainer that finds what it decides by must miss it.",
            *marks,
        ],
    )
