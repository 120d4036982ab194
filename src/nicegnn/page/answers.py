"""Answers about molecules: the types that the page, HTTP and assistants share."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, Field

from nicegnn.explain.explanation import Explanation
from nicegnn.explain.trust import ADVICE
from nicegnn.molecule.domain import Nearness
from nicegnn.molecule.drawing import Panel, draw_panels
from nicegnn.molecule.smiles import matched_molecule
from nicegnn.pretrained import Pretrained
from nicegnn.pretrained.model_file import ModelCard
from nicegnn.screening.explaining import atoms_in, bonds_in, row_of
from nicegnn.screening.gallery import trust_of
from nicegnn.screening.reading import Record

if TYPE_CHECKING:
    from rdkit.Chem import Mol

SIZE = (560, 400)  # of the picture on the page


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

    @classmethod
    def of(cls, name: str, card: ModelCard, family: str = "") -> Model:
        """Returns the model of a card."""
        question, about = card.question or card.name, card.in_words()
        told = {"name": name, "question": question, "about": about, "family": family}
        return cls(**card.to_dict() | told)


class Part(BaseModel):
    """Numbers of a bond or an atom; losses are in log-odds, or in the unit of the value."""

    score: float | None = Field(description="Share of the odds that is lost without it, or loss.")
    loss: float | None
    stderr: float | None
    rank: int | None = Field(description="1 for the best one; equal ones share a rank.")


class Bond(Part):
    """A bond with its numbers."""

    bond: int
    atom_a: int
    atom_b: int
    name: str = Field(description="Elements and numbers of its atoms.")
    type: str
    groups: str = Field(description="What a chemist calls the place.")


class Atom(Part):
    """An atom with its numbers; a negative score means that the prediction gains without it."""

    atom: int
    element: str


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
    probability: float | None
    value: float | None
    change: float = Field(description="Of the class that was predicted before, or of the value.")


class Row(BaseModel):
    """A molecule of a file, with its answer or with what is wrong with it."""

    row: int
    id: str
    smiles: str
    values: dict[str, str] = Field(description="The other columns of the file.")
    error: str = ""
    answer: Drawn | None = None


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
        if limit is None:
            scores = [one for one in (self.out.bond_score, self.out.atom_score) if one is not None]
            largest = max((float(one.abs().max()) for one in scores if one.numel()), default=0.0)
            limit = 1.0 if self.out.unit == "odds" else largest or 1.0
        panel = Panel(
            self.out.bond_index,
            self.out.bond_score,
            self.out.atom_score,
            smiles=self.record.smiles,
            num_nodes=self.mol.GetNumAtoms(),
            numbered=True,
        )
        picture = draw_panels([panel], size=SIZE, signed=True, limit=limit)
        return Drawn(
            **self._fields(),
            svg=picture.svg,
            limit=limit,
            points=[(round(x, 1), round(y, 1)) for x, y in picture.points],
        )

    @property
    def is_class(self) -> bool:
        """Whether a class is predicted, not a value."""
        return self.card.task != "regression"

    @property
    def predicted(self) -> int:
        """The number of the predicted class; 0 for a value."""
        return int(self.out.prediction[0].argmax())

    def of_class(self, number: int) -> float:
        """Returns the probability of a class, or the value of a regression."""
        found = float(self.out.prediction[0, number])
        return math.exp(found) if self.is_class else found

    @property
    def title(self) -> str:
        """The prediction in words."""
        said = self.cells["prediction"]
        if self.is_class:
            return f"{said}, {percent(self.of_class(self.predicted))}"
        return f"{said} {self.card.unit}".rstrip()

    @property
    def notes(self) -> list[str]:
        """What a reader must know beside the answer, the limits of the model first."""
        near = Nearness(self.cells["similarity"], self.cells["applicability"])
        far = [f"The model may not fit this molecule: {near.words}."] if near.is_far else []
        doubt = [f"About the model: {self.card.doubt}"] if self.card.doubt else []
        return [*doubt, *far, *self.out.status.notes]

    def _fields(self) -> dict[str, Any]:
        chances = self.out.prediction[0].exp().tolist() if self.is_class else []
        flags, has_bonds = self.out.status.flags[0], self.out.bond_score.numel() > 0
        bonds = sorted(bonds_in(self.cells, self.mol), key=lambda bond: int(bond["rank"]))
        return _plain(self.cells, "smiles", "prediction", "applicability") | {
            "name": self.record.id,
            "model": self.model,
            "question": self.card.question or self.card.name,
            "task": self.card.task,
            "probability": _number(chances[self.predicted]) if chances else None,
            "probabilities": {self.card.class_name(n): _number(p) for n, p in enumerate(chances)},
            "value": None if chances else _number(self.of_class(0)),
            "unit": self.card.unit,
            "similarity": _number(self.cells["similarity"]),
            "verdict": str(self.cells["verdict"]) if has_bonds else "not checked",
            "chance": _number(self.cells["chance"]),
            "words": trust_of(self.cells, self.card)
            or "How far to trust these scores was not checked.",
            "advice": [text for flag, text in ADVICE.items() if flag in flags],
            "notes": self.notes,
            "score_unit": self.out.unit,
            "bonds": [Bond(**_plain(one)) for one in bonds],
            "atoms": [Atom(**_plain(one)) for one in atoms_in(self.cells, self.mol)],
        }


def make_case(record: Record, model: str, subject: Pretrained, out: Explanation) -> Case:
    """Returns the case of an explanation of one molecule."""
    mol = matched_molecule(record.smiles, out.bond_index, int(out.ptr[-1]))
    return Case(record, model, subject.card, mol, out, row_of(record, out, subject))


def compare(first: Case, second: Case) -> Comparison:
    """Returns two answers and what differs between them, in words."""
    change = None
    if first.model != second.model:
        words = f"{first.model}: {first.title}; {second.model}: {second.title}."
    else:
        before, after = (one.of_class(first.predicted) for one in (first, second))
        change = after - before
        name, ends = "The value", (first.title, second.title)
        if first.is_class:
            name, ends = f"“{first.cells['prediction']}”", (percent(before), percent(after))
        verb = "rises" if change > 0 else "falls"
        how = f"{verb} from {ends[0]} to {ends[1]}" if len({*ends}) > 1 else f"stays at {ends[0]}"
        words = f"{name} {how}."
    both = {"first": first.explained(), "second": second.explained()}
    return Comparison(**both, change=change, words=words)


def percent(share: float) -> str:
    """Returns a share in per cent, never 0 or 100.

    >>> percent(0.714), percent(0.9999), percent(1e-9)
    ('71 %', '> 99 %', '< 1 %')
    """
    return "> 99 %" if share > 0.995 else "< 1 %" if share < 0.005 else f"{100 * share:.0f} %"


def _plain(cells: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """Returns the named cells, or all; numbers have six digits."""
    some = {name: cells[name] for name in names or cells}
    return {k: _number(v) if isinstance(v, float) else v for k, v in some.items()}


def _number(value: float) -> float | None:
    """Returns a number with six digits, None where there is none."""
    return float(f"{value:.6g}") if math.isfinite(value) else None
