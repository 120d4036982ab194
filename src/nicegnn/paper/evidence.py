"""What claims are judged by: rows of the benchmark, their means, and rows of studies."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from nicegnn.bench import read_rows, summarise
from nicegnn.errors import ConfigError, NicegnnError, StoreError
from nicegnn.metrics import TRUTH_METRICS, average_ranks
from nicegnn.paper.methods import Method, datasets_in, named_method
from nicegnn.paper.numbers import PAPER_DATASETS

if TYPE_CHECKING:
    import pandas as pd

#: Shares of bonds at which fidelity curves are read.
BUDGETS = (0.1, 0.3, 0.5, 0.9)
#: Metrics whose means are computed; a benchmark has many more, and reading takes time.
AVERAGED = (
    *(*TRUTH_METRICS, "pooled_roc_auc", "kept_area", "kept"),
    *("fit_seconds", "explain_seconds_per_graph"),
)
#: What rows tell about the gates of a method that has them: how the fit went, the share of
#: messages that the boundary restores, the share of graphs whose prediction it does not restore,
#: and how well gate and attribution alone agree with the truth.
GATES = ("fit_status", "restored", "not_restored", "gate_roc_auc", "big_roc_auc")

#: Means by method, then by dataset.
Means = Mapping[str, Mapping[str, float]]


@dataclass(frozen=True)
class GateFacts:
    """What is known about the gates of a method on one dataset, with one seed.

    Attributes:
        status: of the fit, such as ``ok`` or ``inverted``.
        restored: mean share of messages that are restored.
        not_restored: share of graphs whose prediction is not restored.
        gate_auc, big_auc: mean agreement of gate and attribution with the truth; nan if unknown.
    """

    dataset: str
    seed: int
    status: str
    restored: float
    not_restored: float
    gate_auc: float
    big_auc: float


@dataclass(frozen=True)
class Evidence:
    """Rows of one benchmark and of studies.

    Attributes:
        rows: of the benchmark, metrics of `AVERAGED`, `GATES` and those that were asked for.
        summary: means over graphs and seeds, see `summarise`, with the ``method``'s name.
        studies: rows of studies by name.
        problems: why a study is left out, by name.
        target: target model that claims are judged on.
    """

    rows: pd.DataFrame
    summary: pd.DataFrame
    studies: Mapping[str, pd.DataFrame]
    problems: Mapping[str, str] = field(default_factory=dict)
    target: str = "gin"

    def means(
        self, metric: str, protocol: str = "paper", level: float | None = None
    ) -> dict[str, dict[str, float]]:
        """Returns means by method and dataset on the target, as shares; nan is left out.

        Args:
            level: share of bonds of a fidelity curve.
        """
        table = self.summary
        chosen = table[
            (table["metric"] == metric)
            & (table["protocol"] == protocol)
            & (table["target"] == self.target)
        ]
        if level is not None:
            chosen = chosen[chosen["level"] == level]
        found: dict[str, dict[str, float]] = {}
        for row in chosen.itertuples(index=False):
            if row.mean == row.mean:
                found.setdefault(str(row.method), {})[str(row.dataset)] = float(row.mean)
        return found

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
            here = rows[rows["dataset"] == dataset]
            for seed, some in here.groupby("seed"):
                statuses = some.loc[some["metric"] == "fit_status", "note"]
                if statuses.empty:
                    continue
                mean = some.groupby("metric", observed=True)["value"].mean()
                restored, left, gate, big = (float(mean.get(m, torch.nan)) for m in GATES[1:])
                about = str(statuses.iloc[0]), restored, left, gate, big
                found.setdefault(dataset, []).append(GateFacts(dataset, int(seed), *about))
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
        rows_folder: of the benchmark.
        studies_folder: of all studies; none for none.
        target: claims are judged on it; by default ``gin``, or else the first there is.
        metrics: further ones to read.
    """
    rows = read_rows(rows_folder, where={"metric": (*AVERAGED, *GATES, *metrics)})
    if rows.empty:
        raise StoreError(
            f"There are no rows in {rows_folder}; make them with `nicegnn bench --out "
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
                rows = read_rows(path)
            except (NicegnnError, OSError, ValueError, KeyError) as error:
                problems[path.name] = str(error)
                continue
            if not rows.empty:
                found[path.name] = rows
    return found, problems


def summary_of(rows: pd.DataFrame) -> pd.DataFrame:
    """Returns means of `AVERAGED` metrics with names of methods, datasets as the paper has them."""
    summary = summarise(rows[rows["metric"].isin(AVERAGED)], num_resamples=0)
    pairs = zip(summary["explainer"], summary["mechanism"], strict=True)
    summary["method"] = [Method(str(one), str(other)).label for one, other in pairs]
    places = {name: place for place, name in enumerate(PAPER_DATASETS)}
    order = [places.get(str(name), len(places)) for name in summary["dataset"]]
    return summary.assign(order=order).sort_values("order", kind="stable").drop(columns="order")


def compared(
    means: Means, method: str, rivals: Collection[str] | None
) -> dict[str, dict[str, float]]:
    """Returns the method and its rivals on the datasets on which the method has a value.

    Args:
        rivals: names of methods; none for all that are neither ours, nor supervised, nor the truth.
    """
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
    ranks = average_ranks(torch.tensor(values, dtype=torch.double), [metric] * len(datasets))
    return dict(zip(table, ranks.tolist(), strict=True))


def places_of(table: Means) -> set[tuple[str, str]]:
    """Returns (dataset, method) of all numbers in a table."""
    return {(dataset, name) for name, row in table.items() for dataset in row}


def _is_rival(label: str) -> bool:
    explainer, _, mechanism = label.partition("+")
    group = Method(explainer, mechanism).group
    return group in ("rival", "reference") and explainer != "ground-truth"
