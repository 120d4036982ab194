"""What rows call a method: names, groups, order, and what the paper reports of it."""

from dataclasses import dataclass

import pandas as pd

from nicegnn_lab.paper.numbers import PAPER_DATASETS, paper_value
from nicegnn_lab.rivals import EXPLAINERS

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
        return self.mechanism == own_mechanism(self.explainer, self.mechanism)

    @property
    def label(self) -> str:
        """Name for tables: ``pgexplainer``, or ``pgexplainer+nc`` for another mechanism."""
        return self.explainer if self.is_as_published else f"{self.explainer}+{self.mechanism}"

    @property
    def group(self) -> str:
        """One of `GROUPS`; unlisted explainers count as rivals, those of ours as variants."""
        entry = EXPLAINERS.get(self.explainer)
        if entry is not None:
            return entry.group
        return "variant" if self.explainer.startswith("nice") else "rival"

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
        value = paper_value(metric, name, dataset)
        return None if value is None else value[0]


OURS = Method("nice", "exchange")


def own_mechanism(explainer: str, otherwise: str = "") -> str:
    """Returns the mechanism that an explainer was published with, empty if it has none."""
    entry = EXPLAINERS.get(explainer)
    if entry is None:
        return otherwise
    return entry.mechanisms[0] if entry.mechanisms else ""


def methods_in(rows: pd.DataFrame, *, variants: bool = False) -> list[Method]:
    """Returns the methods that rows hold, group by group.

    With `variants` also explainers with a mechanism that is not their own.
    """
    pairs = rows[["explainer", "mechanism"]].drop_duplicates().itertuples(index=False)
    there = {Method(str(explainer), str(mechanism)) for explainer, mechanism in pairs}
    places = list(EXPLAINERS)

    def place(method: Method) -> tuple[int, int, str, bool, str]:
        name, is_variant = method.explainer, not method.is_as_published
        position = places.index(name) if name in places else len(places)
        return GROUPS.index(method.group), position, name, is_variant, method.mechanism

    return sorted((m for m in there if variants or m.is_as_published), key=place)


def datasets_in(rows: pd.DataFrame) -> list[str]:
    """Returns the datasets that rows hold, those of the paper first and in its order."""
    names = {str(name) for name in rows["dataset"].unique()}
    return [name for name in PAPER_DATASETS if name in names] + sorted(names - set(PAPER_DATASETS))
