"""From rows to a table: means over graphs and seeds, their spread, and how sure they are."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import torch

from nicegnn.metrics import bootstrap_mean

if TYPE_CHECKING:
    import pandas as pd

GROUPS = (
    *("dataset", "target", "explainer", "mechanism", "setting"),
    *("protocol", "metric", "level"),
)


def summarise(
    rows: pd.DataFrame, *, level: float = 0.95, num_resamples: int = 1000, seed: int = 0
) -> pd.DataFrame:
    r"""Returns one row for each combination of `GROUPS`, such as one metric of one explainer.

    .. math:: \bar v = \tfrac1S \sum_s \bar v_s, \quad \bar v_s = \tfrac1{|G_s|}
        \sum_{g \in G_s} v_{gs}, \qquad std = \sqrt{\tfrac1{S-1} \sum_s (\bar v_s - \bar v)^2}

    Symbols: :math:`v_{gs}` -> ``value`` of graph g with seed s; :math:`G_s` -> graphs with a value;
    :math:`S` -> number of seeds.

    Columns:
        mean, std: as above; std is nan for one seed.
        low, high: bootstrap interval over graphs of each graph's mean over seeds; nan for numbers
            about a whole cell.
        num_seeds: seeds.
        num_graphs: graphs, 0 for numbers about a whole cell.
        num_nan: undefined values, over all seeds.

    Args:
        rows: from `read_rows`; keep only the metrics you need, for the interval takes time.
        num_resamples: of the bootstrap; 0 for none.
    """
    pandas = import_module("pandas")
    found = []
    rows = rows.astype({"value": "float64"})
    for names, group in rows.groupby(list(GROUPS), observed=True, sort=True, dropna=False):
        by_seed = group.groupby("seed")["value"].mean()  # nan is left out
        graphs = group[group["graph"] >= 0]
        by_graph = graphs.groupby("graph")["value"].mean()
        low, high = _interval(by_graph, level, num_resamples, seed)
        found.append(
            {
                **dict(zip(GROUPS, names, strict=True)),
                "mean": float(by_seed.mean()),
                "std": float(by_seed.std()),
                "low": low,
                "high": high,
                "num_seeds": int(by_seed.size),
                "num_graphs": int(by_graph.size),
                "num_nan": int(group["value"].isna().sum()),
            }
        )
    columns = [*GROUPS, "mean", "std", "low", "high", "num_seeds", "num_graphs", "num_nan"]
    table: pd.DataFrame = pandas.DataFrame(found, columns=columns)
    return table


def _interval(value: Any, level: float, num_resamples: int, seed: int) -> tuple[float, float]:
    if num_resamples == 0 or value.size == 0:
        return torch.nan, torch.nan
    known = torch.tensor(value.to_numpy(dtype="float64", copy=True))
    found = bootstrap_mean(known, level=level, num_resamples=num_resamples, seed=seed)
    return found.low, found.high
