"""A claim, what was found about it, and the verdict that follows.

A claim is a function that reads an `Evidence` and returns a `Finding`, marked by `claim`; the first
sentence of its docstring is the claim. All are in ``quality_claims`` and ``component_claims``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from typing import Any

from nicegnn_lab.paper.evidence import Evidence
from nicegnn_lab.paper.numbers import PAPER_DATASETS, PAPER_RESULTS

PAPER_RIVALS = tuple(name for name in PAPER_RESULTS["f1"] if name != "nice")
#: The paper's method: noise on clean messages, and the other reading, on propagated ones.
READINGS = ("nice-paper", "nice-propagated")


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
    """What was found about a claim."""

    parts: Sequence[Part] = ()  # the claim holds if all do, in part if some do; none: not measured
    scope: str = ""  # what it was measured on, or why it was not
    missing: str = ""  # what nobody measured; if anything, the claim holds in part at most
    numbers: Numbers | None = None
    propagated: Finding | None = None  # the same by the other reading of the paper's method

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

    What the paper says of its method is judged on its method, by both readings of its noise; our
    checks are about our default, or about whatever they name.
    """

    name: str  # anchor on the page
    statement: str  # one sentence
    place: str  # where the paper says so
    judge: Judge  # computes the finding from an `Evidence`
    study: str = "bench"  # whose rows judge it
    explainers: Sequence[str] = (*READINGS, *PAPER_RIVALS)  # that ``bench`` must have run
    shown: tuple[str, str] = ("roc_auc", "paper")  # metric and protocol of its numbers on the page
    is_ours: bool = False  # the paper does not claim it, and we ask nevertheless

    @property
    def command(self) -> str:
        """Computes the rows that judge it."""
        datasets, explainers = ",".join(PAPER_DATASETS), ",".join(self.explainers)
        if self.study != "bench":
            return f"nicegnn lab experiment {self.study} -d {datasets}"
        return f"nicegnn lab bench -d {datasets} -e {explainers} -s 0,1,2,3,4"

    def judged(self, evidence: Evidence) -> Finding:
        """Returns what was found, by both readings where the claim is about the paper's method."""
        if self.is_ours or "method" not in inspect.signature(self.judge).parameters:
            return self.judge(evidence)
        found, other = (self.judge(evidence, method=name) for name in READINGS)
        if other.parts and not found.parts:  # judged by what there is
            missing = "; ".join(("the method with clean messages", other.missing)).strip("; ")
            return replace(other, scope=f"propagated messages, {other.scope}", missing=missing)
        return replace(found, propagated=other)


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
    from nicegnn_lab.paper import component_claims, quality_claims

    judges = [*vars(quality_claims).values(), *vars(component_claims).values()]
    found = [made for judge in judges for made in getattr(judge, "claims", ())]
    return tuple(sorted(found, key=lambda made: made.is_ours))  # stable


def judge_claims(evidence: Evidence) -> list[tuple[Claim, Finding]]:
    """Returns every claim with what was found about it."""
    return [(made, made.judged(evidence)) for made in all_claims()]
