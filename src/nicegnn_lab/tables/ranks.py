"""Ranks by truth and fidelity, what the truth reaches, and whether fidelity tells who is right."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from nicegnn_lab.metrics import REMOVALS, average_ranks, get_metric, spearman
from nicegnn_lab.paper.methods import RANKED, Method, datasets_in, methods_in, own_mechanism
from nicegnn_lab.tables.quality import best_cells, means_of
from nicegnn_lab.tables.table import (
    MISSING,
    Measured,
    Table,
    cells_of,
    dataset_titles,
    rows_of,
    targets_in,
)

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
_TRUTH, _CHANCE, _OURS = "ground-truth", "random", "nice"


def rank_table(rows: pd.DataFrame, target: str = "gin", *, with_variants: bool = False) -> Table:
    r"""Returns the mean rank of each method, 1 being best.

    .. math:: \bar R_k = \tfrac1{|Q|} \sum_{q \in Q} \tfrac1{|M_q|} \sum_{m \in M_q}
        \tfrac1{|D|} \sum_{d \in D} \mathrm{rank}_{md}(k)

    Symbols: :math:`Q, M_q` -> `QUANTITIES`; :math:`D` -> datasets of the rows. Agreement is the
    mean of the ranks by truth. An explainer counts once, with its own mechanism, unless variants
    are asked for. Supervised methods, random scores and the truth itself are not ranked, nor is a
    method without a value somewhere.
    """
    found = _ranked(rows, target, with_variants)
    order = found.columns["mean rank"].argsort(stable=True).tolist()
    texts = [
        [f"{values[k]:.2f}" for values in found.columns.values()]
        + [f"{100 * means[k]:.1f}" for means in found.means.values()]
        for k in order
    ]
    lines = [
        [found.methods[k].label, found.methods[k].group, *text]
        for k, text in zip(order, texts, strict=True)
    ]
    blank = [MISSING] * (len(found.columns) + len(found.means))
    lines += [[method.label, method.group, *blank] for method in found.left_out]
    grids = (list(found.columns.values()), False), (list(found.means.values()), True)
    best, start = set(), 2
    for columns, is_higher in grids:
        grid = torch.stack(columns, dim=1)[order]
        best |= {(r, c + start) for r, c in best_cells(grid, higher_is_better=is_higher)}
        start += len(columns)
    notes = [
        f"Mean rank, 1 being best, among the {len(found.methods)} methods with a value on all of "
        f"{', '.join(found.datasets)}, each by its mean over seeds and graphs. Truth by protocol "
        "paper; agreement is the mean of F1, recall and AUC; fidelity area: share of predictions "
        "kept by the best 10-90% of bonds, half under EM, half under NC. The mean rank is that of "
        "F1, recall, AUC and fidelity area. The last columns are means over datasets in percent."
    ]
    if found.left_out:
        names = ", ".join(method.label for method in found.left_out)
        notes.append(f"Not run on all datasets: {names}.")
    if with_variants:
        notes.append("An explainer counts with every mechanism, and NICE with every variant.")
    return Table(
        name=f"ranks-{'variants-' if with_variants else ''}{target}",
        title=f"Mean ranks of all methods, target {target} (lower is better)",
        columns=["method", "group", *found.columns, *(f"{name} %" for name in found.means)],
        rows=lines,
        best=frozenset(best),
        notes=notes,
    )


def backbones_table(rows: pd.DataFrame) -> Table:
    """Returns ranks by agreement, by fidelity and together on every target, side by side."""
    targets = targets_in(rows)
    found = {target: _ranked(rows, target, with_variants=False) for target in targets}

    cells = {
        (method, target, column): float(ranks.columns[column][k])
        for target, ranks in found.items()
        for k, method in enumerate(ranks.methods)
        for column in SIDE_BY_SIDE
    }
    methods = dict.fromkeys(method for ranks in found.values() for method in ranks.methods)
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
    total = grid[:, len(SIDE_BY_SIDE) - 1 :: len(SIDE_BY_SIDE)].mean(
        1
    )  # nan where a target is missing
    order = total.argsort(stable=True).tolist()
    every = torch.cat([grid, total.unsqueeze(1)], dim=1)[order]
    names = list(methods)
    lines = [
        [names[k].label, *(MISSING if v != v else f"{v:.2f}" for v in row)]
        for k, row in zip(order, every.tolist(), strict=True)
    ]
    best = best_cells(every, higher_is_better=False)
    sizes = ", ".join(f"{len(ranks.methods)} on {target}" for target, ranks in found.items())
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


def _ranked(rows: pd.DataFrame, target: str, with_variants: bool) -> _Ranks:
    there = rows[rows["target"] == target]
    datasets = datasets_in(there)
    groups = (*RANKED, "variant") if with_variants else RANKED
    methods = [m for m in methods_in(there, variants=with_variants) if m.group in groups]
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


def ceiling_table(rows: pd.DataFrame, target: str = "gin") -> Table:
    """Returns a row per dataset: what the truth scores, and how far it carries the target."""
    there = rows[rows["target"] == target]
    titles, marks = dataset_titles(there)
    truth, chance, ours = (Method(name, own_mechanism(name)) for name in (_TRUTH, _CHANCE, _OURS))

    def cells_by(metric: str, protocol: str) -> dict[tuple[Method, str], Measured]:
        return cells_of(rows_of(there, metric, protocol=protocol, target=target))

    def text(found: Measured | None) -> str:
        return MISSING if found is None else f"{100 * found.mean:.1f}"

    agreement = {metric: cells_by(metric, "paper") for metric in ("f1", "roc_auc")}
    areas = [cells_by("kept_area", removal) for removal in ("em", "nc")]
    lines = []
    for dataset, title in titles.items():
        line = [title]
        for metric, cells in agreement.items():
            line += [text(cells.get((method, dataset))) for method in (truth, ours)]
            ranked = [
                (cell.mean, method.label)
                for (method, where), cell in cells.items()
                if where == dataset and method.is_ranked
            ]
            line.append(f"{100 * max(ranked)[0]:.1f} ({max(ranked)[1]})" if ranked else MISSING)
            paper = ours.paper(metric, dataset)
            line.append(MISSING if paper is None else f"{paper:.1f}")
        for cells in areas:
            line += [text(cells.get((method, dataset))) for method in (chance, truth, ours)]
        lines.append(line)
    who = ("truth", _OURS, "best method", "the paper's")
    return Table(
        name=f"ceilings-{_OURS}-{target}",
        title=f"What the truth reaches as an explanation, target {target}, in percent",
        columns=[
            "dataset",
            *(f"{what}, {one}" for what in ("F1", "AUC") for one in who),
            *(f"kept {way}, {one}" for way in ("EM", "NC") for one in (_CHANCE, "truth", _OURS)),
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


def criterion_table(rows: pd.DataFrame, target: str = "gin") -> Table:
    """Returns how well the area of prediction kept, which needs no truth, orders methods by truth.

    One row per dataset: the rank correlation, over methods, of AUC with ``kept_area`` under each
    removal. High values say that settings may be chosen by ``kept_area``.
    """
    agreement = rows_of(rows, "roc_auc", protocol="paper", target=target)
    truth = cells_of(agreement)
    titles, marks = dataset_titles(agreement)
    areas = rows[(rows["metric"] == "kept_area") & (rows["target"] == target)]
    removals = [name for name in REMOVALS if bool((areas["protocol"] == name).any())]
    by_removal = [cells_of(areas[areas["protocol"] == name]) for name in removals]
    lines = []
    for dataset, title in titles.items():
        correlations, nums = [], [0]
        for kept in by_removal:
            pairs = [
                (cell.mean, kept[key].mean)
                for key, cell in truth.items()
                if key in kept and key[1] == dataset and key[0].explainer != _TRUTH
            ]
            known = torch.tensor([p for p in pairs if not any(map(math.isnan, p))]).view(-1, 2)
            num, found = known.size(0), math.nan
            if num >= 3:
                together = torch.zeros(num, dtype=torch.long)
                found = float(spearman(known[:, 0], known[:, 1], together, 1))
            correlations.append(MISSING if math.isnan(found) else f"{found:+.2f}")
            nums.append(num)
        lines.append([title, *correlations, str(max(nums))])
    return Table(
        name=f"criterion-roc-auc-paper-{target}",
        title=(
            "Rank correlation over methods of AUC (protocol paper) with the area of prediction "
            f"kept, target {target}"
        ),
        columns=["dataset", *(f"kept under {name}" for name in removals), "methods"],
        rows=lines,
        notes=[
            "Spearman correlation of means over graphs and seeds; every mechanism of an explainer "
            f"is a method. Left out: {_TRUTH}. Under three methods or without differences there "
            f"is no value ({MISSING}).",
            *marks,
        ],
    )
