"""Pictures of explained molecules on one scale, and a page of them that needs nothing from outside.

The page draws the molecules that are on the screen alone, so thousands stay quick to sort and
filter.
"""

from __future__ import annotations

import json
import math
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from markupsafe import Markup

from nicegnn.explain.explanation import Unit
from nicegnn.explain.words import advice_for, trust_words
from nicegnn.molecule.domain import INSIDE, UNKNOWN
from nicegnn.molecule.drawing import draw_graph, legend_lines
from nicegnn.molecule.picture import Picture, Ramp, find_palette, stack
from nicegnn.pretrained.model_file import ModelCard
from nicegnn.screening.explaining import TRUST, bonds_in, ends_in, molecule_of, own_columns
from nicegnn.screening.rendering import render
from nicegnn.store import whole_file

Row = Mapping[str, Any]
_SHOWN = 3  # bonds that are named beside a picture
_CARD = (240, 180)  # pixels of a picture on the page
#: What scores of bonds and atoms are, by their unit.
UNITS: dict[str, str] = {
    "odds": "share of the odds lost without it",
    "value": "how far the value falls without it",
    "own": "score of the method",
}
_SCORES: dict[str, tuple[str, str]] = {  # what legends call scores of bonds and of atoms
    "odds": ("bonds: share of the odds lost", "atoms: share lost (−: gained)"),
    "value": ("bonds: fall of the value (−: rise)", "atoms: fall of the value (−: rise)"),
    "own": ("bond score", "atom score"),
}


@dataclass(frozen=True)
class Scale:
    """The colours of all pictures of a run: a score has the same colour in every molecule."""

    unit: Unit
    bonds: float = 1.0  # score of the full colour
    atoms: float = 1.0

    @classmethod
    def of(cls, rows: Iterable[Row]) -> Scale:
        """Returns the scale of some rows: shares of the odds end at 1, others at the largest."""
        unit: Unit = "odds"
        largest = {"bond_score": 0.0, "atom_score": 0.0}
        for row in rows:
            unit = row["unit"]
            for name, highest in largest.items():
                scores = [abs(float(one)) for one in (() if row.get(name) is None else row[name])]
                largest[name] = max(highest, *scores, 0.0)
        if unit == "odds":
            return cls(unit)
        return cls(unit, *(value or 1.0 for value in largest.values()))

    @property
    def is_signed(self) -> bool:
        """Whether bonds may have scores below zero; atoms always may."""
        return self.unit != "odds"

    def legend(self, width: int, *, with_atoms: bool = True) -> Picture:
        """Returns a bar of colours for bonds, and one for atoms."""
        palette, (bonds, atoms) = find_palette("score"), _SCORES[self.unit]
        ramps = {bonds: Ramp(palette, self.bonds, self.is_signed)}
        if with_atoms:
            ramps[atoms] = Ramp(palette, self.atoms, signed=True)
        return stack(legend_lines(ramps, {}, width), label="scale of colours")


def picture(
    row: Row, scale: Scale, size: tuple[int, int] = (460, 400), *, is_bare: bool = False
) -> Picture:
    """Returns the picture of an explained molecule, its atoms numbered as words number them.

    Args:
        is_bare: without title and legend.
    """
    title = f"{_name(row)}{prediction_words(row)}{_care(row)}"
    return draw_graph(
        ends_in(row),
        row["bond_score"],
        smiles=row["smiles"],
        atom_score=row.get("atom_score"),
        signed=scale.is_signed,
        limit=scale.bonds,
        atom_signed=True,
        atom_limit=scale.atoms,
        title=None if is_bare else title,
        legend=not is_bare,
        background=None if is_bare else "#ffffff",
        size=size,
        names=(*_SCORES[scale.unit], ""),
        numbered=True,
    )


def prediction_words(row: Row) -> str:
    """Returns the prediction with its probability, if it has one; never one of 0 or 100 %."""
    probability = float(row["probability"])
    if math.isnan(probability):
        return str(row["prediction"])
    shown = f"{probability:.0%}" if probability <= 0.995 else "over 99%"
    return f"{row['prediction']} ({shown})"


