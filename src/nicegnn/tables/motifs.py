"""Tables of the experiment with planted motifs: explainers by tasks and metrics."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from nicegnn.metrics import Metric, average_ranks, get_metric
from nicegnn.rivals.registry import EXPLAINERS
from nicegnn.studies.motifs import CANNOT, EXPERIMENT, TARGET
from nicegnn.tables.methods import GROUPS, MISSING, RANKED
from nicegnn.tables.study_rows import mean_and_std, read_one_run, values_of
from nicegnn.tables.table import Table

if TYPE_CHECKING:
    import pandas as pd

#: Measured columns, in the order of tables, with their headings.
QUALITY = {
    "roc_auc": "AUC",
    "recall@k": "recall@K",
    "kept_area/em": "kept EM",
    "kept_area/nc": "kept NC",
}
SECONDS = {"fit_seconds": "fit s", "explain_seconds": "s each"}

Column = tuple[str, str, str]  # task, target, metric


def tables(out: str | Path) -> list[Table]:
    """Returns quality in percent with mean ranks, and seconds, of all explainers in the rows."""
    rows = read_one_run(out, EXPERIMENT)
    methods, ranks = _ordered(rows)
    return [_quality_table(rows, methods, ranks), _seconds_table(rows, methods)]


def metric_of(name: str) -> Metric:
    """Returns what a metric of the rows is, which says what is better.

    Example:
        >>> metric_of("recall@k").name, metric_of("kept_area/nc").higher_is_better
        ('recall', True)
    """
    return get_metric(name.partition("@")[0].partition("/")[0])


def _quality_table(rows: pd.DataFrame, methods: Sequence[str], ranks: dict[str, str]) -> Table:
    columns = _columns(rows, QUALITY)
    means = _means(rows, methods, columns)  # [K, C]
    num_ranked = sum(_group(name) in RANKED for name in methods)
    lines = [
        [name, _group(name), *_cells(rows, name, columns, 100, 1), ranks.get(name, MISSING)]
        for name in methods
    ]
    return Table(
        name="motifs",
        title="Explainers on graphs with planted motifs, in percent (higher is better)",
        columns=[
            "method",
            "group",
            *(f"{task} {target}: {QUALITY[metric]}" for task, target, metric in columns),
            f"rank (of {num_ranked})",
        ],
        rows=lines,
        best=frozenset((r, c + 2) for r, c in _best(means, methods, columns)),
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


def _seconds_table(rows: pd.DataFrame, methods: Sequence[str]) -> Table:
    columns = _columns(rows, SECONDS)
    return Table(
        name="motifs-seconds",
        title="Seconds of fitting, and of explaining one graph or node, with planted motifs",
        columns=[
            "method",
            *(f"{task} {target}: {SECONDS[metric]}" for task, target, metric in columns),
        ],
        rows=[[name, *_cells(rows, name, columns, 1, 3)] for name in methods],
        notes=["Mean ± standard deviation over seeds."],
    )


def _ordered(rows: pd.DataFrame) -> tuple[list[str], dict[str, str]]:
    """Returns methods, ours first and groups by mean rank, and the ranks as text."""
    found = [str(name) for name in rows["setting"].unique() if name != TARGET]
    places = {name: number for number, name in enumerate(EXPLAINERS)}
    found.sort(key=lambda name: (places[name.partition("+")[0]], name))
    ranked = [name for name in found if _group(name) in RANKED]
    columns = _columns(rows, QUALITY)
    means = _means(rows, ranked, columns)
    value, text = dict.fromkeys(found, torch.inf), {}
    if ranked and columns:
        mean_rank = average_ranks(means, [metric_of(metric) for _, _, metric in columns])
        for number, name in enumerate(ranked):
            known = int((~means[number].isnan()).sum())
            if known:
                value[name] = float(mean_rank[number])
                text[name] = f"{value[name]:.2f} ({known})"
    order = ("ours", *(group for group in GROUPS if group != "ours"))
    found.sort(key=lambda name: (order.index(_group(name)), value[name]))  # stable
    return found, text


def _group(name: str) -> str:
    return EXPLAINERS[name.partition("+")[0]].group


def _columns(rows: pd.DataFrame, metrics: dict[str, str]) -> list[Column]:
    """Returns tasks, targets and metrics that the rows hold, in the order of the rows."""
    pairs = rows[["dataset", "target", "metric"]].drop_duplicates()
    there = {(str(d), str(t), str(m)) for d, t, m in pairs.itertuples(index=False)}
    subjects = dict.fromkeys((str(d), str(t)) for d, t, _ in pairs.itertuples(index=False))
    return [
        (*about, metric) for about in subjects for metric in metrics if (*about, metric) in there
    ]


def _chosen(rows: pd.DataFrame, method: str, column: Column) -> pd.Series:
    task, target, metric = column
    wanted = (rows["setting"] == method) & (rows["dataset"] == task) & (rows["target"] == target)
    return values_of(rows[wanted], metric)


def _cells(
    rows: pd.DataFrame, method: str, columns: Sequence[Column], factor: float, digits: int
) -> list[str]:
    return [mean_and_std(factor * _chosen(rows, method, c), digits) for c in columns]


def _means(rows: pd.DataFrame, methods: Sequence[str], columns: Sequence[Column]) -> Tensor:
    """Returns means over seeds, nan where there is none, ``[K, C]``."""
    means = [[float(_chosen(rows, name, c).mean()) for c in columns] for name in methods]
    return torch.tensor(means, dtype=torch.double).view(len(methods), len(columns))


def _best(
    means: Tensor, methods: Sequence[str], columns: Sequence[Column]
) -> list[tuple[int, int]]:
    """Returns the best ranked cells of each column, all of equals."""
    found = []
    is_ranked = torch.tensor([_group(name) in RANKED for name in methods])
    for c, (_, _, metric) in enumerate(columns):
        worth = means[:, c] if metric_of(metric).higher_is_better else -means[:, c]
        worth = torch.where(is_ranked & ~worth.isnan(), worth, -torch.inf)
        if bool((worth > -torch.inf).any()):
            found += [(int(r), c) for r in (worth == worth.max()).nonzero().view(-1)]
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
    told = rows[rows["metric"].str.startswith(CANNOT)]
    lines: dict[tuple[str, str, str], list[str]] = {}
    for row in told.itertuples(index=False):
        reason = row.metric.removeprefix(CANNOT)
        lines.setdefault((row.setting, f"{row.dataset} {row.target}", reason), []).append(
            str(row.seed)
        )
    return [
        f"{method} cannot explain {where} (seed {', '.join(seeds)}): {reason}"
        for (method, where, reason), seeds in lines.items()
    ]
