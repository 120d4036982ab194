"""Tables of the studies with planted motifs: explainers by tasks and metrics."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from nicegnn.metrics import average_ranks, get_metric
from nicegnn.paper.methods import GROUPS, Method, methods_in
from nicegnn.studies.motifs import TARGET
from nicegnn.tables.cells import MISSING, mean_and_std, read_study, rows_by, values_of
from nicegnn.tables.table import Table

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

Column = tuple[str, str, tuple[str, str]]  # task, target, metric with its removal


def motif_table(studies: str | Path) -> Table:
    """Returns quality in percent with mean ranks of all explainers, ours first."""
    rows = read_study(studies, "motifs")
    columns = _columns(rows, QUALITY)
    methods, ranks = _ordered(rows, columns)
    means = _means(rows, methods, columns)  # [K, C]
    return Table(
        name="motifs",
        title="Explainers on graphs with planted motifs, in percent (higher is better)",
        columns=[
            "method",
            "group",
            *(f"{task} {target}: {QUALITY[metric]}" for task, target, metric in columns),
            f"rank (of {sum(method.is_ranked for method in methods)})",
        ],
        rows=[
            [
                method.label,
                method.group,
                *_cells(rows, method, columns, 100, 1),
                ranks.get(method, MISSING),
            ]
            for method in methods
        ],
        best=frozenset((r, c + 2) for r, c in _best(means, methods)),
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
    methods, _ = _ordered(rows, _columns(rows, QUALITY))
    columns = _columns(rows, SECONDS)
    return Table(
        name="motifs-seconds",
        title="Seconds of fitting, and of explaining one graph or node, with planted motifs",
        columns=[
            "method",
            *(f"{task} {target}: {SECONDS[metric]}" for task, target, metric in columns),
        ],
        rows=[[method.label, *_cells(rows, method, columns, 1, 3)] for method in methods],
        notes=["Mean ± standard deviation over seeds."],
    )


def shapes_table(studies: str | Path) -> Table:
    """Returns the agreement of each method on targets of one recipe, a column per target."""
    rows = read_study(studies, "shapes")
    wide = 100 * rows.pivot_table(
        index="setting", columns=["seed", "level"], values="value", sort=False
    )
    lines = [[str(setting), *(f"{v:.1f}" for v in values)] for setting, values in wide.iterrows()]
    return Table(
        name="shapes",
        title="Targets of one recipe on BA-Shapes, percent",
        columns=["", *(f"target {level:.0f}" for _, level in wide.columns)],
        rows=[["accuracy" if line[0] == TARGET else line[0], *line[1:]] for line in lines],
        notes=[
            "AUC of each method and test accuracy; the targets differ by a millionth in their "
            "first weights."
        ],
    )


def _ordered(
    rows: pd.DataFrame, columns: Sequence[Column]
) -> tuple[list[Method], dict[Method, str]]:
    """Returns methods, ours first and groups by mean rank, and the ranks as text."""
    methods = methods_in(rows[rows["explainer"] != ""], variants=True)
    ranked = [method for method in methods if method.is_ranked]
    means = _means(rows, ranked, columns)
    value, text = dict.fromkeys(methods, torch.inf), {}
    if ranked and columns:
        mean_rank = average_ranks(means, [get_metric("roc_auc")] * len(columns))  # higher is better
        for number, method in enumerate(ranked):
            known = int((~means[number].isnan()).sum())
            if known:
                value[method] = float(mean_rank[number])
                text[method] = f"{value[method]:.2f} ({known})"
    order = ("ours", *(group for group in GROUPS if group != "ours"))
    methods.sort(key=lambda method: (order.index(method.group), value[method]))  # stable
    return methods, text


def _columns(rows: pd.DataFrame, metrics: dict[tuple[str, str], str]) -> list[Column]:
    """Returns tasks, targets and metrics that the rows hold, in the order of the rows."""
    names = rows[["dataset", "target", "metric", "protocol"]].drop_duplicates()
    there = {(str(d), str(t), (str(m), str(p))) for d, t, m, p in names.itertuples(index=False)}
    subjects = dict.fromkeys((str(d), str(t)) for d, t, *_ in names.itertuples(index=False))
    return [
        (*about, metric) for about in subjects for metric in metrics if (*about, metric) in there
    ]


def _chosen(rows: pd.DataFrame, method: Method, column: Column) -> Any:
    task, target, metric = column
    mine = rows_by(rows, method)
    return values_of(mine[(mine["dataset"] == task) & (mine["target"] == target)], *metric)


def _cells(
    rows: pd.DataFrame, method: Method, columns: Sequence[Column], factor: float, digits: int
) -> list[str]:
    return [mean_and_std(factor * _chosen(rows, method, c), digits) for c in columns]


def _means(rows: pd.DataFrame, methods: Sequence[Method], columns: Sequence[Column]) -> Tensor:
    """Returns means over seeds, nan where there is none, ``[K, C]``."""
    means = [[float(_chosen(rows, method, c).mean()) for c in columns] for method in methods]
    return torch.tensor(means, dtype=torch.double).view(len(methods), len(columns))


def _best(means: Tensor, methods: Sequence[Method]) -> list[list[int]]:
    """Returns the best ranked cells of each column; equal ones are all best."""
    is_ranked = torch.tensor([method.is_ranked for method in methods]).view(-1, 1)
    worth = torch.where(is_ranked & ~means.isnan(), means, -torch.inf)
    best = (worth == worth.max(0).values) & (worth > -torch.inf) if len(methods) else worth > 0
    found: list[list[int]] = best.nonzero().tolist()
    return found


def _accuracy_notes(rows: pd.DataFrame) -> list[str]:
    """Returns how well the targets learned their tasks, and which did not."""
    told = rows[(rows["setting"] == TARGET) & (rows["metric"] == "accuracy")]
    if told.empty:
        return []
    by_subject = told.groupby(["dataset", "target"], sort=False)
    texts = [
        f"{task} {target} {mean_and_std(100 * some['value'], 1)}"
        for (task, target), some in by_subject
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
