"""What can be reached on a target: the truth as an explanation, and the best of all methods."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from nicegnn.tables.methods import (
    MISSING,
    Cell,
    Method,
    cells_of,
    dataset_title,
    datasets_in,
    own_mechanism,
    rows_of,
    stand_in_note,
    stand_ins,
)
from nicegnn.tables.table import Table

if TYPE_CHECKING:
    import pandas as pd

_TRUTH, _CHANCE = "ground-truth", "random"


def ceiling_table(
    rows: pd.DataFrame,
    target: str = "gin",
    explainer: str = "nice",
    *,
    marked: Collection[str] | None = None,
) -> Table:
    """Returns a row per dataset: what the truth itself scores, and how far it carries the target.

    Args:
        rows: from `read_rows`.
        target: whose rows.
        explainer: set beside the truth.
        marked: datasets to call stand-ins; by default by the files in the data folder.
    """
    there = rows[rows["target"] == target]
    datasets = datasets_in(there)
    marked = stand_ins(datasets) if marked is None else marked
    wanted = [("f1", "paper"), ("roc_auc", "paper"), ("kept_area", "em"), ("kept_area", "nc")]
    cells = {
        pair: cells_of(rows_of(there, pair[0], protocol=pair[1], target=target)) for pair in wanted
    }

    def text(metric: str, protocol: str, name: str, dataset: str) -> str:
        found: Cell | None = cells[metric, protocol].get(
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
    for dataset in datasets:
        line = [dataset_title(dataset, marked)]
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
            *stand_in_note(datasets, marked),
        ],
    )
