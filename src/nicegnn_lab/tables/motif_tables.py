"""The table of planted motifs: explainers by tasks and metrics."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nicegnn_lab.metrics import get_metric
from nicegnn_lab.paper.methods import GROUPS, Method, methods_in
from nicegnn_lab.studies.motifs import TARGET
from nicegnn_lab.tables.quality import best_cells, means_of, rank_texts
from nicegnn_lab.tables.table import MISSING, Table, mean_and_std, read_study

if TYPE_CHECKING:
    import pandas as pd

#: Measured columns, in the order of tables: metric and removal, with their headings.
QUALITY = {
    ("roc_auc", ""): "AUC",
    ("recall_at_k", ""): "recall@K",
    ("kept_area", "em"): "kept EM",
    ("kept_area", "nc"): "kept NC",
}
Column = tuple[str, str, str, str]  # task, target, metric, removal


def motif_table(studies: str | Path) -> Table:
    """Returns quality in percent with mean ranks of all explainers, ours first."""
    rows = read_study(studies, "motifs")
    keys = ["explainer", "mechanism", "dataset", "target", "metric", "protocol"]
    values: Mapping[tuple[Method, Column], Any] = {
        (Method(explainer, mechanism), tuple(column)): scores["value"]
        for (explainer, mechanism, *column), scores in rows.groupby(keys, sort=False)
    }
    there = dict.fromkeys(column for _, column in values)
    subjects = dict.fromkeys((task, target) for task, target, *_ in there)
    wanted = [(*subject, *metric) for subject in subjects for metric in QUALITY]
    columns = [column for column in wanted if column in there]
    methods = methods_in(rows[rows["explainer"] != ""], variants=True)
    ranked = [method for method in methods if method.is_ranked]
    means = means_of({key: float(scores.mean()) for key, scores in values.items()}, ranked, columns)
    ranks, texts = rank_texts(means, get_metric("roc_auc"))  # higher is better, as in all columns
    value = dict.fromkeys(methods, math.inf) | dict(zip(ranked, ranks, strict=True))
    text = dict.fromkeys(methods, MISSING) | dict(zip(ranked, texts, strict=True))
    order = ("ours", *(group for group in GROUPS if group != "ours"))
    methods.sort(key=lambda method: (order.index(method.group), value[method]))
    of_ranked = {key: float(scores.mean()) for key, scores in values.items() if key[0].is_ranked}
    best = best_cells(means_of(of_ranked, methods, columns))

    def cell(method: Method, column: Column) -> str:
        seeds = values.get((method, column))
        return MISSING if seeds is None else mean_and_std(100 * seeds, 1)

    return Table(
        name="motifs",
        title="Explainers on graphs with planted motifs, in percent (higher is better)",
        columns=[
            *("method", "group"),
            *(f"{task} {target}: {QUALITY[metric, way]}" for task, target, metric, way in columns),
            f"rank (of {len(ranked)})",
        ],
        rows=[
            [method.label, method.group, *(cell(method, one) for one in columns), text[method]]
            for method in methods
        ],
        best=frozenset((r, c + 2) for r, c in best),
        notes=[
            "Mean ± standard deviation over seeds, each with data, split and target of its own, of "
            "the mean over explained graphs or nodes. AUC and recall@K compare with the bonds of "
            "the planted motif, K being their number; for nodes, among the bonds within reach. "
            "Kept is the area under the share of kept predictions when only the best bonds are "
            "left, the others masked (EM) or corrupted (NC). The rank is the mean over columns, "
            "their number in brackets; supervised and reference methods are not ranked. Best of "
            f"the ranked in bold. {MISSING} is missing.",
            *_accuracy_notes(rows),
            *_cannot_notes(rows),
        ],
    )


def _accuracy_notes(rows: pd.DataFrame) -> list[str]:
    """Returns how well the targets learned their tasks, and which did not."""
    accuracy = rows[(rows["setting"] == TARGET) & (rows["metric"] == "accuracy")]
    if accuracy.empty:
        return []
    texts = [
        f"{task} {target} {mean_and_std(100 * group['value'], 1)}"
        for (task, target), group in accuracy.groupby(["dataset", "target"], sort=False)
    ]
    notes = [f"Test accuracy of the targets in percent: {', '.join(texts)}."]
    short = accuracy[accuracy["value"] <= accuracy["level"]]
    if len(short):
        which = ", ".join(
            f"{row.dataset} {row.target} with seed {row.seed} ({100 * row.value:.1f}, wanted over "
            f"{100 * row.level:.0f})"
            for row in short.itertuples(index=False)
        )
        notes.append(f"Targets that did not learn their task well enough: {which}.")
    return notes


def _cannot_notes(rows: pd.DataFrame) -> list[str]:
    """Returns who could not explain what, and why."""
    lines: dict[tuple[str, str, str], list[str]] = {}
    for row in rows[rows["metric"] == "cannot"].itertuples(index=False):
        method = Method(row.explainer, row.mechanism).label
        where = f"{row.dataset} {row.target}"
        lines.setdefault((method, where, row.note), []).append(str(row.seed))
    return [
        f"{method} cannot explain {where} (seed {', '.join(seeds)}): {reason}"
        for (method, where, reason), seeds in lines.items()
    ]
