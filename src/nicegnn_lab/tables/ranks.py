"""Mean ranks of all methods, by truth and by fidelity, on every backbone."""

from __future__ import annotations

import pandas as pd

from nicegnn_lab.metrics.metric import get_metric
from nicegnn_lab.paper.methods import datasets_in, methods_in
from nicegnn_lab.tables.quality import best_cells, means_of, ranks_of
from nicegnn_lab.tables.table import MISSING, Table, rows_of, targets_in

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
    """Returns mean ranks of methods with a value everywhere on one target."""
    methods, datasets = [m for m in methods_in(rows) if m.is_ranked], datasets_in(rows)
    means = {
        (metric, protocol): means_of(
            rows_of(rows, metric, protocol=protocol, target=target), methods, datasets
        )
        for pairs in QUANTITIES.values()
        for metric, protocol in pairs
    }
    whole = pd.concat(means.values(), axis=1).dropna().index
    parts = {}
    for title, pairs in QUANTITIES.items():
        ranks = [
            ranks_of(means[pair].loc[whole], get_metric(pair[0]).higher_is_better is not False)
            for pair in pairs
        ]
        parts[title] = pd.concat(ranks, axis=1).mean(axis=1)
    found = pd.DataFrame(parts, index=whole)
    found["agreement"] = found[["F1", "recall", "AUC"]].mean(axis=1)
    return found.assign(**{"mean rank": found[[*QUANTITIES]].mean(axis=1)})
