"""Which substructures carry the predictions for many molecules."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from nicegnn.molecule.drawing import draw_graph
from nicegnn.molecule.smiles import MoleculeError, parse_smiles
from nicegnn.screening.explaining import bonds_in, molecule_of
from nicegnn.screening.fragments import fragments_of
from nicegnn.screening.outputs import stored_rows
from nicegnn.screening.rendering import render
from nicegnn.screening.shards import Table, write_table
from nicegnn.store import write_text

MOST_EXAMPLES = 3

#: Words of a status with which a molecule counts: its scores are measured, whatever they are.
_COUNTED = frozenset({"ok", "insensitive", "look twice", "do not use", "student", "uncertain"})


@dataclass(frozen=True)
class Line:
    """One substructure among the molecules of one prediction; means are over molecules."""

    prediction: str  # predicted class; "all" for values
    kind: str  # group, ring system or BRICS
    fragment: str  # name of the group, or SMILES
    molecules: int  # that have it
    matches: int  # in all of them
    score: float  # mean score of its bonds, averaged over its matches and then over molecules
    spread: float  # standard deviation of that over molecules
    lift: float  # how far that is above the mean score of the molecule's bonds
    holds_best: float  # share of molecules whose best bond lies in it
    examples: str  # ids of the molecules where it scores best


SCHEMA: dict[str, type] = {
    **dict.fromkeys(("prediction", "kind", "fragment"), str),
    **dict.fromkeys(("molecules", "matches"), int),
    **dict.fromkeys(("score", "spread", "lift", "holds_best"), float),
    "examples": str,
}


@dataclass
class _Tally:
    """What is known of a substructure so far; examples alone are kept of molecules."""

    molecules: int = 0
    matches: int = 0
    total: float = 0.0
    squares: float = 0.0
    lift: float = 0.0
    best: int = 0
    examples: list[tuple[float, str]] = field(default_factory=list)

    def add(self, scores: list[float], mean: float, holds_best: bool, name: str) -> None:
        score = math.fsum(scores) / len(scores)
        self.molecules += 1
        self.matches += len(scores)
        self.total += score
        self.squares += score * score
        self.lift += score - mean
        self.best += holds_best
        self.examples = sorted([*self.examples, (-score, name)])[:MOST_EXAMPLES]

    def line(self, prediction: str, kind: str, fragment: str) -> Line:
        number, mean = self.molecules, self.total / self.molecules
        return Line(
            prediction=prediction,
            kind=kind,
            fragment=fragment,
            molecules=number,
            matches=self.matches,
            score=mean,
            spread=math.sqrt(max(0.0, self.squares / number - mean * mean)),
            lift=self.lift / number,
            holds_best=self.best / number,
            examples=", ".join(name for _, name in self.examples),
        )


def summarise(folder: str | Path, *, min_molecules: int = 3) -> list[Line]:
    """Returns the substructures of a run, those with the highest lift first.

    The folder is one of `nicegnn explain`. Molecules without bonds, or whose
    boundary was not found, do not count; warnings about the trust in one of them (see `Trust`) do
    not matter, since a mean over molecules is steadier. The lift compares bonds of one molecule
    with each other.
    """
    tallies: dict[tuple[str, str, str], _Tally] = defaultdict(_Tally)
    for row in stored_rows(Path(folder)):
        if len(row["bond_score"]) and _COUNTED.issuperset(str(row["status"]).split(", ")):
            group = "all" if math.isnan(float(row["probability"])) else str(row["prediction"])
            for key, matches in _of_molecule(row):
                tallies[group, *key].add(*matches, str(row["id"]))
    lines = [tally.line(*key) for key, tally in tallies.items() if tally.molecules >= min_molecules]
    return sorted(lines, key=lambda line: (-line.lift, -line.molecules, line.fragment))


def _of_molecule(
    row: dict[str, Any],
) -> Iterator[tuple[tuple[str, str], tuple[list[float], float, bool]]]:
    """Yields each substructure of a molecule with the score of each match."""
    mol = molecule_of(row)
    bonds = bonds_in(row, mol)
    score = {bond["bond"]: bond["score"] for bond in bonds}
    mean = math.fsum(score.values()) / len(score)
    best = {bond["bond"] for bond in bonds if bond["rank"] == 1}
    matches_of: dict[tuple[str, str], list[frozenset[int]]] = defaultdict(list)
    for one in fragments_of(mol):
        if one.bonds:
            matches_of[one.kind, one.name].append(one.bonds)
    for key, matches in matches_of.items():
        scores = [math.fsum(score[bond] for bond in inside) / len(inside) for inside in matches]
        yield key, (scores, mean, any(best & inside for inside in matches))


def write_summary(folder: str | Path, lines: list[Line], title: str) -> dict[str, str]:
    """Writes ``summary.csv`` and a small page ``summary.html``; returns where they are."""
    folder = Path(folder)
    table: Table = {name: [getattr(line, name) for line in lines] for name in SCHEMA}
    write_table(folder / "summary.csv", [table], SCHEMA)
    largest = max((line.lift for line in lines), default=0.0)
    page = render(
        "summary.html",
        title=title,
        rows=[{**asdict(line), "bar": _share(line.lift, largest)} for line in lines],
        drawings=_drawings(line.fragment for line in lines if line.kind != "group"),
    )
    write_text(folder / "summary.html", page)
    return {"table": str(folder / "summary.csv"), "page": str(folder / "summary.html")}


def _share(value: float, largest: float) -> int:
    return round(80 * max(0.0, value) / largest) if largest > 0 else 0


def _drawings(smiles: Iterable[str]) -> dict[str, str]:
    """Returns pictures of fragments that RDKit can read as molecules of their own."""
    drawings = {}
    for one in dict.fromkeys(smiles):
        try:
            mol = parse_smiles(one)
        except MoleculeError:  # a piece of an aromatic ring, say
            continue
        ends = [(b.GetBeginAtomIdx(), b.GetEndAtomIdx()) for b in mol.GetBonds()]
        index = torch.tensor(ends, dtype=torch.long).view(-1, 2).t()
        drawings[one] = draw_graph(index, smiles=one, size=(150, 100), background=None).svg
    return drawings
