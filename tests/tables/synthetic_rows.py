"""Rows of a benchmark written by hand; and the small benchmark, for tests that need a real one."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd

sys.path.insert(0, str(Path(__file__).parents[1] / "bench"))
from tests.bench.small_bench import make_world

__all__ = ["bench_rows", "joined", "make_world"]

Values = Mapping[tuple[str, str, int], Sequence[float]]


def bench_rows(
    values: Values,
    *,
    metric: str = "roc_auc",
    protocol: str = "paper",
    target: str = "gin",
    graph: Sequence[int] | None = None,
) -> pd.DataFrame:
    """Rows of one metric from values per graph by (dataset, ``explainer+mechanism``, seed)."""
    found = []
    for (dataset, method, seed), numbers in values.items():
        explainer, _, mechanism = method.partition("+")
        places = list(range(len(numbers))) if graph is None else list(graph)
        for place, value in zip(places, numbers, strict=True):
            name = (dataset, target, explainer, mechanism, seed)
            found.append((*name, place, protocol, metric, value))
    columns = ["dataset", "target", "explainer", "mechanism", "seed", "graph"]
    rows = pd.DataFrame(found, columns=[*columns, "protocol", "metric", "value"])
    words = [*columns[:4], "protocol", "metric"]
    return rows.astype(dict.fromkeys(words, "category") | {"value": "float32"})


def joined(*parts: pd.DataFrame) -> pd.DataFrame:
    """Puts rows together as `read_rows` does: words stay categories."""
    rows = pd.concat([part.astype(dict.fromkeys(_words(part), "str")) for part in parts])
    return rows.astype(dict.fromkeys(_words(parts[0]), "category")).reset_index(drop=True)


def _words(rows: pd.DataFrame) -> list[str]:
    return [name for name in rows.columns if isinstance(rows[name].dtype, pd.CategoricalDtype)]
