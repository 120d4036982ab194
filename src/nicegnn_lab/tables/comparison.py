"""Paired comparisons of methods on the same graphs: ours against rivals, EM against the others."""

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd
import torch

from nicegnn.errors import StoreError
from nicegnn_lab.metrics.statistics import Interval, holm, paired_test
from nicegnn_lab.paper.methods import OURS, Method, datasets_in, methods_in
from nicegnn_lab.tables.table import Table, dataset_titles, rows_of

LEVEL = 0.05  # of adjusted p-values, below which a difference is called one


@dataclass(frozen=True)
class PairedComparison:
    """Two methods on the graphs of one dataset."""

    dataset: str
    first: Method
    second: Method
    means: tuple[float, float]  # over the graphs that both have, of each graph's mean over seeds
    test: Interval  # over graphs, first minus second


def compare(rows: pd.DataFrame, pairs: Sequence[tuple[Method, Method]]) -> list[PairedComparison]:
    """Compares pairs of methods on every dataset on which both have values.

    The rows are of one metric, protocol and target, see `rows_of`.
    """
    plain = rows[rows["graph"] >= 0].astype({"value": "float64"})
    keys = ["dataset", "explainer", "mechanism", "graph"]
    by_graph = plain.groupby(keys, observed=True)["value"].mean()  # over seeds
    values = dict(iter(by_graph.groupby(level=keys[:3], observed=True)))
    compared = []
    for first, second in pairs:
        for dataset in datasets_in(rows):
            names = [(dataset, one.explainer, one.mechanism) for one in (first, second)]
            if not all(name in values for name in names):
                continue
            both = pd.concat([values[name].droplevel([0, 1, 2]) for name in names], axis=1).dropna()
            value = torch.tensor(both.to_numpy(dtype="float64", copy=True)).view(-1, 2)  # [B, 2]
            test = paired_test(value[:, 0], value[:, 1], num_resamples=2000)
            one, other = value.mean(0).tolist()  # nan without graphs
            compared.append(PairedComparison(dataset, first, second, (one, other), test))
    return compared


def mechanism_tables(rows: pd.DataFrame, target: str = "gin") -> list[Table]:
    """Returns each explainer with EM and with noise on the same graphs; and with exchange.

    In the hands of the paper's rivals: a positive difference says that another mechanism serves the
    explainer better than masking. Exchange is left out where no rows hold it.
    """
    chosen = rows_of(rows, "roc_auc", "paper", target)
    names = dict.fromkeys(method.explainer for method in methods_in(chosen, variants=True))
    tables: list[Table] = []
    ways = (("nc", "NC", "mechanisms"), ("exchange", "exchange", "mechanisms-exchange"))
    for mechanism, way, file in ways:
        found = compare(chosen, [(Method(name, mechanism), Method(name, "em")) for name in names])
        if found or not tables:
            heads, minus = ("explainer", way, "EM"), f"{way} minus EM"
            tables.append(_table(file, f"EM against {way}", found, heads, minus, chosen, target))
    return tables


def comparison_table(rows: pd.DataFrame, target: str = "gin") -> list[Table]:
    """Returns the paired difference of our method to each other one by dataset, in percent.

    Reference and supervised methods are compared too and marked by their group.
    """
    chosen = rows_of(rows, "roc_auc", "paper", target)
    methods = methods_in(chosen)
    if OURS not in methods:
        raise StoreError("The rows hold no 'nice' of 'roc_auc'. Run it.")
    found = compare(chosen, [(OURS, other) for other in methods if other != OURS])
    heads, minus = ("other", OURS.label, "its value"), f"{OURS.label} minus the other"
    title = f"{OURS.label} against the others"
    return [_table("comparison-nice", title, found, heads, minus, chosen, target)]


def _table(
    name: str,
    title: str,
    compared: Sequence[PairedComparison],
    heads: tuple[str, str, str],
    minus: str,
    rows: pd.DataFrame,
    target: str,
) -> Table:
    titles, marks = dataset_titles(rows[rows["dataset"].isin({one.dataset for one in compared})])
    adjusted = holm([item.test.p_value for item in compared])
    lines, best = [], set()
    for number, (item, p) in enumerate(zip(compared, adjusted, strict=True)):
        gap = item.test
        line = [item.second.explainer, item.second.group, titles[item.dataset]]
        line += [f"{100 * mean:.1f}" for mean in item.means]
        line += [_signed(gap.mean), f"{_signed(gap.low)} to {_signed(gap.high)}"]
        lines.append([*line, f"{p:.0e}" if 0 < p < 0.001 else f"{p:.3f}", str(gap.num)])
        if p < LEVEL:  # false for nan
            best.add((number, 3 if gap.mean > 0 else 4))
    columns = [heads[0], "group", "dataset", *heads[1:], "difference", "95% interval", "p (Holm)"]
    note = (
        f"Difference {minus} over the graphs that both have, each graph's mean over seeds counting "
        "once; percentile bootstrap over graphs; Wilcoxon's signed-rank test, corrected by Holm "
        f"for the {len(compared)} comparisons of this table. The better of the two is bold where p "
        f"is below {LEVEL}."
    )
    return Table(
        name=f"{name}-roc-auc-paper-{target}",
        title=f"{title}: AUC in percent (higher is better), protocol paper, target {target}",
        columns=[*columns, "graphs"],
        rows=lines,
        best=frozenset(best),
        notes=[note, *marks],
    )


def _signed(share: float) -> str:
    return f"{100 * share:+.1f}" if share == share else "nan"
