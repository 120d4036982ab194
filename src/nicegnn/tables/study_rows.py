"""Reading rows of an experiment for its tables and figures."""

from __future__ import annotations

import math
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nicegnn.bench.study_rows import COLUMNS, read_experiment
from nicegnn.bench.targets import TARGETS
from nicegnn.errors import StoreError
from nicegnn.tables.methods import dataset_title, datasets_in

if TYPE_CHECKING:
    import pandas as pd


def read_one_run(out: str | Path, experiment: str) -> pd.DataFrame:
    """Returns the rows of an experiment, datasets in the paper's order and its GIN first.

    Parts that differ in settings have different names, so a folder can come to hold two runs; their
    mean would be a number that nobody measured, and is refused.
    """
    rows = read_experiment(out, experiment)
    names = [name for name in COLUMNS if name not in ("experiment", "value")]
    twice = rows[rows.duplicated(names)]
    if len(twice):
        first = twice.iloc[0]
        raise StoreError(
            f"{Path(out) / experiment} holds more than one run: {first['metric']} of "
            f"{first['setting']!r} on {first['dataset']} with seed {first['seed']} is there twice. "
            "Delete the parts of the one you do not want, or compute into another folder."
        )
    place = {name: turn for turn, name in enumerate((*datasets_in(rows), *TARGETS))}
    return rows.sort_values(
        ["dataset", "target"], key=lambda names: names.map(place), kind="stable", ignore_index=True
    )


def values_of(rows: pd.DataFrame, metric: str) -> Any:
    """Returns the values of one metric."""
    return rows.loc[rows["metric"] == metric, "value"]


def by_subject(rows: pd.DataFrame, metric: str) -> Any:
    """Returns the mean over seeds of one metric for each dataset and target."""
    chosen = rows[rows["metric"] == metric]
    return chosen.groupby(["dataset", "target"])["value"].mean()


def mean_and_std(values: Any, digits: int = 2) -> str:
    """Returns ``mean ± std`` of numbers, the mean alone of a single one, ``-`` of none.

    Example:
        >>> import pandas
        >>> mean_and_std(pandas.Series([1.0, 3.0]))
        '2.00 ± 1.41'
    """
    known = values.dropna()
    if len(known) == 0:
        return "-"
    mean = number(float(known.mean()), digits)
    return mean if len(known) == 1 else f"{mean} ± {number(float(known.std()), digits)}"


def number(value: float, digits: int = 2) -> str:
    """Returns a number with so many digits, ``-`` for nan."""
    return "-" if math.isnan(value) else f"{value:.{digits}f}"


def subject_title(dataset: str, target: str, marked: Collection[str] = ()) -> str:
    """Returns how a table names a target on a dataset; the paper's GIN goes without saying.

    Args:
        marked: datasets that are called stand-ins.

    Example:
        >>> subject_title("benzene", "gin"), subject_title("benzene", "gcn")
        ('benzene', 'benzene, gcn')
    """
    title = dataset_title(dataset, marked)
    return title if target == "gin" else f"{title}, {target}"


def subject_titles(rows: pd.DataFrame) -> str:
    """Returns the datasets, targets and number of seeds behind rows, for a caption.

    Example:
        >>> import pandas
        >>> subject_titles(pandas.DataFrame({"dataset": ["a"], "target": ["gcn"], "seed": [0]}))
        'a (gcn), seeds: 1'
    """
    pairs = rows[["dataset", "target"]].drop_duplicates().itertuples(index=False)
    found = ", ".join(f"{dataset} ({target})" for dataset, target in pairs)
    return f"{found}, seeds: {rows['seed'].nunique()}"
