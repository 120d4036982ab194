"""Answers about molecules: the types that the page, HTTP and assistants share."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, Field, create_model

from nicegnn.explain.words import advice_for
from nicegnn.molecule.drawing import Picture
from nicegnn.pretrained.model_file import ModelCard
from nicegnn.screening.gallery import limits_of, picture, scale_key, scale_of, trust_of
from nicegnn.screening.tables import NOTES, OUTPUTS, SCHEMAS, Row, atoms_in, bonds_in


def _six_digits(value: float | None) -> float | None:
    return float(f"{value:.6g}") if value is not None and math.isfinite(value) else None


Number = Annotated[float | None, BeforeValidator(_six_digits)]  # nothing for nan


class Model(BaseModel):
    """A model that can be asked."""

    name: str
    question: str = Field(description="What the model predicts.")
    about: str = Field(description="The question, and how good the model is on held-out molecules.")
    note: str = Field(description="What else a reader must know.")
    task: str = Field(description="classification, binary or regression.")
    classes: list[str]
    unit: str = Field(description="Unit of a regression's value.")
    featurizer: str
    family: str = Field(description="The same for outputs of the same models; else nothing.")


def _cells(name: str, table: str) -> Any:
    """Returns the type of a bond or atom: the columns of its table."""
    fields: dict[str, Any] = {
        key: (Number if kind is float else kind, ...)
        for key, kind in SCHEMAS[table].items()
        if key not in ("row", "id")
    }
    return create_model(name, **fields)


Bond, Atom = _cells("Bond", "bonds"), _cells("Atom", "atoms")


class Explained(BaseModel):
    """What a model predicts for a molecule, and what the prediction rests on."""

    name: str
    smiles: str
    model: str
    question: str
    task: str
    prediction: str = Field(description="Name of the predicted class, or the value.")
    probability: Number = Field(description="Of the predicted class.")
    probabilities: dict[str, Number] = Field(description="Of all classes.")
    value: Number = Field(description="Of a regression.")
    unit: str = Field(description="Unit of the value.")
    similarity: Number = Field(description="To the nearest training molecule, if known.")
    applicability: str = Field(description="ok, not known, or why the model may not fit.")
    verdict: str = Field(description="rely on it, look twice, do not use, or not checked.")
    chance: Number = Field(description="That the best bond is a true one.")
    words: str = Field(description="The verdict in words.")
    advice: list[str]
    notes: list[str] = Field(description="Facts about this answer that a reader must know.")
    score_unit: str = Field(description="odds: a share of the odds; value: of the value; or own.")
    bonds: list[Bond] = Field(description="The best first.")  # type: ignore[valid-type]
    atoms: list[Atom]  # type: ignore[valid-type]


class Drawn(Explained):
    """The same with a picture."""

    svg: str
    limit: float = Field(description="Score that has the full colour.")
    points: list[tuple[float, float]] = Field(description="Place of each atom in the picture.")


class Comparison(BaseModel):
    """Two answers side by side: two molecules, or two models."""

    first: Explained
    second: Explained
    change: float | None = Field(description="Of the first's class or value; none for two models.")
    words: str


class Change(BaseModel):
    """A molecule in which one atom was changed, and what is predicted then."""

    what: str
    smiles: str
    prediction: str
    probability: Number
    value: Number
    change: float = Field(description="Of the class that was predicted before, or of the value.")


@dataclass(frozen=True)
class Case:
    """A molecule that was explained, or has a reason why it could not be."""

    model: str  # name on the shelf
    card: ModelCard
    row: Row  # of a run, see `tables.ROW`

    @property
    def is_class(self) -> bool:
        return self.card.task != "regression"

    @property
    def outputs(self) -> list[float]:  # probabilities of all classes, or the value
        return list(self.row[OUTPUTS])

    @property
    def predicted(self) -> int:
        """The number of the predicted class; 0 for a value."""
        return self.outputs.index(max(self.outputs)) if self.is_class else 0

    @property
    def title(self) -> str:
        chance = f", {percent(self.row['probability'])}" if self.is_class else ""
        return f"{self.row['prediction']}{chance or ' ' + self.card.unit}".rstrip()

    def drawing(self) -> Picture:
        return picture(self.row, scale_of([self.row]), (640, 480))

    def drawn(self, limit: float | None = None) -> Drawn:
        """Returns the answer with a picture, whose full colour stands for ``limit``."""
        key = scale_key(self.row)
        limit = limit or scale_of([self.row])[key]
        shown = picture(self.row, {key: limit}, (560, 400), is_bare=True)
        points = [(round(x, 1), round(y, 1)) for x, y in shown.points]
        return Drawn(**dict(self.explained()), svg=shown.svg, limit=limit, points=points)

    def explained(self) -> Explained:
        """Returns the answer without a picture."""
        row, card, far = self.row, self.card, limits_of(self.row)
        notes = [f"About the model: {card.doubt}"] if card.doubt else []
        notes += [f"The model may not fit this molecule: {far}."] if far else []
        chances = self.outputs if self.is_class else []
        told: dict[str, Any] = {
            "name": row["id"],
            "model": self.model,
            "question": card.question or card.name,
            "task": card.task,
            "probabilities": {card.class_name(n): chance for n, chance in enumerate(chances)},
            "value": None if chances else self.outputs[0],
            "unit": card.unit,
            "verdict": row["verdict"] if row["bond_score"] else "not checked",
            "words": trust_of(row, card) or "How far to trust these scores was not checked.",
            "advice": [said for one in row["status"].split(", ") if (said := advice_for(one))],
            "notes": notes + row[NOTES],
            "score_unit": row["unit"],
            "bonds": sorted(bonds_in(row), key=lambda bond: int(bond["rank"])),
            "atoms": list(atoms_in(row)),
        }
        return Explained(**row | told)


def compare(first: Case, second: Case) -> Comparison:
    """Returns two answers and what differs between them, in words."""
    change, words = None, f"{first.model}: {first.title}; {second.model}: {second.title}."
    if first.model == second.model:
        before, after = (one.outputs[first.predicted] for one in (first, second))
        change = after - before
        name, start, end = "The value", first.title, second.title
        if first.is_class:
            name, start, end = f"“{first.row['prediction']}”", percent(before), percent(after)
        verb = "rises" if change > 0 else "falls"
        words = f"{name} stays at {start}."
        if start != end:
            words = f"{name} {verb} from {start} to {end}."
    both = {"first": first.explained(), "second": second.explained()}
    return Comparison(**both, change=change, words=words)


def percent(share: float) -> str:
    """Returns a share in per cent, never 0 or 100.

    >>> percent(0.714), percent(0.9999), percent(1e-9)
    ('71 %', '> 99 %', '< 1 %')
    """
    return "> 99 %" if share > 0.995 else "< 1 %" if share < 0.005 else f"{100 * share:.0f} %"
