"""What an explainer noticed about graphs, and how far to trust their best bonds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntFlag
from typing import Literal

import torch
from torch import Tensor

from nicegnn.boundary.srb import RISK_FLOOR
from nicegnn.intervention.query import Query
from nicegnn.target.losses import log_odds

Verdict = Literal["rely on it", "look twice", "do not use", "not checked"]

#: Coefficients of `chance_of`: constant, log(1 + largest loss), share. Fitted on the open half of
#: the wide bench and the eight benchmarks; docs/trust.md shows how well they foretell the rest.
COEFFICIENTS = (-1.12, 1.26, 8.05)
RELY, LOOK = 0.9, 0.6  # lowest chances of "rely on it" and of "look twice"
UNMOVED = 0.02  # nats of log-odds, or units of a value; less is no change
MUCH_LEFT, NEARLY_ALL = 0.1, 0.97  # share of the risk, and of the edges, at a fitted boundary


class Flag(IntFlag):
    """Observations about one graph; `ADVICE` explains each."""

    OK = 0
    NO_EDGES = 1
    INSENSITIVE = 2
    NOT_RESTORED = 4
    ALL_RESTORED = 8
    LOOK_TWICE = 32
    DO_NOT_USE = 64
    STUDENT = 128
    UNCERTAIN = 256


ADVICE = {
    Flag.NO_EDGES: "The graph has no edges, so there is nothing to score.",
    Flag.INSENSITIVE: "Damaging messages hardly changes the prediction: it does not depend on "
    "edges, and their scores say little. Look at the node features instead.",
    Flag.NOT_RESTORED: "The risk at the boundary is above a tenth of that at full corruption: "
    "scores explain only a part of the prediction. Fit longer, or lower the penalty.",
    Flag.ALL_RESTORED: "Nearly all edges had to be restored, so the gates give no ranking. Use the "
    "attribution, or raise the penalty.",
    Flag.LOOK_TWICE: "The best bond may be no true one: without it few log-odds are lost, or many "
    "bonds lose as much. Compare with another method or a similar molecule.",
    Flag.DO_NOT_USE: "No bond alone carries the prediction. It may rest on evidence that is there "
    "twice, on whole rings, or on the kinds of atoms.",
    Flag.STUDENT: "The student predicted the scores; nothing was damaged. `bond_stderr` is its "
    "error bar.",
    Flag.UNCERTAIN: "The student expects a large error here, or was not taught this class. Explain "
    "such graphs without student=True.",
}


@dataclass(frozen=True)
class Status:
    """Observations about the graphs of a batch."""

    flags: tuple[Flag, ...]  # one per graph
    notes: tuple[str, ...] = ()  # facts about the whole run

    @property
    def counts(self) -> dict[Flag, int]:
        """How many graphs have each flag, of those that some graph has."""
        numbers = {flag: sum(flag in seen for seen in self.flags) for flag in ADVICE}
        return {flag: number for flag, number in numbers.items() if number}

    def noting(self, notes: Sequence[str]) -> Status:
        """Returns the same status with more notes."""
        return replace(self, notes=(*self.notes, *notes))

    def __getitem__(self, graphs: slice) -> Status:
        return replace(self, flags=self.flags[graphs])

    @staticmethod
    def join(parts: Sequence[Status]) -> Status:
        """Joins the flags of several batches; no note is repeated."""
        flags = tuple(flag for part in parts for flag in part.flags)
        return Status(flags, tuple(dict.fromkeys(note for part in parts for note in part.notes)))

    def __str__(self) -> str:
        lines = [f"{len(self.flags)} graph(s)", *self.notes]
        lines += [f"{number} x {flag.name}: {ADVICE[flag]}" for flag, number in self.counts.items()]
        return "\n".join(lines)


def flags_of(numbers: Tensor) -> tuple[Flag, ...]:
    """Returns flags from sums of them, ``[B]``."""
    values = numbers.tolist()
    flag_of = {value: Flag(value) for value in set(values)}  # an enum is slow to make
    return tuple(flag_of[value] for value in values)


@dataclass(frozen=True)
class Trust:
    """How far to trust the explanation of each graph, ``[B]`` each; nan where it has no meaning."""

    largest: Tensor  # loss without the best bond: log-odds, or units of the value
    share: Tensor  # of it in the sum of the losses of all bonds
    chance: Tensor  # that the best bond is a true one; nan where this was not checked
    log_odds: Tensor  # of the explained class, nan for values

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        """What to do with each explanation, ``[B]``."""
        return tuple(verdict_of(chance) for chance in self.chance.tolist())

    @property
    def flag_numbers(self) -> Tensor:
        """What the numbers warn of as sums of flags, ``[B]``; nan warns of nothing."""
        is_unmoved = self.largest < UNMOVED
        return (
            Flag.INSENSITIVE * is_unmoved
            + Flag.LOOK_TWICE * ((self.chance < RELY) & (self.chance >= LOOK) & ~is_unmoved)
            + Flag.DO_NOT_USE * ((self.chance < LOOK) & ~is_unmoved)
        )

    def __getitem__(self, graphs: slice) -> Trust:
        return Trust(**{name: value[graphs] for name, value in vars(self).items()})

    @staticmethod
    def join(parts: Sequence[Trust]) -> Trust:
        """Joins the numbers of several batches."""
        return Trust(*map(torch.cat, zip(*(vars(part).values() for part in parts), strict=True)))


def boundary_flags(corrupted: Tensor, boundary: Tensor, restored: Tensor) -> Tensor:
    """Returns sums of flags by risks and restored share at a fitted boundary, ``[B]`` each."""
    return (
        Flag.INSENSITIVE * (corrupted < RISK_FLOOR)
        + Flag.NOT_RESTORED * (boundary > MUCH_LEFT * corrupted.clamp(min=RISK_FLOOR))
        + Flag.ALL_RESTORED * (restored > NEARLY_ALL)
    )


def verdict_of(chance: float) -> Verdict:
    """Returns what to do with an explanation whose best bond has this chance to be a true one.

    >>> verdict_of(0.97), verdict_of(0.7), verdict_of(0.2), verdict_of(float("nan"))
    ('rely on it', 'look twice', 'do not use', 'not checked')
    """
    if chance != chance:
        return "not checked"
    return "rely on it" if chance >= RELY else "look twice" if chance >= LOOK else "do not use"


@torch.no_grad()
def judge_scores(query: Query, loss: Tensor, *, is_checked: bool) -> Trust:
    r"""Returns how far to trust the losses of the bonds of a batch, ``[M]``.

    .. math:: P(\text{best bond is true}) = \sigma\big(a + b \log(1 + s_{max}) + c\, p\big), \qquad
        p = s_{max} / \textstyle\sum_e s_e

    Symbols: :math:`s_e` -> ``loss``; :math:`a, b, c` -> `COEFFICIENTS`. This was checked for
    classes of whole graphs, under exchange with a background: else there is no chance.
    """
    target, case = query.target, query.case
    chance = odds = torch.full_like(query.clean[:, 0], torch.nan)
    if target.mode != "regression":
        odds = log_odds(query.clean.unsqueeze(0), query.explained)[0]
    size = torch.where(case.reached, loss.abs(), 0.0)
    largest = odds.new_zeros(case.num_graphs).scatter_reduce(0, case.bonds.batch, size, "amax")
    total = odds.new_zeros(case.num_graphs).index_add(0, case.bonds.batch, size)
    share = torch.where(total > 0, largest / total, torch.nan)
    is_there = torch.bincount(case.bonds.batch[case.reached], minlength=case.num_graphs) > 0
    largest = torch.where(is_there, largest, torch.nan)  # so is the chance
    if is_checked:
        chance = chance_of(largest, share.nan_to_num(0.0))
    return Trust(largest, share, chance, odds)


def chance_of(largest: Tensor, share: Tensor) -> Tensor:
    """Returns the chance of `judge_scores`, ``[B]``."""
    constant, of_size, of_share = COEFFICIENTS
    return (constant + of_size * torch.log1p(largest) + of_share * share).sigmoid()
