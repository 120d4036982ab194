"""Which groups and rings carry the predictions for many molecules."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, get_type_hints

from nicegnn.molecule.smiles import require
from nicegnn.screening.gallery import render
from nicegnn.screening.outputs import stored_rows
from nicegnn.screening.tables import Row, bonds_in, write_table
from nicegnn.store import write_text

_BOND = ("groups", "row", "id", "score", "rank")  # what is read of a bond
#: Words of a status with which a molecule counts; a mean is steadier than the scores of one.
_COUNTED = frozenset({"ok", "insensitive", "look twice", "do not use", "student", "uncertain"})


@dataclass(frozen=True)
class Line:
    """One substructure among the molecules of one prediction; means are over molecules."""

    prediction: str  # predicted class; "all" for values, or their endpoint
    substructure: str  # what its bonds are called, see `fragments`
    molecules: int  # that have it
    bonds: int  # in all of them
    score: float  # mean score of its bonds in a molecule, averaged over molecules
    spread: float  # standard deviation of that over molecules
    lift: float  # how far that is above the mean score of the molecule's bonds
    holds_best: float  # share of molecules whose best bond lies in it
    examples: str  # ids of the molecules where it scores best


def summarise(folder: str | Path, *, min_molecules: int = 3) -> list[Line]:
    """Returns the substructures of a run of `nicegnn explain`, those of the highest lift first."""
    key = ["prediction", "substructure"]
    bonds = require("pandas", "tables").DataFrame(
        (bond for row in stored_rows(Path(folder)) for bond in _bonds(row)),
        columns=["prediction", *_BOND, "mean"],
    )
    bonds["substructure"] = bonds["groups"].str.removeprefix("fusion bond of ")
    each = bonds.groupby([*key, "row"], sort=False).agg(
        id=("id", "first"),
        bonds=("score", "size"),
        score=("score", "mean"),
        mean=("mean", "first"),
        best_rank=("rank", "min"),
    )
    each["lift"], each["holds_best"] = each["score"] - each["mean"], each["best_rank"] == 1
    found = each.groupby(key, sort=False).agg(
        molecules=("score", "size"),
        bonds=("bonds", "sum"),
        score=("score", "mean"),
        spread=("score", lambda scores: scores.std(ddof=0)),
        lift=("lift", "mean"),
        holds_best=("holds_best", "mean"),
    )
    best = each.sort_values("score", ascending=False, kind="stable").groupby(key)["id"]
    found["examples"] = best.agg(lambda ids: ", ".join(ids[:3]))
    found = found[found["molecules"] >= min_molecules].reset_index()
    found = found.sort_values(["lift", "molecules", "substructure"], ascending=[False, False, True])
    return [Line(**line) for line in found.to_dict("records")]


def _bonds(row: Row) -> Iterator[tuple[Any, ...]]:
    """Yields each bond of a molecule that counts, with the mean score of all of them."""
    scores = row["bond_score"]
    if not scores or not _COUNTED.issuperset(str(row["status"]).split(", ")):
        return
    is_value = math.isnan(float(row["probability"]))
    prediction = (row.get("endpoint") or "all") if is_value else str(row["prediction"])
    mean = math.fsum(scores) / len(scores)
    for bond in bonds_in(row):
        yield prediction, *(bond[name] for name in _BOND), mean


def write_summary(folder: Path, lines: list[Line], title: str) -> list[Path]:
    """Writes ``summary.csv`` and a small page ``summary.html``; returns where they are."""
    table, page, rows = folder / "summary.csv", folder / "summary.html", [*map(asdict, lines)]
    write_table(table, rows, get_type_hints(Line))
    write_text(page, render("summary.html", title=title, rows=rows))
    return [table, page]
