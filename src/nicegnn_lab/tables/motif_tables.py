"""Tables of the studies with planted motifs: explainers by tasks and metrics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

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
SECONDS = {("fit_seconds", ""): "fit s", ("explain_seconds", ""): "s each"}

Column = tuple[str, str, str, str]  # task, target, metric, removal
Values = Mapping[tuple[Method, Column], Any]  # a value per seed


def motif_table(studies: str | Path) -> Table:
    """Returns quality in percent with mean ranks of all explainers, ours first."""
    rows = read_study(studies, "motifs")
    values = _by_column(rows)
    columns = _columns(values, QUALITY)
    methods, ranks = _ordered(rows, values, columns)
    ranked = {key: float(some.mean()) for key, some in values.items() if key[0].is_ranked}
    best = best_cells(means_of(ranked, methods, columns))
    return Table(
        name="motifs",
        title="Explainers on graphs with planted motifs, in percent (higher is better)",
        columns=[
            *("method", "group"),
            *(f"{task} {target}: {QUALITY[metric, way]}" for task, target, metric, way in columns),
            f"rank (of {sum(method.is_ranked for method in methods)})",
        ],
        rows=[
            [method.label, method.group, *_cells(values, method, columns, 100, 1), ranks[method]]
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


def motif_seconds_table(studies: str | Path) -> Table:
    """Returns the seconds of all explainers, which may have run on different machines."""
    rows = read_study(studies, "motifs")
    values = _by_column(rows)
    methods, _ = _ordered(rows, values, _columns(values, QUALITY))
    columns = _columns(values, SECONDS)
    heads = [f"{task} {target}: {SECONDS[metric, way]}" for task, target, metric, way in columns]
    lines = [[method.label, *_cells(values, method, columns, 1, 3)] for method in methods]
    title = "Seconds of fitting, and of explaining one graph or node, with planted motifs"
    notes = ["Mean ± standard deviation over seeds."]
    return Table("motifs-seconds", title, ["method", *heads], lines, notes=notes)


def shapes_table(studies: str | Path) -> Table:
    """Returns the agreement of each method on targets of one recipe, a column per target."""
    rows = read_study(studies, "shapes")
    wide = 100 * rows.pivot_table(
        index="setting", columns=["seed", "level"], values="value", sort=False
    )
    wide = wide.rename(index={TARGET: "accuracy"})
    lines = [[str(setting), *(f"{v:.1f}" for v in values)] for setting, values in wide.iterrows()]
    columns = ["", *(f"target {level:.0f}" for _, level in wide.columns)]
    note = (
        "AUC of each method and test accuracy; the targets differ by a millionth in their first "
        "weights."
    )
    return Table(
        "shapes", "Targets of one recipe on BA-Shapes, percent", columns, lines, notes=[note]
    )


def _by_column(rows: pd.DataFrame) -> Values:
    """Returns the values of each method and column, in the order of the rows."""
    keys = ["explainer", "mechanism", "dataset", "target", "metric", "protocol"]
    return {
        (Method(explainer, mechanism), tuple(column)): some["value"]
        for (explainer, mechanism, *column), some in rows.groupby(keys, sort=False)
    }


def _columns(values: Values, metrics: Iterable[tuple[str, str]]) -> list[Column]:
    """Returns tasks, targets and metrics that have values, tasks in the order of the rows."""
    there = dict.fromkeys(column for _, column in values)
    subjects = dict.fromkeys((task, target) for task, target, *_ in there)
    wanted = [(*about, *metric) for about in subjects for metric in metrics]
    return [column for column in wanted if column in there]


def _ordered(
    rows: pd.DataFrame, values: Values, columns: Sequence[Column]
) -> tuple[list[Method], dict[Method, str]]:
    """Returns methods, ours first and groups by mean rank, and the ranks as text."""
    methods = methods_in(rows[rows["explainer"] != ""], variants=True)
    ranked = [method for method in methods if method.is_ranked]
    means = means_of({key: float(some.mean()) for key, some in values.items()}, ranked, columns)
    ranks, texts = rank_texts(means, get_metric("roc_auc"))  # higher is better, as in all columns
    value = dict.fromkeys(methods, torch.inf) | dict(zip(ranked, ranks, strict=True))
    order = ("ours", *(group for group in GROUPS if group != "ours"))
    methods.sort(key=lambda method: (order.index(method.group), value[method]))  # stable
    return methods, dict.fromkeys(methods, MISSING) | dict(zip(ranked, texts, strict=True))


def _cells(
    values: Values, method: Method, columns: Sequence[Column], factor: float, digits: int
) -> list[str]:
    found = [values.get((method, column)) for column in columns]
    return [MISSING if some is None else mean_and_std(factor * some, digits) for some in found]


def _accuracy_notes(rows: pd.DataFrame) -> list[str]:
    """Returns how well the targets learned their tasks, and which did not."""
    told = rows[(rows["setting"] == TARGET) & (rows["metric"] == "accuracy")]
    if told.empty:
        return []
    texts = [
        f"{task} {target} {mean_and_std(100 * some['value'], 1)}"
        for (task, target), some in told.groupby(["dataset", "target"], sort=False)
    ]
    notes = [f"Test accuracy of the targets in percent: {', '.join(texts)}."]
    short = told[told["value"] <= told["level"]]
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
