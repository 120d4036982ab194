"""Paired comparisons of methods on the same graphs: ours against rivals, EM against NC."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from nicegnn.errors import StoreError
from nicegnn.metrics import METRICS, PairedTest, get_metric, holm, paired_test
from nicegnn.paper.methods import Method, datasets_in, methods_in
from nicegnn.tables.cells import dataset_titles, rows_of
from nicegnn.tables.table import Table

if TYPE_CHECKING:
    import pandas as pd

LEVEL = 0.05  # of adjusted p-values, below which a difference is called one
_COLUMNS = ("difference", "95% interval", "p (Holm)", "graphs")


@dataclass(frozen=True)
class PairedComparison:
    """Two methods on the graphs of one dataset.

    Attributes:
        first_mean: mean over the graphs that both have, of each graph's mean over seeds.
        second_mean: the same of the other.
        test: paired over graphs, first minus second.
        p_adjusted: p-value after Holm's correction for all comparisons made together.
    """

    dataset: str
    first: Method
    second: Method
    first_mean: float
    second_mean: float
    test: PairedTest
    p_adjusted: float

    @property
    def is_different(self) -> bool:
        return self.p_adjusted < LEVEL  # false for nan


def compare(
    rows: pd.DataFrame,
    pairs: Sequence[tuple[Method, Method]],
    *,
    num_resamples: int = 2000,
) -> list[PairedComparison]:
    """Compares pairs of methods on every dataset on which both have values.

    Args:
        rows: of one metric, protocol and target, see `rows_of`.
        num_resamples: of the bootstrap interval.
    """
    plain = rows[rows["graph"] >= 0].astype({"value": "float64"})
    keys = ["dataset", "explainer", "mechanism", "graph"]
    by_graph = plain.groupby(keys, observed=True)["value"].mean()  # over seeds
    values: dict[tuple[str, Method], Any] = {
        (str(dataset), Method(str(explainer), str(mechanism))): part.droplevel([0, 1, 2])
        for (dataset, explainer, mechanism), part in by_graph.groupby(level=keys[:3], observed=True)
    }
    found = []
    for first, second in pairs:
        for dataset in datasets_in(rows):
            one, other = values.get((dataset, first)), values.get((dataset, second))
            if one is not None and other is not None:
                found.append(_compared(dataset, first, second, one, other, num_resamples))
    adjusted = holm([item.test.p_value for item in found])
    return [replace(item, p_adjusted=p) for item, p in zip(found, adjusted, strict=True)]


def mechanism_pairs(rows: pd.DataFrame) -> list[tuple[Method, Method]]:
    """Returns every explainer that was run with NC and with EM, as (NC, EM)."""
    methods = methods_in(rows, variants=True)
    names = dict.fromkeys(method.explainer for method in methods)
    pairs = [(Method(name, "nc"), Method(name, "em")) for name in names]
    return [pair for pair in pairs if set(pair) <= set(methods)]


def mechanism_table(
    rows: pd.DataFrame,
    *,
    metric: str = "roc_auc",
    protocol: str = "paper",
    target: str = "gin",
    num_resamples: int = 2000,
) -> Table:
    """Returns each explainer with EM and with NC on the same graphs, in percent.

    The paper's mechanism in the hands of the paper's rivals: a positive difference says that noise
    corruption serves the explainer better than masking.
    """
    chosen = rows_of(rows, metric, protocol=protocol, target=target)
    found = compare(chosen, mechanism_pairs(chosen), num_resamples=num_resamples)
    names = [item.first.explainer for item in found]
    groups = [item.first.group for item in found]
    return _table(
        found,
        name=f"mechanisms-{metric.replace('_', '-')}-{protocol}-{target}",
        title=f"EM against NC: {_what(metric, protocol, target)}",
        lead={"explainer": names, "group": groups},
        heads=("NC", "EM"),
        minus="NC minus EM",
        metric=metric,
        rows=chosen,
    )


def comparison_table(
    rows: pd.DataFrame,
    ours: str = "nice",
    *,
    metric: str = "roc_auc",
    protocol: str = "paper",
    target: str = "gin",
    num_resamples: int = 2000,
) -> Table:
    """Returns the paired difference of our method to each other one by dataset, in percent.

    Reference and supervised methods are compared too and marked by their group.
    """
    chosen = rows_of(rows, metric, protocol=protocol, target=target)
    mine = methods_in(chosen, [ours])
    if not mine:
        raise StoreError(f"The rows hold no {ours!r} of {metric!r}; run it, or name another.")
    others = [method for method in methods_in(chosen) if method != mine[0]]
    pairs = [(mine[0], other) for other in others]
    found = compare(chosen, pairs, num_resamples=num_resamples)
    return _table(
        found,
        name=f"comparison-{ours}-{metric.replace('_', '-')}-{protocol}-{target}",
        title=f"{ours} against the others: {_what(metric, protocol, target)}",
        lead={
            "other": [item.second.label for item in found],
            "group": [item.second.group for item in found],
        },
        heads=(ours, "its value"),
        minus=f"{ours} minus the other",
        metric=metric,
        rows=chosen,
    )


def _compared(
    dataset: str, first: Method, second: Method, one: Any, other: Any, num_resamples: int
) -> PairedComparison:
    both = one.to_frame("first").join(other.to_frame("second"), how="inner").dropna()
    values = torch.tensor(both.to_numpy(dtype="float64", copy=True)).view(-1, 2)  # [B, 2]
    test = paired_test(values[:, 0], values[:, 1], num_resamples=num_resamples)
    means = values.mean(0).tolist() if values.size(0) else [math.nan, math.nan]
    return PairedComparison(dataset, first, second, means[0], means[1], test, math.nan)


def _what(metric: str, protocol: str, target: str) -> str:
    kind = get_metric(metric)
    better = "higher" if kind.higher_is_better else "lower"
    return f"{kind.title} in percent ({better} is better), protocol {protocol}, target {target}"


def _table(
    found: Sequence[PairedComparison],
    *,
    name: str,
    title: str,
    lead: dict[str, list[str]],
    heads: tuple[str, str],
    metric: str,
    minus: str,
    rows: pd.DataFrame,
) -> Table:
    lines, best = [], set()
    compared = {item.dataset for item in found}
    titles, marks = dataset_titles(rows[rows["dataset"].isin(compared)])
    sign = 1 if METRICS[metric].higher_is_better else -1
    for number, item in enumerate(found):
        gap = item.test.difference
        lines.append(
            [
                *(words[number] for words in lead.values()),
                titles[item.dataset],
                _percent(item.first_mean),
                _percent(item.second_mean),
                _percent(gap.mean, signed=True),
                f"{_percent(gap.low, signed=True)} to {_percent(gap.high, signed=True)}",
                _p_text(item.p_adjusted),
                str(gap.num),
            ]
        )
        if item.is_different:
            best.add((number, len(lead) + (1 if sign * gap.mean > 0 else 2)))
    return Table(
        name=name,
        title=title,
        columns=[*lead, "dataset", *heads, *_COLUMNS],
        rows=lines,
        best=frozenset(best),
        notes=[
            f"Difference {minus} over the graphs that both have, each graph's "
            "mean over seeds counting once; percentile bootstrap over graphs; Wilcoxon's signed-"
            f"rank test, corrected by Holm for the {len(found)} comparisons of this table. The "
            f"better of the two is bold where p is below {LEVEL}.",
            *marks,
        ],
    )


def _percent(share: float, *, signed: bool = False) -> str:
    return "nan" if math.isnan(share) else f"{100 * share:{'+' if signed else ''}.1f}"


def _p_text(p: float) -> str:
    if math.isnan(p):
        return "nan"
    return f"{p:.3f}" if p >= 0.001 or p == 0 else f"{p:.0e}"
