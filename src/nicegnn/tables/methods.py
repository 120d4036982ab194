"""What the rows of a benchmark call a method: names, groups, order, and what the paper reports."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nicegnn.bench.summary import summarise
from nicegnn.datasets.dataset import STAND_IN
from nicegnn.datasets.errors import MissingDataError
from nicegnn.datasets.files import find_files
from nicegnn.datasets.folders import data_folder
from nicegnn.datasets.registry import DATASETS, FAMILIES
from nicegnn.errors import StoreError
from nicegnn.paper.numbers import PAPER_DATASETS, paper_value
from nicegnn.rivals.registry import EXPLAINERS, find_entry

if TYPE_CHECKING:
    import pandas as pd

#: Groups in the order of tables; the last two are listed apart and never ranked.
GROUPS = ("rival", "ours", "supervised", "reference")
RANKED = ("rival", "ours")
MISSING = "-"  # in tables


@dataclass(frozen=True)
class Cell:
    """Mean and deviation over seeds of one method on one dataset, as shares."""

    mean: float
    std: float
    num_seeds: int
    num_graphs: int


@dataclass(frozen=True)
class Method:
    """An explainer with a mechanism, as it stands in rows of results."""

    explainer: str
    mechanism: str

    @property
    def is_as_published(self) -> bool:
        """Whether the mechanism is the explainer's own."""
        return self.mechanism == own_mechanism(self.explainer, self.mechanism)

    @property
    def label(self) -> str:
        """Name for tables: ``pgexplainer``, or ``pgexplainer+nc`` for another mechanism."""
        return self.explainer if self.is_as_published else f"{self.explainer}+{self.mechanism}"

    @property
    def group(self) -> str:
        """One of `GROUPS`; explainers that are not listed count as rivals."""
        entry = EXPLAINERS.get(self.explainer)
        return "rival" if entry is None else entry.group

    @property
    def is_ranked(self) -> bool:
        return self.group in RANKED

    def paper(self, metric: str, dataset: str) -> float | None:
        """Returns the mean that the paper reports, in percent, if it does.

        ``nice-paper`` is the paper's NICE, and ``nice`` is to be compared with it as well.
        """
        if not self.is_as_published:
            return None
        found = paper_value(metric, self.explainer.removesuffix("-paper"), dataset)
        return None if found is None else found[0]


def own_mechanism(explainer: str, otherwise: str = "") -> str:
    """Returns the mechanism that an explainer was published with, empty if it has none."""
    entry = EXPLAINERS.get(explainer)
    if entry is None:
        return otherwise
    return entry.mechanisms[0] if entry.mechanisms else ""


def methods_in(
    rows: pd.DataFrame, names: Sequence[str] | None = None, *, variants: bool = False
) -> list[Method]:
    """Returns the methods that rows hold, group by group.

    Args:
        names: only these, in this order, ``pgexplainer`` or ``pgexplainer+nc``.
        variants: also explainers with a mechanism that is not their own.
    """
    pairs = rows[["explainer", "mechanism"]].drop_duplicates().itertuples(index=False)
    found = {Method(str(explainer), str(mechanism)) for explainer, mechanism in pairs}
    if names is not None:
        wanted = [_named(name) for name in names]
        return [method for method in wanted if method in found]
    places = list(EXPLAINERS)

    def place(method: Method) -> tuple[int, int, str, bool, str]:
        known = method.explainer in places
        position = places.index(method.explainer) if known else len(places)
        is_variant = not method.is_as_published
        return (
            GROUPS.index(method.group),
            position,
            method.explainer,
            is_variant,
            method.mechanism,
        )

    return sorted((m for m in found if variants or m.is_as_published), key=place)


def rows_by(rows: pd.DataFrame, method: Method) -> pd.DataFrame:
    """Returns the rows of one method."""
    is_it = (rows["explainer"] == method.explainer) & (rows["mechanism"] == method.mechanism)
    return rows[is_it]


def datasets_in(rows: pd.DataFrame) -> list[str]:
    """Returns the datasets that rows hold, those of the paper first and in its order."""
    found = {str(name) for name in rows["dataset"].unique()}
    return [name for name in PAPER_DATASETS if name in found] + sorted(found - set(PAPER_DATASETS))


def rows_of(
    rows: pd.DataFrame, metric: str, *, protocol: str | None = None, target: str = "gin"
) -> pd.DataFrame:
    """Returns the rows of one metric, or says which there are.

    Args:
        protocol: protocol of the metric, or removal for fidelity; none for any.
    """
    chosen = rows[(rows["metric"] == metric) & (rows["target"] == target)]
    if protocol is not None:
        chosen = chosen[chosen["protocol"] == protocol]
    if chosen.empty:
        known = {name: sorted(map(str, rows[name].unique())) for name in ("protocol", "target")}
        raise StoreError(
            f"The rows hold no {metric!r} of protocol {protocol!r} and target {target!r}; they "
            f"have protocols {known['protocol']} and targets {known['target']}."
        )
    return chosen


def cells_of(chosen: pd.DataFrame) -> dict[tuple[Method, str], Cell]:
    """Returns mean and deviation by method and dataset from rows of one metric and protocol."""
    return {
        (Method(str(row.explainer), str(row.mechanism)), str(row.dataset)): Cell(
            float(row.mean), float(row.std), int(row.num_seeds), int(row.num_graphs)
        )
        for row in summarise(chosen, num_resamples=0).itertuples(index=False)
    }


def stand_ins(datasets: Collection[str]) -> frozenset[str]:
    """Returns those datasets whose molecules are not the benchmark's own.

    Where the data folder holds no files of a dataset, one that can be a stand-in counts as one.
    """
    found = set()
    for name in datasets:
        if name not in DATASETS:
            continue
        family = FAMILIES[DATASETS[name].family]
        try:
            is_stand_in = find_files(family, data_folder()).layout.is_stand_in
        except MissingDataError:
            is_stand_in = any(layout.is_stand_in for layout in family.layouts)
        if is_stand_in:
            found.add(name)
    return frozenset(found)


def dataset_title(dataset: str, marked: Collection[str]) -> str:
    """Returns a dataset's name for a heading; `marked` ones are called stand-ins."""
    return f"{dataset} (stand-in)" if dataset in marked else dataset


def stand_in_note(datasets: Collection[str], marked: Collection[str]) -> list[str]:
    """Returns the sentence that explains the mark, if there is anything marked."""
    if not set(datasets) & set(marked):
        return []
    return [
        f"Datasets called stand-in are a {STAND_IN}: other molecules under the same rules, so the "
        "paper's values are no exact counterpart."
    ]


def _named(name: str) -> Method:
    plain, _, mechanism = name.partition("+")
    find_entry(plain)  # says which names there are
    return Method(plain, mechanism or own_mechanism(plain))
