"""Where rivals are far from the paper, and whether fidelity puts methods in the truth's order."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import torch

from nicegnn.metrics import METRICS, REMOVALS, spearman
from nicegnn.paper.methods import methods_in
from nicegnn.tables.cells import MISSING, cells_of, dataset_titles, rows_of
from nicegnn.tables.table import Table

if TYPE_CHECKING:
    import pandas as pd


def gap_table(
    rows: pd.DataFrame,
    *,
    threshold: float = 5.0,
    groups: Collection[str] = ("rival", "reference"),
) -> Table:
    """Returns our mean beside the paper's for each method and dataset that both have.

    Gaps of over `threshold` points are in bold; one row per method and dataset.
    """
    metrics = ("roc_auc", "f1")
    found = {name: cells_of(rows_of(rows, name, protocol="paper")) for name in metrics}
    cells = found["roc_auc"]
    titles, marks = dataset_titles(rows)
    lines: list[list[str]] = []
    bold = set()
    for method in methods_in(rows):
        for dataset, title in titles.items():
            if method.group not in groups or (method, dataset) not in cells:
                continue
            line = [method.label, title]
            for metric in metrics:
                paper, cell = method.paper(metric, dataset), found[metric].get((method, dataset))
                if paper is None or cell is None:
                    break
                gap = 100 * cell.mean - paper
                if abs(gap) > threshold:
                    bold.add((len(lines), len(line) + 2))
                spread = "" if math.isnan(cell.std) else f" ± {100 * cell.std:.1f}"
                line += [f"{100 * cell.mean:.1f}{spread}", f"{paper:.1f}", f"{gap:+.1f}"]
            else:
                lines.append(line)
    columns = [
        f"{METRICS[name].title}{end}" for name in metrics for end in ("", ", paper", ", gap")
    ]
    return Table(
        name="gaps-gin",
        title="Rivals beside the paper's rows in percent, protocol paper, target gin",
        columns=["method", "dataset", *columns],
        rows=lines,
        best=frozenset(bold),
        notes=[
            "Mean ± standard deviation over seeds of the mean over graphs. In bold: gaps of over "
            f"{threshold:g} points.",
            *marks,
        ],
    )


def criterion_table(
    rows: pd.DataFrame,
    *,
    metric: str = "roc_auc",
    protocol: str = "paper",
    target: str = "gin",
    without: Collection[str] = ("ground-truth",),
) -> Table:
    """Returns how well the area of prediction kept, which needs no truth, orders methods by truth.

    One row per dataset: the rank correlation, over methods, of `metric` with ``kept_area`` under
    each removal. High values say that settings may be chosen by ``kept_area``.

    Args:
        without: explainers that are left out; by default the truth itself.
    """
    agreement = rows_of(rows, metric, protocol=protocol, target=target)
    truth = cells_of(agreement)
    titles, marks = dataset_titles(agreement)
    areas = rows[(rows["metric"] == "kept_area") & (rows["target"] == target)]
    removals = [name for name in REMOVALS if bool((areas["protocol"] == name).any())]
    by_removal = {name: cells_of(areas[areas["protocol"] == name]) for name in removals}
    lines = []
    for dataset, title in titles.items():
        line = [title]
        nums = []
        for kept in by_removal.values():
            pairs = [
                (cell.mean, kept[key].mean)
                for key, cell in truth.items()
                if key in kept and key[1] == dataset and key[0].explainer not in without
            ]
            correlation, num = _rank_correlation(pairs)
            line.append(MISSING if math.isnan(correlation) else f"{correlation:+.2f}")
            nums.append(num)
        lines.append([*line, str(max(nums, default=0))])
    return Table(
        name=f"criterion-{metric.replace('_', '-')}-{protocol}-{target}",
        title=(
            f"Rank correlation over methods of {METRICS[metric].title} (protocol {protocol}) with "
            f"the area of prediction kept, target {target}"
        ),
        columns=["dataset", *(f"kept under {name}" for name in removals), "methods"],
        rows=lines,
        notes=[
            "Spearman correlation of means over graphs and seeds; every mechanism of an explainer "
            f"is a method. Left out: {', '.join(sorted(without)) or 'none'}. Under three methods "
            f"or without differences there is no value ({MISSING}).",
            *marks,
        ],
    )


def _rank_correlation(pairs: Sequence[tuple[float, float]]) -> tuple[float, int]:
    """Returns Spearman's correlation of pairs without nan, and their number."""
    known = torch.tensor([pair for pair in pairs if not any(map(math.isnan, pair))]).view(-1, 2)
    if known.size(0) < 3:
        return math.nan, known.size(0)
    together = torch.zeros(known.size(0), dtype=torch.long)
    return float(spearman(known[:, 0], known[:, 1], together, 1)), known.size(0)
