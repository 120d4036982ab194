"""Which substructures carry the predictions for many molecules."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from nicegnn.molecule.drawing import Panel, draw_panels
from nicegnn.molecule.picture import Palette
from nicegnn.molecule.smiles import MoleculeError, bond_ends, parse_smiles
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


def summarise(folder: str | Path, *, min_molecules: int = 3) -> list[Line]:
    """Returns the substructures of a run, those with the highest lift first.

    The folder is one of `nicegnn explain`. Molecules without bonds, or whose
    boundary was not found, do not count; warnings about the trust in one of them (see `Trust`) do
    not matter, since a mean over molecules is steadier. The lift compares bonds of one molecule
    with each other.
    """
    import pandas as pd

    counted = (
        row
        for row in stored_rows(Path(folder))
        if len(row["bond_score"]) and _COUNTED.issuperset(str(row["status"]).split(", "))
    )
    columns = ("prediction", "kind", "fragment", "row", "id", "score", "mean", "best")
    matches = pd.DataFrame((one for row in counted for one in _matches(row)), columns=columns)
    key = ["prediction", "kind", "fragment"]
    each = matches.groupby([*key, "row"], sort=False).agg(
        id=("id", "first"),
        matches=("score", "size"),
        score=("score", "mean"),
        mean=("mean", "first"),
        best=("best", "any"),
    )
    lines = []
    for (prediction, kind, fragment), some in each.groupby(key, sort=False):
        if len(some) < min_molecules:
            continue
        best = some.sort_values("score", ascending=False, kind="stable")["id"].head(MOST_EXAMPLES)
        lines.append(
            Line(
                prediction=prediction,
                kind=kind,
                fragment=fragment,
                molecules=len(some),
                matches=int(some["matches"].sum()),
                score=float(some["score"].mean()),
                spread=float(some["score"].std(ddof=0)),
                lift=float((some["score"] - some["mean"]).mean()),
                holds_best=float(some["best"].mean()),
                examples=", ".join(map(str, best)),
            )
        )
    return sorted(lines, key=lambda line: (-line.lift, -line.molecules, line.fragment))


def _matches(row: Mapping[str, Any]) -> Iterator[tuple[Any, ...]]:
    """Yields each substructure of a molecule, with its score and the mean of all bonds."""
    prediction = "all" if math.isnan(float(row["probability"])) else str(row["prediction"])
    mol = molecule_of(row)
    bonds = bonds_in(row, mol)
    score = {bond["bond"]: bond["score"] for bond in bonds}
    mean = math.fsum(score.values()) / len(score)
    best = {bond["bond"] for bond in bonds if bond["rank"] == 1}
    for one in fragments_of(mol):
        if one.bonds:
            own = math.fsum(score[bond] for bond in one.bonds) / len(one.bonds)
            held = not best.isdisjoint(one.bonds)
            yield prediction, one.kind, one.name, row["row"], row["id"], own, mean, held


def write_summary(folder: str | Path, lines: list[Line], title: str) -> dict[str, str]:
    """Writes ``summary.csv`` and a small page ``summary.html``; returns where they are."""
    folder = Path(folder)
    table: Table = {name: [getattr(line, name) for line in lines] for name in SCHEMA}
    write_table(folder / "summary.csv", [table], SCHEMA)
    largest = max([line.lift for line in lines if line.lift > 0], default=1.0)
    page = render(
        "summary.html",
        title=title,
        rows=[{**asdict(line), "bar": round(80 * max(0.0, line.lift) / largest)} for line in lines],
        drawings=_drawings(line.fragment for line in lines if line.kind != "group"),
    )
    write_text(folder / "summary.html", page)
    return {"table": str(folder / "summary.csv"), "page": str(folder / "summary.html")}


def _drawings(smiles: Iterable[str]) -> dict[str, str]:
    """Returns pictures of fragments that RDKit can read as molecules of their own."""
    drawings = {}
    for one in dict.fromkeys(smiles):
        try:
            index = torch.tensor(bond_ends(parse_smiles(one))).view(-1, 2).t()
        except MoleculeError:  # a piece of an aromatic ring, say
            continue
        panel, palette = Panel(index, smiles=one), Palette(ground=None)
        drawings[one] = draw_panels([panel], size=(150, 100), palette=palette).svg
    return drawings
