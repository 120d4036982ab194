"""What an explainer noticed about graphs: a flag for each, and advice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntFlag

from torch import Tensor


class Flag(IntFlag):
    """Observations about one graph; `ADVICE` explains each."""

    OK = 0
    NO_EDGES = 1
    INSENSITIVE = 2
    NOT_RESTORED = 4
    ALL_RESTORED = 8
    UNFITTED_CLASS = 16
    LOOK_TWICE = 32
    DO_NOT_USE = 64
    STUDENT = 128
    UNCERTAIN = 256


ADVICE = {
    Flag.NO_EDGES: "The graph has no edges, so there is nothing to score.",
    Flag.INSENSITIVE: (
        "Damaging messages hardly changes the prediction: it does not depend on edges, and "
        "their scores say little. Look at the node features instead."
    ),
    Flag.NOT_RESTORED: (
        "The risk at the boundary is above its target: scores explain only a part of the "
        "prediction. Fit longer, allow a larger risk_target, or lower the penalty."
    ),
    Flag.ALL_RESTORED: (
        "Nearly all edges had to be restored, so the gates give no ranking. Use the attribution, "
        "raise the penalty, or allow a larger risk_target."
    ),
    Flag.UNFITTED_CLASS: (
        "No training graph was explained for this class, so the boundary was optimised on this "
        "graph alone. Fit on graphs of this class for steadier gates."
    ),
    Flag.LOOK_TWICE: (
        "The best bond may be no true one: without it few log-odds are lost, or many bonds lose as "
        "much. Compare with another method or a similar molecule."
    ),
    Flag.DO_NOT_USE: (
        "No bond alone carries the prediction. It may rest on evidence that is there twice, on "
        "whole rings, or on the kinds of atoms."
    ),
    Flag.STUDENT: (
        "The student predicted the scores; nothing was damaged. `bond_stderr` is its error bar."
    ),
    Flag.UNCERTAIN: (
        "The student expects a large error here, or was not taught this class. Explain such graphs "
        "without student=True."
    ),
}


@dataclass(frozen=True)
class Status:
    """How the boundaries of a batch were found, and observations about its graphs."""

    boundary: str  # "amortised" (fitted gates), "per-graph" (on each graph alone) or "none"
    flags: tuple[Flag, ...]  # one per graph
    notes: tuple[str, ...] = ()  # facts about the whole run

    @property
    def ok(self) -> bool:
        """Whether no graph has a flag."""
        return all(flag == Flag.OK for flag in self.flags)

    def noting(self, notes: Sequence[str]) -> Status:
        """Returns the same status with more notes."""
        return replace(self, notes=(*self.notes, *notes))

    def __str__(self) -> str:
        lines = [f"boundary: {self.boundary}, {len(self.flags)} graph(s)", *self.notes]
        for flag, advice in ADVICE.items():
            number = sum(1 for seen in self.flags if flag in seen)
            if number:
                lines.append(f"{number} x {flag.name}: {advice}")
        return "\n".join(lines)


def flags_of(numbers: Tensor) -> tuple[Flag, ...]:
    """Returns flags from sums of them, ``[B]``."""
    values = numbers.tolist()
    flag_of = {value: Flag(value) for value in set(values)}  # an enum is slow to make
    return tuple(flag_of[value] for value in values)
