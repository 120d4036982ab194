"""A claim, what was found about it, and the verdict that follows.

A claim is a function that reads an `Evidence` and returns a `Finding`, marked by `claim`; the first
sentence of its docstring is the claim. Those of the paper and our own checks are in
``quality_claims``, ``mechanism_claims`` and ``component_claims``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Any

from nicegnn.paper.evidence import Evidence
from nicegnn.paper.numbers import PAPER_DATASETS, PAPER_RESULTS

if TYPE_CHECKING:
    from types import ModuleType

PAPER_RIVALS = tuple(name for name in PAPER_RESULTS["f1"] if name != "nice")


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
class Numbers:
    """The numbers behind a finding, as text in rows and columns."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Finding:
    """What was found about a claim.

    Attributes:
        parts: the claim holds if all do, in part if some do; none say that it was not measured.
        scope: what it was measured on, or why it was not.
        missing: what the claim is also about and nobody measured; as long as there is something, a
            claim holds in part at most.
        numbers: what is behind it.
        sources: (dataset, method) of the rows behind it; empty for studies.
    """

    parts: Sequence[Part] = ()
    scope: str = ""
    missing: str = ""
    numbers: Numbers | None = None
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


Judge = Callable[..., Finding]


@dataclass(frozen=True)
class Claim:
    """A statement of the paper, or a check of our own, and how it is judged.

    Attributes:
        name: anchor on the page.
        statement: one sentence.
        place: where the paper says so.
        judge: computes the finding from an `Evidence`.
        study: whose rows judge it, ``bench`` or the name of a study.
        explainers: that ``bench`` must have run.
        shown: metric and protocol of the results in which to look for its numbers.
        is_ours: whether the paper does not claim it and we ask nevertheless.
    """

    name: str
    statement: str
    place: str
    judge: Judge
    study: str = "bench"
    explainers: Sequence[str] = ("nice", *PAPER_RIVALS)
    shown: tuple[str, str] = ("roc_auc", "paper")
    is_ours: bool = False

    @property
    def command(self) -> str:
        """Computes the rows that judge it."""
        datasets, explainers = ",".join(PAPER_DATASETS), ",".join(self.explainers)
        if self.study != "bench":
            return f"nicegnn experiment {self.study} -d {datasets}"
        return f"nicegnn bench -d {datasets} -e {explainers} -s 0,1,2,3,4"


def claim(
    name: str,
    place: str = "not in the paper",
    statement: str = "",
    given: Mapping[str, Any] | None = None,
    **about: Any,
) -> Callable[[Judge], Judge]:
    """Marks the function that judges a claim; see `Claim` for the arguments.

    Args:
        statement: by default the first sentence of the function's docstring.
        given: arguments of the function, where it judges several claims.
    """

    def mark(judge: Judge) -> Judge:
        said = statement or " ".join((judge.__doc__ or "").partition("\n\n")[0].split())
        made = Claim(name, said, place, partial(judge, **(given or {})), **about)
        vars(judge)["claims"] = (made, *vars(judge).get("claims", ()))
        return judge

    return mark


def all_claims() -> tuple[Claim, ...]:
    """Returns every claim, those of the paper first."""
    from nicegnn.paper import component_claims, mechanism_claims, quality_claims

    modules: tuple[ModuleType, ...] = (quality_claims, mechanism_claims, component_claims)
    judges = [judge for module in modules for judge in vars(module).values() if callable(judge)]
    found = [made for judge in judges for made in getattr(judge, "claims", ())]
    return tuple(sorted(found, key=lambda made: made.is_ours))  # stable


def judge_claims(evidence: Evidence) -> list[tuple[Claim, Finding]]:
    """Returns every claim with what was found about it."""
    return [(made, made.judge(evidence)) for made in all_claims()]