def trust_of(row: Row) -> str:
    """Returns how far to trust the explanation of a row, in words."""
    numbers = {name: float(row[name]) for name in TRUST}
    return trust_words(numbers, is_class=not math.isnan(float(row["probability"])))


def _name(row: Row) -> str:
    """Returns the id of a molecule, nothing where it is only the number of its row."""
    return "" if str(row["id"]) == str(row["row"]) else f"{row['id']}: "


def _care(row: Row) -> str:
    return "" if row["status"] == "ok" else f" ({row['status']})"


class Gallery:
    """Writes ``gallery.html`` molecule by molecule; the file appears when all is written.

    Args:
        asked: substructures to name on cards and to filter by, with their patterns.
    """

    def __init__(
        self,
        path: Path,
        card: ModelCard,
        scale: Scale,
        most: int,
        asked: Mapping[str, Any] | None = None,
    ) -> None:
        self.path, self.card, self.scale, self.most = path, card, scale, most
        self.asked = dict(asked or {})
        self.num_shown = self.num_all = 0
        self._groups = {name: number for number, name in enumerate(self.asked)}
        self._classes: Counter[str] = Counter()
        self._statuses: Counter[str] = Counter()
        self._lines: IO[str] = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._lines:
            if kind is None and self.most:
                with whole_file(self.path) as part:
                    self._write(part)

    @property
    def is_full(self) -> bool:
        """Whether no more molecules are taken."""
        return self.num_shown >= self.most

    def add(self, row: Row) -> None:
        """Adds a molecule, unless the gallery is full."""
        self.num_all += 1
        if self.is_full:
            return
        self.num_shown += 1
        mol = molecule_of(row)
        bonds = sorted(bonds_in(row, mol), key=lambda bond: int(bond["rank"]))
        has = [name for name, pattern in self.asked.items() if mol.HasSubstructMatch(pattern)]
        has += sorted({bond["groups"] for bond in bonds} - self.asked.keys())
        status = str(row["status"])
        self._statuses.update(status.split(", "))
        if self.card.task != "regression":
            self._classes[str(row["prediction"])] += 1
        probability = float(row["probability"])
        item = {
            "row": row["row"],
            "id": row["id"],
            "smiles": row["smiles"],
            "prediction": row["prediction"],
            "probability": None if math.isnan(probability) else round(probability, 4),
            "status": status,
            "trust": trust_of(row),
            "limits": "" if row["applicability"] in (INSIDE, UNKNOWN) else row["applicability"],
            "own": [f"{name}: {row[name]}" for name in own_columns(row) if row[name]],
            "groups": [self._groups.setdefault(name, len(self._groups)) for name in has],
            "best": [f"{b['name']}: {b['groups']}, {b['score']:.3g}" for b in bonds[:_SHOWN]],
            "drawing": picture(row, self.scale, _CARD, is_bare=True).svg,
        }
        text = json.dumps(item, separators=(",", ":"), ensure_ascii=False).replace("<", "\\u003c")
        self._lines.write(f"{',' if self.num_shown > 1 else ''}\n{text}")

    def _choices(self) -> list[tuple[int, str]]:
        """Returns the substructures to filter by: those asked for, then all others by name."""
        numbered = [(number, name) for name, number in self._groups.items()]
        asked = len(self.asked)
        return numbered[:asked] + sorted(numbered[asked:], key=lambda one: one[1])

    def _write(self, path: Path) -> None:
        card = self.card
        page = render(
            "gallery.html",
            card=card,
            is_regression=card.task == "regression",
            classes=[*self._classes],
            statuses=[*self._statuses],
            advice={one: advice_for(one) for one in self._statuses},
            asked=[*self.asked],
            choices=self._choices(),
            legend=Markup(self.scale.legend(360).svg),
            num_shown=self.num_shown,
            num_all=self.num_all,
            is_full=self.is_full,
            data=Markup("@@molecules@@"),
        )
        head, _, tail = page.partition("@@molecules@@")
        self._lines.seek(0)
        with path.open("w", encoding="utf-8") as file:
            file.write(head)
            file.writelines(self._lines)
            file.write(tail)
