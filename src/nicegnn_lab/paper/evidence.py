"""What claims are judged by: rows of the benchmark, their means, and rows of studies."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from nicegnn.errors import ConfigError, NicegnnError, StoreError
from nicegnn_lab.bench import read_rows, summarise
from nicegnn_lab.metrics import TRUTH_METRICS, average_ranks
from nicegnn_lab.paper.methods import Method, datasets_in, named_method
from nicegnn_lab.paper.numbers import PAPER_DATASETS

if TYPE_CHECKING:
    import pandas as pd

#: Shares of bonds at which fidelity curves are read.
BUDGETS = (0.1, 0.3, 0.5, 0.9)
#: Metrics whose means are computed; a benchmark has many more, and reading takes time.
AVERAGED = (
    *(*TRUTH_METRICS, "pooled_roc_auc", "kept_area", "kept"),
    *("fit_seconds", "explain_seconds_per_graph"),
)
#: Metrics about gates, in the order of `GateFacts`.
GATES = ("fit_status", "restored", "not_restored", "gate_roc_auc", "big_roc_auc")

#: Means by method, then by dataset.
Means = Mapping[str, Mapping[str, float]]


@dataclass(frozen=True)
class GateFacts:
    """What is known about the gates of a method on one dataset, with one seed; nan if unknown."""

    status: str  # of the fit, such as ``ok`` or ``inverted``
    restored: float  # mean share of messages that the boundary restores
    not_restored: float  # share of graphs whose prediction it does not restore
    gate_auc: float  # mean agreement of the gate alone with the truth
    big_auc: float  # the same of the attribution alone


@dataclass(frozen=True)
class Evidence:
    """Rows of one benchmark and of studies."""

    rows: pd.DataFrame  # of the benchmark: `AVERAGED`, `GATES` and metrics that were asked for
    summary: pd.DataFrame  # means over graphs and seeds, with the ``method``'s name
    studies: Mapping[str, pd.DataFrame]  # rows by name of the study
    problems: Mapping[str, str] = field(default_factory=dict)  # why a study is left out
    target: str = "gin"  # target model that claims are judged on

    def means(
        self, metric: str, protocol: str = "paper", level: float | None = None
    ) -> dict[str, dict[str, float]]:
        """Returns means by method and dataset on the target, as shares; nan is left out.

        Args:
            level: share of bonds of a fidelity curve.
        """
        table = self.summary[self.summary["target"] == self.target]
        chosen = table[(table["metric"] == metric) & (table["protocol"] == protocol)]
        return means_in(chosen if level is None else chosen[chosen["level"] == level])

    def num_seeds(self, method: str) -> int:
        """Returns the seeds of a method on the target, the fewest of any dataset."""
        table = self.summary
        chosen = table[(table["method"] == method) & (table["target"] == self.target)]
        return 0 if chosen.empty else int(chosen["num_seeds"].min())

    def gates(self, method: str) -> dict[str, list[GateFacts]]:
        """Returns what rows tell about a method's gates by dataset, a seed at a time.

        Cells without a row of ``fit_status`` have no gates, or are from before such rows were
        written.
        """
        chosen, rows = named_method(method), self.rows
        rows = rows[
            (rows["explainer"] == chosen.explainer)
            & (rows["mechanism"] == chosen.mechanism)
            & (rows["target"] == self.target)
            & (rows["metric"].isin(GATES))
            & (rows["protocol"].isin(["", "paper"]))
        ]
        found: dict[str, list[GateFacts]] = {}
        for dataset in datasets_in(rows):
            for _, some in rows[rows["dataset"] == dataset].groupby("seed"):
                statuses = some.loc[some["metric"] == "fit_status", "note"]
                if not statuses.empty:
                    mean = some.groupby("metric", observed=True)["value"].mean()
                    numbers = (float(mean.get(metric, torch.nan)) for metric in GATES[1:])
                    facts = GateFacts(str(statuses.iloc[0]), *numbers)
                    found.setdefault(dataset, []).append(facts)
        return found


def read_evidence(
    rows_folder: str | Path,
    studies_folder: str | Path | None = None,
    *,
    target: str | None = None,
    metrics: Collection[str] = (),
) -> Evidence:
    """Reads all that claims are judged by.

    Args:
        target: claims are judged on it; by default ``gin``, or else the first there is.
        metrics: further ones to read.
    """
    rows = read_rows(rows_folder, where={"metric": (*AVERAGED, *GATES, *metrics)})
    if rows.empty:
        raise StoreError(
            f"There are no rows in {rows_folder}; make them with `nicegnn lab bench --out "
            f"{rows_folder}`, or name the folder of another benchmark."
        )
    rows = rows[(rows["metric"] != "kept") | rows["level"].isin(BUDGETS)]
    known = sorted(str(name) for name in rows["target"].unique())
    chosen = target or ("gin" if "gin" in known else known[0])
    if chosen not in known:
        raise ConfigError(f"`target` must be one of {known} (got {chosen!r}).")
    studies, problems = read_studies(studies_folder)
    return Evidence(rows, summary_of(rows), studies, problems, chosen)


def read_studies(folder: str | Path | None) -> tuple[dict[str, pd.DataFrame], dict[str, str]]:
    """Returns the rows of every study in a folder, and why others are left out."""
    found: dict[str, pd.DataFrame] = {}
    problems: dict[str, str] = {}
    for path in () if folder is None else sorted(Path(folder).iterdir()):
        if path.is_dir():
            try:
                found[path.name] = read_rows(path)
            except (NicegnnError, OSError, ValueError, KeyError) as error:
                problems[path.name] = str(error)
    return {name: rows for name, rows in found.items() if not rows.empty}, problems


def summary_of(rows: pd.DataFrame) -> pd.DataFrame:
    """Returns means of `AVERAGED` metrics with names of methods, datasets as the paper has them."""
    summary = summarise(rows[rows["metric"].isin(AVERAGED)], num_resamples=0)
    pairs = zip(summary["explainer"], summary["mechanism"], strict=True)
    summary["method"] = [Method(str(one), str(other)).label for one, other in pairs]
    places = {name: place for place, name in enumerate(PAPER_DATASETS)}
    order = [places.get(str(name), len(places)) for name in summary["dataset"]]
    return summary.assign(order=order).sort_values("order", kind="stable").drop(columns="order")


def means_in(summary: pd.DataFrame) -> dict[str, dict[str, float]]:
    """Returns the means of a summary by method and dataset; nan is left out."""
    found: dict[str, dict[str, float]] = {}
    for row in summary.itertuples(index=False):
        if row.mean == row.mean:
            found.setdefault(str(row.method), {})[str(row.dataset)] = float(row.mean)
    return found


def compared(
    means: Means, method: str, rivals: Collection[str] | None
) -> dict[str, dict[str, float]]:
    """Returns the method and its rivals on the datasets on which the method has a value.

    Args:
        rivals: names of methods; none for all that are neither ours, nor supervised, nor the truth.
    """
    if method not in means:
        return {}
    names = [name for name in means if (_is_rival(name) if rivals is None else name in rivals)]
    table = {
        name: {d: means[name][d] for d in means[method] if d in means[name]}
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
    ranks = average_ranks(torch.tensor(values, dtype=torch.double), [metric] * len(datasets))
    return dict(zip(table, ranks.tolist(), strict=True))


def places_of(table: Means) -> set[tuple[str, str]]:
    """Returns (dataset, method) of all numbers in a table."""
    return {(dataset, name) for name, row in table.items() for dataset in row}


def _is_rival(label: str) -> bool:
    explainer, _, mechanism = label.partition("+")
    group = Method(explainer, mechanism).group
    return group in ("rival", "reference") and explainer != "ground-truth"
