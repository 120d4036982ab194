"""What claims are judged by: means of rows, what stored scores tell, and rows of experiments."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from nicegnn.bench import read_rows, summarise
from nicegnn.errors import ConfigError, NicegnnError, StoreError
from nicegnn.explain.explanation import Flag
from nicegnn.graph.case import find_bonds
from nicegnn.metrics import TRUTH_METRICS, Truth, selected_graphs, truth_metrics
from nicegnn.paper.numbers import PAPER_DATASETS
from nicegnn.report.parts import Parts
from nicegnn.report.sources import Source, read_scores, read_sources
from nicegnn.tables.methods import Method
from nicegnn.tables.study_rows import read_one_run

if TYPE_CHECKING:
    import pandas as pd

#: Budgets of the fidelity curve that the page shows.
BUDGETS = ("0.1", "0.3", "0.5", "0.9")
#: Metrics that are read; a benchmark has many more, and most of a page's time goes into reading.
READ = (
    *TRUTH_METRICS,
    "pooled_roc_auc",
    "kept_area",
    *(f"kept@{budget}" for budget in BUDGETS),
    "fit_seconds",
    "explain_seconds_per_graph",
)
#: What each row of `Evidence.boundaries` is about.
BOUNDARY_COLUMNS = (
    *("dataset", "target", "method", "seed", "status", "restored"),
    *("not_restored", "gate_auc", "big_auc", "num_graphs"),
)

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Evidence:
    """Results of one benchmark and its experiments.

    Attributes:
        sources: every finished cell.
        rows: values per graph, see `read_rows`; the metrics of `READ` only.
        summary: means over graphs and seeds, see `summarise`, with the ``method``'s name.
        boundaries: one row per cell of a method with gates, see `BOUNDARY_COLUMNS`.
        experiments: rows of experiments by name.
        problems: why an experiment is left out, by name.
        target: target model that claims are judged on.
    """

    sources: Sequence[Source]
    rows: pd.DataFrame
    summary: pd.DataFrame
    boundaries: pd.DataFrame
    experiments: Mapping[str, pd.DataFrame]
    problems: Mapping[str, str] = field(default_factory=dict)
    target: str = "gin"

    def means(self, metric: str, protocol: str = "paper") -> dict[str, dict[str, float]]:
        """Returns means by method and dataset on the target, as shares; nan is left out."""
        table = self.summary
        chosen = table[
            (table["metric"] == metric)
            & (table["protocol"] == protocol)
            & (table["target"] == self.target)
        ]
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


def read_evidence(
    rows_folder: str | Path,
    experiments_folder: str | Path | None = None,
    *,
    target: str | None = None,
    parts: Parts | None = None,
) -> Evidence:
    """Reads all that the page shows.

    Args:
        target: claims are judged on it; by default ``gin``, or else the first there is.
        parts: gives the explained graphs; without it, nothing is computed from stored scores.
    """
    rows = read_rows(rows_folder, where={"metric": READ})
    if rows.empty:
        raise StoreError(
            f"There are no rows in {rows_folder}; make them with `nicegnn bench --out "
            f"{rows_folder}`, or name the folder of another benchmark."
        )
    sources = read_sources(rows_folder)
    known = sorted({source.target for source in sources})
    chosen = target or ("gin" if "gin" in known else known[0])
    if chosen not in known:
        raise ConfigError(f"`target` must be one of {known} (got {chosen!r}).")
    experiments, problems = read_experiments(experiments_folder)
    return Evidence(
        sources=sources,
        rows=rows,
        summary=summary_of(rows),
        boundaries=read_boundaries(rows_folder, sources, parts),
        experiments=experiments,
        problems=problems,
        target=chosen,
    )


def summary_of(rows: pd.DataFrame) -> pd.DataFrame:
    """Returns `summarise` without intervals, with names of methods, datasets as the paper does."""
    summary = summarise(rows, num_resamples=0)
    pairs = zip(summary["explainer"], summary["mechanism"], strict=True)
    summary["method"] = [Method(str(one), str(other)).label for one, other in pairs]
    places = {name: place for place, name in enumerate(PAPER_DATASETS)}
    order = [places.get(str(name), len(places)) for name in summary["dataset"]]
    return summary.assign(order=order).sort_values("order", kind="stable").drop(columns="order")


def read_experiments(
    folder: str | Path | None,
) -> tuple[dict[str, pd.DataFrame], dict[str, str]]:
    """Returns the rows of every experiment in a folder, and why others are left out."""
    found: dict[str, pd.DataFrame] = {}
    problems: dict[str, str] = {}
    for path in () if folder is None else sorted(Path(folder).iterdir()):
        if path.is_dir() and any(path.glob("*.parquet")):
            try:
                found[path.name] = read_one_run(path.parent, path.name)
            except (NicegnnError, OSError, ValueError, KeyError) as error:
                problems[path.name] = str(error)
    return found, problems


def read_boundaries(
    folder: str | Path, sources: Sequence[Source], parts: Parts | None
) -> pd.DataFrame:
    """Returns what is stored about the boundaries of methods with gates, a row per cell."""
    pandas = import_module("pandas")
    rows = list(_boundaries(folder, sources, parts))
    table: pd.DataFrame = pandas.DataFrame(rows, columns=list(BOUNDARY_COLUMNS))
    return table


def _boundaries(
    folder: str | Path, sources: Sequence[Source], parts: Parts | None
) -> Iterator[dict[str, Any]]:
    for source in sources:
        if source.method.group != "ours":
            continue
        try:
            scores = read_scores(folder, source)
        except StoreError as error:
            log.warning("%s", error)
            continue
        if "bond_gate" not in scores.extras:
            continue
        left = (scores.flags & int(Flag.NOT_RESTORED)) > 0
        part = parts.get(source) if parts is not None else None
        auc = {
            f"{name}_auc": torch.nan if part is None else _auc(source, scores, name, part)
            for name in ("gate", "big")
        }
        yield {
            "dataset": source.dataset,
            "target": source.target,
            "method": source.method.label,
            "seed": source.seed,
            "status": str(scores.facts.get("fit_status", "")),
            "restored": float(scores.extras["restored"].mean()),
            "not_restored": float(left.double().mean()),
            "num_graphs": scores.num_graphs,
            **auc,
        }


def _auc(source: Source, scores: Any, name: str, part: Any) -> float:
    """Returns the mean AUC of gates or attributions over graphs, as the rows have it of scores."""
    value = scores.extras.get(f"bond_{name}")
    if value is None:
        return torch.nan
    batch = part.batch(scores.positions)
    bonds = find_bonds(batch.edge_index, batch.batch[batch.edge_index[0]])
    truth = Truth.from_dataset(part, scores.positions)
    chosen = selected_graphs(part.y[scores.positions], None, truth, "paper")
    found = truth_metrics(value, bonds, truth, protocol="paper", seed=source.seed)
    return float(found["roc_auc"][chosen].nanmean())
