"""Tables of means by method and dataset: who can be compared with whom, and who ranks where."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import torch

from nicegnn.metrics import average_ranks
from nicegnn.tables.methods import Method, own_mechanism

#: Means by method, then by dataset.
Means = Mapping[str, Mapping[str, float]]


def compared(
    means: Means, method: str, rivals: Collection[str] | None
) -> dict[str, dict[str, float]]:
    """Returns the method and its rivals on the datasets on which the method has a value."""
    if method not in means:
        return {}
    datasets = list(means[method])
    names = [name for name in means if (_is_rival(name) if rivals is None else name in rivals)]
    table = {
        name: {d: means[name][d] for d in datasets if d in means[name]}
        for name in dict.fromkeys([method, *names])
    }
    return {name: row for name, row in table.items() if row}


def complete(table: Means, method: str) -> dict[str, dict[str, float]]:
    """Returns the methods that have a value on every dataset of the given one."""
    wanted = set(table.get(method, {}))
    return {name: dict(row) for name, row in table.items() if set(row) == wanted}


def rank_methods(table: Means, metric: str) -> dict[str, float]:
    """Returns the average rank of each method over the datasets on which it has a value."""
    datasets = list(dict.fromkeys(d for row in table.values() for d in row))
    values = [[row.get(d, torch.nan) for d in datasets] for row in table.values()]
    name = metric.partition("@")[0]
    ranks = average_ranks(torch.tensor(values, dtype=torch.double), [name] * len(datasets))
    return dict(zip(table, ranks.tolist(), strict=True))


def sorted_ranks(ranks: Mapping[str, float], method: str, mine: float) -> list[tuple[str, float]]:
    """Returns all methods, the best first."""
    return sorted([*ranks.items(), (method, mine)], key=lambda item: item[1])


def cells_of(table: Means) -> set[tuple[str, str]]:
    """Returns (dataset, method) of all numbers in a table."""
    return {(dataset, name) for name, row in table.items() for dataset in row}


def _is_rival(label: str) -> bool:
    explainer, _, mechanism = label.partition("+")
    group = Method(explainer, mechanism or own_mechanism(explainer)).group
    return group in ("rival", "reference") and explainer != "ground-truth"
