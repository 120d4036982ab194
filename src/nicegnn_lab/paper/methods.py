"""What rows call a method: names, groups, order, and what the paper reports of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nicegnn_lab.paper.numbers import PAPER_DATASETS, paper_value
from nicegnn_lab.rivals import EXPLAINERS, find_entry

if TYPE_CHECKING:
    import pandas as pd

#: Groups in the order of tables; the last three are listed apart and never ranked.
GROUPS = ("rival", "ours", "variant", "supervised", "reference")
RANKED = ("rival", "ours")


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

        Every reading and variant of NICE is compared with the paper's NICE.
        """
        if not self.is_as_published:
            return None
        name = "nice" if self.explainer.startswith("nice") else self.explainer
        found = paper_value(metric, name, dataset)
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
        wanted = [named_method(name) for name in names]
        return [method for method in wanted if method in found]
    places = list(EXPLAINERS)

    def place(method: Method) -> tuple[int, int, str, bool, str]:
        name, is_variant = method.explainer, not method.is_as_published
        position = places.index(name) if name in places else len(places)
        return GROUPS.index(method.group), position, name, is_variant, method.mechanism

    return sorted((m for m in found if variants or m.is_as_published), key=place)


def datasets_in(rows: pd.DataFrame) -> list[str]:
    """Returns the datasets that rows hold, those of the paper first and in its order."""
    found = {str(name) for name in rows["dataset"].unique()}
    return [name for name in PAPER_DATASETS if name in found] + sorted(found - set(PAPER_DATASETS))


def named_method(name: str) -> Method:
    """Returns the method of a name, ``pgexplainer`` or ``pgexplainer+nc``.

    Example:
        >>> named_method("pgexplainer+nc").mechanism
        'nc'
    """
    plain, _, mechanism = name.partition("+")
    find_entry(plain)  # says which names there are
    return Method(plain, mechanism or own_mechanism(plain))
