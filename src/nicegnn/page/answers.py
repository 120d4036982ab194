"""Answers about molecules: the types that the page, HTTP and assistants share."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from pydantic import BaseModel, Field

from nicegnn.explain.explanation import Explanation
from nicegnn.explain.status import ADVICE
from nicegnn.molecule.domain import Nearness
from nicegnn.molecule.drawing import Panel, draw_panels
from nicegnn.molecule.picture import Picture
from nicegnn.molecule.smiles import matched_molecule
from nicegnn.page.asking import Shelf
from nicegnn.pretrained import Pretrained
from nicegnn.pretrained.model_file import ModelCard
from nicegnn.screening.explaining import atoms_in, bonds_in, row_of
from nicegnn.screening.gallery import trust_of
from nicegnn.screening.reading import Record

if TYPE_CHECKING:
    from rdkit.Chem import Mol

SIZE = (560, 400)  # of the picture on the page
THUMBNAIL = (230, 160)  # of a picture in a table


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


class Bond(BaseModel):
    """A bond with its numbers; losses are in log-odds, or in the unit of the value."""

    bond: int
    atom_a: int
    atom_b: int
    name: str = Field(description="Elements and numbers of its atoms.")
    type: str
    where: str = Field(description="What a chemist calls the place.")
    score: float = Field(description="Share of the odds that is lost without it, or the loss.")
    loss: float | None
    stderr: float | None
    rank: int = Field(description="1 for the best bond; equal ones share a rank.")


class Atom(BaseModel):
    """An atom with its numbers; a negative score means that the prediction gains without it."""

    atom: int
    element: str
    score: float | None
    loss: float | None
    stderr: float | None
    rank: int | None


class Explained(BaseModel):
    """What a model predicts for a molecule, and what the prediction rests on."""

    name: str
    smiles: str
    model: str
    question: str
    task: str
    prediction: str = Field(description="Name of the predicted class, or the value.")
    probability: float | None = Field(description="Of the predicted class.")
    probabilities: dict[str, float] = Field(description="Of all classes.")
    value: float | None = Field(description="Of a regression.")
    unit: str = Field(description="Unit of the value.")
    similarity: float | None = Field(description="To the nearest training molecule, if known.")
    applicability: str = Field(description="ok, not known, or why the model may not fit.")
    verdict: str = Field(description="rely on it, look twice, do not use, or not checked.")
    chance: float | None = Field(description="That the best bond is a true one.")
    words: str = Field(description="The verdict in words.")
    advice: list[str]
    notes: list[str] = Field(description="Facts about this answer that a reader must know.")
    score_unit: str = Field(description="odds: a share of the odds; value: of the value; or own.")
    bonds: list[Bond] = Field(description="The best first.")
    atoms: list[Atom]


class Drawn(Explained):
    """The same with a picture."""

    svg: str
    width: int
    height: int
    limit: float = Field(description="Score that has the full colour.")
    points: list[tuple[float, float]] = Field(description="Place of each atom in the picture.")


class Comparison(BaseModel):
    """Two answers side by side: two molecules, or two models."""

    first: Explained
    second: Explained
    change: float | None = Field(
        description="Of the probability of the first's class, or of the value, from first to "
        "second; none for two models."
    )
    words: str


class Change(BaseModel):
    """A molecule in which one atom was changed, and what is predicted then."""

    what: str
    smiles: str
    prediction: str
    probability: float | None
    value: float | None
    change: float = Field(
        description="Of the probability of the class that was predicted before, or of the value."
    )


class Row(BaseModel):
    """A molecule of a file; ``error`` says why it has no answer."""

    row: int
    id: str
    smiles: str
    values: dict[str, str] = Field(description="The other columns of the file.")
    error: str = ""
    prediction: str = ""
    probability: float | None = None
    value: float | None = None
    similarity: float | None = None
    applicability: str = ""
    verdict: str = ""
    best_bond: str = ""
    notes: list[str] = []
    svg: str = ""


@dataclass(frozen=True)
class Case:
    """A molecule that was explained."""

    record: Record
    model: str  # name on the shelf
    card: ModelCard
    mol: Mol
    out: Explanation
    cells: dict[str, Any]  # the row of a run, see `explaining.ROW`

    def explained(self) -> Explained:
        """Returns the answer without a picture."""
        return Explained(**self._fields())

    def drawn(self, limit: float | None = None) -> Drawn:
        """Returns the answer with a picture, whose full colour stands for ``limit``."""
        picture = self.picture(SIZE, limit)
        return Drawn(
            **self._fields(),
            svg=picture.svg,
            width=SIZE[0],
            height=SIZE[1],
            limit=limit or self.limit,
            points=[(round(x, 1), round(y, 1)) for x, y in picture.points],
        )

    @property
    def limit(self) -> float:
        """The score that has the full colour: the whole odds, else the largest."""
        if self.out.unit == "odds":
            return 1.0
        values = [self.out.bond_score, self.out.atom_score]
        sizes = [float(one.abs().max()) for one in values if one is not None and one.numel()]
        return max(sizes, default=0.0) or 1.0

    def picture(self, size: tuple[int, int], limit: float | None = None) -> Picture:
        """Returns the molecule in colours, without title and legend."""
        panel = Panel(
            self.out.bond_index,
            self.out.bond_score,
            self.out.atom_score,
            smiles=self.record.smiles,
            num_nodes=int(self.out.ptr[-1]),
            numbered=True,
        )
        return draw_panels([panel], size=size, signed=True, limit=limit or self.limit)

    @property
    def title(self) -> str:
        """The prediction in words."""
        said, probability, _ = self.prediction()
        if probability is None:
            unit = f" {self.card.unit}" if self.card.unit else ""
            return f"{said}{unit}"
        return f"{said}, {percent(probability)}"

    def prediction(self) -> tuple[str, float | None, float | None]:
        """Returns the predicted class or value in words, its probability, its value."""
        row = self.out.prediction[0]
        if self.card.task == "regression":
            return f"{float(row[0]):.4g}", None, _number(row[0])
        best = int(row.argmax())
        return self.card.class_name(best), _number(row[best].exp()), None

    def of_class(self, number: int) -> float:
        """Returns the probability of a class, or the value of a regression."""
        row = self.out.prediction[0].double()
        return float(row[0] if self.card.task == "regression" else row[number].exp())

    def row(self) -> Row:
        """Returns the molecule as a row of a table."""
        said, probability, value = self.prediction()
        bonds = bonds_in(self.cells, self.mol)
        best = min(bonds, key=lambda bond: int(bond["rank"]), default=None)
        return Row(
            row=self.record.row,
            id=self.record.id,
            smiles=self.record.smiles,
            values=dict(self.record.values),
            prediction=said,
            probability=probability,
            value=value,
            similarity=_number(self.cells["similarity"]),
            applicability=self.cells["applicability"],
            verdict=self.verdict,
            best_bond="" if best is None else f"{best['name']} ({best['groups']})",
            notes=self.notes,
            svg=self.picture(THUMBNAIL).svg,
        )

    def _fields(self) -> dict[str, Any]:
        said, probability, value = self.prediction()
        flags = self.out.status.flags[0]
        classes = self.out.prediction[0].exp().tolist() if value is None else []
        bonds = sorted(bonds_in(self.cells, self.mol), key=lambda bond: int(bond["rank"]))
        return {
            "name": self.record.id,
            "smiles": self.record.smiles,
            "model": self.model,
            "question": self.card.question or self.card.name,
            "task": self.card.task,
            "prediction": said,
            "probability": probability,
            "probabilities": {self.card.class_name(n): _number(p) for n, p in enumerate(classes)},
            "value": value,
            "unit": self.card.unit,
            "similarity": _number(self.cells["similarity"]),
            "applicability": self.cells["applicability"],
            "verdict": self.verdict,
            "chance": _number(self.cells["chance"]),
            "words": trust_of(self.cells) or "How far to trust these scores was not checked.",
            "advice": [text for flag, text in ADVICE.items() if flag in flags],
            "notes": self.notes,
            "score_unit": self.out.unit,
            "bonds": [Bond(**{**_plain(one), "where": one["groups"]}) for one in bonds],
            "atoms": [Atom(**_plain(one)) for one in atoms_in(self.cells, self.mol)],
        }

    @property
    def verdict(self) -> str:
        """What to do with the explanation; nothing was checked where there are no bonds."""
        return str(self.cells["verdict"]) if self.out.bond_score.numel() else "not checked"

    @property
    def notes(self) -> list[str]:
        """What a reader must know beside the answer, the limits of the model first."""
        near = Nearness(self.cells["similarity"], self.cells["applicability"])
        far = [f"The model may not fit this molecule: {near.words}."] if near.is_far else []
        doubt = [f"About the model: {self.card.doubt}"] if self.card.doubt else []
        return [*doubt, *far, *self.out.status.notes]


def _plain(cells: Mapping[str, Any]) -> dict[str, Any]:
    """Returns cells with numbers of six digits, and None for those that are not there."""
    return {k: _number(v) if isinstance(v, float) else v for k, v in cells.items()}


def make_case(record: Record, model: str, subject: Pretrained, out: Explanation) -> Case:
    """Returns the case of an explanation of one molecule."""
    mol = matched_molecule(record.smiles, out.bond_index, int(out.ptr[-1]))
    return Case(record, model, subject.card, mol, out, row_of(record, out, subject))


def compare(first: Case, second: Case) -> Comparison:
    """Returns two answers and what differs between them, in words."""
    said = f"{first.title}; then {second.title}"
    change = None
    if first.model == second.model:
        predicted = int(first.out.prediction[0].argmax())
        before, after = first.of_class(predicted), second.of_class(predicted)
        change = after - before
        if first.card.task == "regression":
            said = f"{said}: {change:+.3g}"
        else:
            name = first.card.class_name(predicted)
            said = f"{said}: “{name}” from {percent(before)} to {percent(after)}"
    return Comparison(
        first=first.explained(), second=second.explained(), change=change, words=f"{said}."
    )


def list_models(shelf: Shelf) -> list[Model]:
    """Returns what is on a shelf, the first choice first."""
    names = sorted(shelf.names, key=lambda name: name != shelf.first)
    return [
        Model(
            name=name,
            question=card.question or card.name,
            about=card.in_words(),
            note=card.note,
            task=card.task,
            classes=list(card.classes),
            unit=card.unit,
            featurizer=card.featurizer,
        )
        for name, card in ((name, shelf.card(name)) for name in names)
    ]


def percent(share: float) -> str:
    """Returns a share in per cent, never 0 or 100.

    >>> percent(0.714), percent(0.9999), percent(1e-9)
    ('71 %', '> 99 %', '< 1 %')
    """
    return "> 99 %" if share > 0.995 else "< 1 %" if share < 0.005 else f"{100 * share:.0f} %"


def _number(value: torch.Tensor | float) -> float | None:
    """Returns a number with six digits, None where there is none."""
    number = float(value)
    return float(f"{number:.6g}") if math.isfinite(number) else None
