"""Tables of the trust study: warnings beside the truth, expected and seen overlap, random bonds."""

from __future__ import annotations

from functools import reduce
from itertools import pairwise
from operator import or_
from pathlib import Path
from typing import TYPE_CHECKING

from nicegnn.explain.explanation import Flag
from nicegnn_lab.studies.trust import JUDGED, WAYS, warned
from nicegnn_lab.tables.table import MISSING, Table, number, read_study, stand_ins, subject_title

if TYPE_CHECKING:
    import pandas as pd

_BINS = (0.0, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0)  # of the expected overlap
_SUBJECT = ["setting", "dataset", "target"]
_ABOUT = ["explained", "dataset", "target", "graphs"]


def trust_tables(studies: str | Path) -> list[Table]:
    """Returns warnings beside the truth, the overlap of two seeds, and what random bonds keep."""
    rows = read_study(studies, "trust")
    wide = rows.pivot_table(
        index=[*_SUBJECT, "graph"], columns="metric", values="value", sort=False
    )
    ways = [way for way in WAYS if way in wide.index.get_level_values("setting")]
    marked = stand_ins(rows)
    return [_warnings(wide, ways, marked), _overlaps(wide, ways), _random(wide, ways, marked)]


def _warnings(wide: pd.DataFrame, ways: list[str], marked: frozenset[str]) -> Table:
    shown = [flag for flag in JUDGED if any(warned(wide["flags"], flag))]
    shown.insert(0, reduce(or_, shown, Flag.OK))  # any of them
    lines = []
    for way in ways:
        pairs: list[list[tuple[float, float]]] = [[] for _ in shown]
        counts = [0] * len(shown)
        own = wide.loc[way]
        for (dataset, target), part in own.groupby(["dataset", "target"], sort=False):
            auc, cells = 100 * part["roc_auc"], []
            for turn, flag in enumerate(shown):
                is_so = warned(part["flags"], flag)
                yes, no = auc[is_so], auc[[not one for one in is_so]]
                counts[turn] += len(yes)
                if len(yes) and len(no):
                    pairs[turn].append((float(yes.mean()), float(no.mean())))
                cells.append(_pair(len(yes), float(yes.mean()), float(no.mean())))
            about = [way, subject_title(dataset, "gin", marked), target, str(len(part))]
            lines.append([*about, number(float(auc.mean()), 1), *cells])
        means = [_pair(num, *_means(some)) for num, some in zip(counts, pairs, strict=True)]
        auc = 100 * own["roc_auc"].mean()
        lines.append([way, "all", "", str(len(own)), number(float(auc), 1), *means])
    return Table(
        "trust",
        "Warnings beside the truth, on validation graphs",
        [*_ABOUT, "ROC-AUC", "any warning", *(str(flag.name) for flag in shown[1:])],
        lines,
        notes=[
            "Cells: graphs with the warning: mean ROC-AUC (protocol `paper`, percent) with it / "
            "without it. Lines `all`: means over the targets that have graphs of both kinds. "
            "Graphs of label 1 that are predicted right."
        ],
        num_left=3,
    )


def _overlaps(wide: pd.DataFrame, ways: list[str]) -> Table:
    lines = []
    for way in ways:
        own = wide.loc[way].dropna(subset=["overlap"])
        bins = [("all", own)]
        for low, high in pairwise(_BINS):
            is_in = (own["overlap"] >= low) & (own["overlap"] < high)
            bins.append((f"{low:g} to {high:g}", own[is_in]))
        bins.append(("1", own[own["overlap"] >= 1]))
        for name, part in bins:
            if len(part):
                means = [part[metric].mean() for metric in ("overlap", "overlap_seen")]
                shares = [f"{100 * float(mean):.1f}" for mean in means]
                lines.append([way, name, str(len(part)), *shares])
    return Table(
        "trust",
        "Top 30 % of bonds that another seed chooses too: expected and seen, percent",
        ["explained", "expected overlap", "graphs", "mean expected", "mean seen"],
        lines,
        num_left=2,
    )


def _random(wide: pd.DataFrame, ways: list[str], marked: frozenset[str]) -> Table:
    metrics = ("share", "kept", "kept_random", "needed", "random_warned")
    lines = []
    for way in ways:
        groups = [("all", "", wide.loc[way])]
        for (dataset, target), part in wide.loc[way].groupby(["dataset", "target"], sort=False):
            groups.append((subject_title(dataset, "gin", marked), target, part))
        for dataset, target, part in [*groups[1:], groups[0]]:
            shares = [f"{100 * float(part[metric].mean()):.1f}" for metric in metrics]
            better = number(float(part["random_better"].mean()), 1)
            about = [way, dataset, target, str(len(part))]
            lines.append([*about, *shares[:-1], better, shares[-1]])
    heads = ("bonds", "kept", "kept by random bonds", "needed", "better orders of ten")
    note = (
        "Means over graphs. Bonds: the share of 50 and 80 % at which the best and the worst "
        "bonds differ most, percent. Kept: what the best leave of the clean probability; needed: "
        "what the worst lose of it, percent. Last column: random scores that are warned of, "
        "percent."
    )
    title = "What the best bonds keep, beside as many random bonds"
    columns = [*_ABOUT, *heads, "random scores warned of"]
    return Table("trust", title, columns, lines, notes=[note], num_left=3)


def _pair(num: int, yes: float, no: float) -> str:
    known = [MISSING if value != value else f"{value:.1f}" for value in (yes, no)]
    return f"{num}: {known[0]} / {known[1]}" if num else f"0: {MISSING} / {known[1]}"


def _means(pairs: list[tuple[float, float]]) -> tuple[float, float]:
    nan = float("nan")
    if not pairs:
        return nan, nan
    return sum(yes for yes, _ in pairs) / len(pairs), sum(no for _, no in pairs) / len(pairs)
