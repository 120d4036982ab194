"""A claim, what was found about it, and the verdict that follows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from nicegnn.report.evidence import Evidence
from nicegnn.tables.table import Table


class Verdict(StrEnum):
    """What the measurements say about a claim."""

    HOLDS = "holds"
    PARTLY = "holds in part"
    FAILS = "does not hold"
    MISSING = "not measured"


@dataclass(frozen=True)
class Part:
    """One statement that is true or false of the numbers in it."""

    text: str
    holds: bool


@dataclass(frozen=True)
class Finding:
    """What was found about a claim.

    Attributes:
        parts: the claim holds if all do, in part if some do; none say that it was not measured.
        scope: what it was measured on, or why it was not.
        missing: what the claim is also about and nobody measured; as long as there is something, a
            claim holds in part at most.
        table: the numbers behind it.
        sources: (dataset, method) of the rows behind it; empty for experiments.
    """

    parts: Sequence[Part] = ()
    scope: str = ""
    missing: str = ""
    table: Table | None = None
    sources: frozenset[tuple[str, str]] = frozenset()

    @property
    def verdict(self) -> Verdict:
        """Follows from the parts, and from what is missing."""
        holding = sum(part.holds for part in self.parts)
        if not self.parts:
            return Verdict.MISSING
        if holding == len(self.parts) and not self.missing:
            return Verdict.HOLDS
        return Verdict.PARTLY if holding else Verdict.FAILS


@dataclass(frozen=True)
class Claim:
    """A statement of the paper, or a check of our own, and how it is judged.

    Attributes:
        name: anchor on the page.
        statement: one sentence.
        place: where the paper says so.
        judge: computes the finding.
        command: makes the numbers that are missing.
        shown: where to look: ``metric/protocol`` of the results, or the name of an experiment.
        is_ours: whether the paper does not claim it and we ask nevertheless.
    """

    name: str
    statement: str
    place: str
    judge: Callable[[Evidence], Finding]
    command: str
    shown: str = ""
    is_ours: bool = False
