"""Which substructures carry the predictions for many molecules."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from nicegnn.config import Settings, check_at_least, check_count
from nicegnn.molecule.smiles import MoleculeError, parse_smiles
from nicegnn.screening.fragments import fragments_of
from nicegnn.screening.gallery import coordinates, molecule_of
from nicegnn.screening.loading import ModelConfig
from nicegnn.screening.rendering import render
from nicegnn.screening.run import read_explained
from nicegnn.screening.shards import Table, write_table
from nicegnn.store import write_whole

MOST_EXAMPLES = 3

#: Words of a status with which a molecule counts.
_COUNTED = frozenset({"ok", "unstable", "no better than random"})


@dataclass(frozen=True)
class SummaryConfig(Settings):
    """All settings of ``nicegnn summary``, as they stand in ``summary.settings.toml``."""

    source: str = ""  # folder of `nicegnn explain`, or a file of molecules, explained first
    smiles_column: str = ""  # of a file; by default found
    min_molecules: int = 3  # substructures of fewer molecules are left out
    top: int = 15  # rows to print
    model: ModelConfig = field(default_factory=ModelConfig)  # for a file

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count(self, "min_molecules")
        check_at_least(self, 0, "top")


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
        own = math.fsum(scores) / len(scores)
        self.molecules += 1
        self.matches += len(scores)
        self.total += own
        self.squares += own * own
        self.lift += own - mean
        self.best += holds_best
        self.examples = sorted([*self.examples, (-own, name)])[:MOST_EXAMPLES]

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
    """Returns the substructures of a screening, those with the highest lift first.

    Molecules whose explanation is not ``ok`` do not count; warnings about how far to trust it (see
    `Trust`) do not matter, since a mean over molecules is steadier than one of them. The lift
    compares bonds of one molecule with each other, so it does not depend on how scores are scaled
    from molecule to molecule.
    """
    tallies: dict[tuple[str, str, str], _Tally] = defaultdict(_Tally)
    for molecule, bonds in read_explained(Path(folder)):
        if bonds and _COUNTED.issuperset(str(molecule["status"]).split(", ")):
            is_value = math.isnan(float(molecule["probability"]))
            group = "all" if is_value else str(molecule["prediction"])
            for key, found in _of_molecule(molecule, bonds):
                tallies[group, *key].add(*found, str(molecule["id"]))
    lines = [tally.line(*key) for key, tally in tallies.items() if tally.molecules >= min_molecules]
    return sorted(lines, key=lambda line: (-line.lift, -line.molecules, line.fragment))


def _of_molecule(
    molecule: dict[str, Any], bonds: list[dict[str, Any]]
) -> Iterator[tuple[tuple[str, str], tuple[list[float], float, bool]]]:
    """Yields each substructure of a molecule with the score of each match."""
    mol = molecule_of(molecule, bonds)
    score = {int(bond["bond"]): float(bond["score"]) for bond in bonds}
    mean = math.fsum(score.values()) / len(score)
    best = max(score, key=lambda bond: score[bond])
    found: dict[tuple[str, str], list[frozenset[int]]] = defaultdict(list)
    for one in fragments_of(mol):
        inside = frozenset(bond for bond in one.bonds if bond in score)
        if inside:
            found[one.kind, one.name].append(inside)
    for key, matches in found.items():
        scores = [math.fsum(score[bond] for bond in own) / len(own) for own in matches]
        yield key, (scores, mean, any(best in own for own in matches))


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
    write_whole(folder / "summary.html", lambda path: path.write_text(page, encoding="utf-8"))
    return {"table": str(folder / "summary.csv"), "page": str(folder / "summary.html")}


def _share(value: float, largest: float) -> int:
    return round(80 * max(0.0, value) / largest) if largest > 0 else 0


def _drawings(smiles: Iterable[str]) -> dict[str, Any]:
    """Returns coordinates of fragments that RDKit can read as molecules of their own."""
    found = {}
    for one in dict.fromkeys(smiles):
        try:
            mol = parse_smiles(one)
        except MoleculeError:  # a piece of an aromatic ring, say
            continue
        found[one] = coordinates(mol, [0.0] * mol.GetNumBonds())
    return found
