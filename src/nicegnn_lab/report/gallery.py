"""Explained molecules as compact JSON: each drawn once, with the scores of every method."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nicegnn.errors import ConfigError
from nicegnn.molecule.drawing import blank_svg
from nicegnn_lab.bench.measure import GALLERY_METRICS
from nicegnn_lab.datasets.registry import DATASETS
from nicegnn_lab.paper.evidence import Evidence
from nicegnn_lab.paper.methods import Method, datasets_in, methods_in
from nicegnn_lab.tables.table import dataset_title, stand_ins

if TYPE_CHECKING:
    import pandas as pd

#: Values of single graphs that stand beside a picture.
SHOWN = ("roc_auc", "f1")
#: Rows of single bonds, and what the gallery calls them after a method's name.
PANELS = {"bond_score": "", "bond_gate": ": gate ρ*", "bond_big": ": attribution"}
_SIZE = (300, 225)  # pixels of a drawing


@dataclass(frozen=True)
class GalleryConfig:
    """Which molecules are shown."""

    molecules: int = 12  # most of each dataset, of those that rows hold
    seed: int | None = None  # of the explainers; none for the lowest that has molecules

    def __post_init__(self) -> None:
        if type(self.molecules) is not int or self.molecules < 0:
            raise ConfigError(
                f"`molecules` must be a whole number of at least 0 (got {self.molecules!r})."
            )


def make_gallery(evidence: Evidence, config: GalleryConfig) -> dict[str, dict[str, Any]]:
    """Returns the gallery of each dataset, ready for JSON; see `dataset_gallery`.

    A dataset whose rows hold no molecules has only a ``problem``, in words.
    """
    if config.molecules == 0:
        return {}
    rows = evidence.rows
    rows = rows[
        (rows["target"] == evidence.target) & rows["metric"].isin([*GALLERY_METRICS, *SHOWN])
    ]
    gallery: dict[str, dict[str, Any]] = {}
    for dataset in datasets_in(evidence.rows):
        here = rows[rows["dataset"] == dataset]
        seeds = here.loc[here["metric"] == "molecule", "seed"]
        seed = config.seed if config.seed is not None else seeds.min()
        if not (seeds == seed).any():
            asked = "" if config.seed is None else f" with seed {config.seed}"
            gallery[dataset] = {
                "problem": f"The rows of {dataset}{asked} hold no molecules to draw. Run `nicegnn "
                f"bench -d {dataset} -e nice -s 0` with a new `--out`."
            }
            continue
        gallery[dataset] = dataset_gallery(here[here["seed"] == seed], dataset, config.molecules)
    return gallery


def dataset_gallery(rows: pd.DataFrame, dataset: str, most: int) -> dict[str, Any]:
    """Returns methods, molecules and scores of one dataset, target and seed.

    ``methods[k]`` made ``molecules[i]["scores"][k]``, one number per bond, or none.
    ``molecules[i]["values"][k]`` are the metrics of `SHOWN` under each of ``protocols``, one
    protocol after another. ``molecules[i]["svg"]`` is drawn once; the page colours the paths of
    class ``bond-N`` for each method.
    """
    facts = DATASETS.get(dataset)
    drawn = rows[rows["metric"] == "molecule"].drop_duplicates("graph")
    notes = dict(zip(drawn["graph"], drawn["note"].astype(str), strict=True))
    numbers = sorted(int(graph) for graph in notes)
    measured = rows[rows["metric"].isin(SHOWN)]
    protocols = [str(name) for name in dict.fromkeys(measured["protocol"])]
    panels = _panels(rows)
    scores = _scores(rows)
    values = {
        (Method(str(e), str(m)), str(p), str(metric), int(graph)): float(value)
        for e, m, p, metric, graph, value in measured.loc[
            measured["graph"].isin(numbers),
            ["explainer", "mechanism", "protocol", "metric", "graph", "value"],
        ].itertuples(index=False)
    }
    return {
        "title": dataset_title(dataset, stand_ins(rows)),
        "meaning": "" if facts is None else facts.meaning,
        "truth": "" if facts is None else facts.truth,
        "target": str(rows["target"].iloc[0]),
        "seed": int(rows["seed"].iloc[0]),
        "explained": int(measured.loc[measured["graph"] >= 0, "graph"].nunique()),
        "protocols": protocols,
        "metrics": list(SHOWN),
        "methods": [
            {"name": f"{m.label}{PANELS[metric]}", "method": m.label, "score": not PANELS[metric]}
            for m, metric in panels
        ],
        "molecules": [
            {
                **_molecule(number, json.loads(notes[number])),
                "scores": [scores.get((method, metric, number)) for method, metric in panels],
                "values": [
                    [
                        short(values.get((method, protocol, name, number), math.nan))
                        for protocol in protocols
                        for name in SHOWN
                    ]
                    if metric == "bond_score"  # gates and attributions have no such rows
                    else None
                    for method, metric in panels
                ],
            }
            for number in numbers[:most]
        ],
    }


def short(value: float) -> float | None:
    """Returns a number with four digits; none for what is not finite, which JSON does not know.

    Example:
        >>> short(0.123456), short(float("nan"))
        (0.1235, None)
    """
    return float(f"{value:.4g}") if math.isfinite(value) else None


def _panels(rows: pd.DataFrame) -> list[tuple[Method, str]]:
    """Returns what is shown of each method, in the order of tables: score, gate, attribution.

    A gate or an attribution that is the score itself is not shown twice, and the truth has a panel
    of its own.
    """
    bonds = rows[rows["metric"].isin(list(PANELS))]
    found = []
    for method in methods_in(bonds, variants=True):
        if method.explainer == "ground-truth":
            continue
        is_it = (bonds["explainer"] == method.explainer) & (bonds["mechanism"] == method.mechanism)
        mine = bonds[is_it].sort_values(["graph", "level"])
        seen = {b""}  # what a method has no rows of
        for metric in PANELS:
            column = mine.loc[mine["metric"] == metric, "value"].to_numpy().tobytes()
            if column not in seen:
                found.append((method, metric))
            seen.add(column)
    return found


def _scores(rows: pd.DataFrame) -> dict[tuple[Method, str, int], list[float | None]]:
    """Returns the values of bonds by method, metric and graph, in the order of bonds."""
    bonds = rows[rows["metric"].isin(list(PANELS))].sort_values("level")
    keys = ["explainer", "mechanism", "metric", "graph"]
    return {
        (Method(str(e), str(m)), str(metric), int(graph)): [short(v) for v in part["value"]]
        for (e, m, metric, graph), part in bonds.groupby(keys, observed=True)
    }


def _molecule(number: int, about: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a molecule of a row's note, drawn."""
    atoms, bonds = about["atoms"], [(u, v, kind + 1) for u, v, kind in about["bonds"]]
    return {
        "n": number,
        "smiles": about["smiles"],
        "y": about["label"],
        "explained": about["explained"],
        "p": short(about["probability"]),
        "true": about["true"],
        "alternatives": len(about["alternatives"]),
        "bonds": [f"{atoms[u]}{u}–{atoms[v]}{v}" for u, v, _ in bonds],
        "svg": blank_svg(about["smiles"], atoms, bonds, _SIZE),
    }
