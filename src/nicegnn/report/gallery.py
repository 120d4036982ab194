"""Explained molecules as compact JSON: each laid out once, with the scores of every method."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from nicegnn.bench.scores import Scores
from nicegnn.datasets import MoleculeDataset
from nicegnn.errors import ConfigError, NicegnnError
from nicegnn.graph.case import find_bonds
from nicegnn.report.evidence import Evidence
from nicegnn.report.parts import Parts
from nicegnn.report.sketch import Bond, sketch
from nicegnn.report.sources import Source, read_scores
from nicegnn.seeding import mix
from nicegnn.tables.methods import datasets_in, methods_in

if TYPE_CHECKING:
    import pandas as pd

#: Values of single graphs that stand beside a picture.
SHOWN = ("roc_auc", "f1")
#: What a method knows beside its scores and what the gallery calls it.
EXTRAS = {"bond_gate": "gate ρ*", "bond_big": "attribution"}


@dataclass(frozen=True)
class GalleryConfig:
    """Which molecules are shown, and by which cells."""

    molecules: int = 40  # of each dataset, drawn at random
    seed: int | None = None  # of the explainers; none for the lowest there is
    draw: int = 0  # seed of the choice of molecules

    def __post_init__(self) -> None:
        if type(self.molecules) is not int or self.molecules < 0:
            raise ConfigError(
                f"`molecules` must be a whole number of at least 0 (got {self.molecules!r})."
            )


@dataclass(frozen=True)
class _Voice:
    """One panel: what a method says about every bond."""

    name: str
    source: Source
    scores: Scores
    value: Tensor  # [M]
    is_score: bool  # rather than a gate or an attribution


def make_gallery(
    evidence: Evidence,
    folder: str | Path,
    parts: Parts,
    config: GalleryConfig,
    say: Callable[[str], None] = lambda _: None,
) -> dict[str, dict[str, Any]]:
    """Returns the gallery of each dataset, ready for JSON; see `dataset_gallery`.

    A dataset whose graphs or scores cannot be read has only a ``problem``, in words.
    """
    gallery = {}
    for dataset in datasets_in(evidence.rows) if config.molecules else ():
        say(f"Drawing molecules of {dataset} ...")
        try:
            gallery[dataset] = dataset_gallery(evidence, folder, dataset, parts, config)
        except (NicegnnError, ImportError) as error:
            gallery[dataset] = {"problem": str(error)}
    return gallery


def dataset_gallery(
    evidence: Evidence, folder: str | Path, dataset: str, parts: Parts, config: GalleryConfig
) -> dict[str, Any]:
    """Returns methods, molecules and scores of one dataset.

    ``methods[k]`` made ``molecules[i]["scores"][k]``, one number per bond in the order of the
    molecule's ``bonds``, or none. ``molecules[i]["values"][k]`` are the metrics of `SHOWN` under
    each of ``protocols``, one protocol after another.
    """
    chosen = _chosen(evidence, dataset, config.seed)
    voices = [voice for source in chosen for voice in _voices(folder, source)]
    part = parts.get(chosen[0]) if chosen else None
    if not voices or part is None:
        reason = parts.problems.get(dataset, "there are no stored scores")
        raise ConfigError(f"No molecule of {dataset} can be shown: {reason}")
    seed, target = voices[0].source.seed, evidence.target
    rows = evidence.rows
    rows = rows[
        (rows["dataset"] == dataset) & (rows["target"] == target) & (rows["metric"].isin(SHOWN))
    ]
    rows = rows[rows["seed"] == seed]
    protocols = [str(name) for name in dict.fromkeys(rows["protocol"])]
    shared, total = explained_by_all([voice.scores for voice in voices])
    positions = draw_positions(shared, config.molecules, mix(config.draw, "gallery", dataset))
    values = _values(rows, set(positions))
    return {
        "title": part.title,
        "meaning": part.facts.meaning,
        "truth": part.facts.truth,
        "part": str(chosen[0].identity["part"]),
        "target": target,
        "seed": seed,
        "explained": total,
        "protocols": protocols,
        "metrics": list(SHOWN),
        "methods": [
            {
                "name": voice.name,
                "method": voice.source.method.label,
                "score": voice.is_score,
                "rows": voice.source.rows,
                "file": voice.source.scores,
            }
            for voice in voices
        ],
        "molecules": [_molecule(part, place, voices, values, protocols) for place in positions],
    }


def explained_by_all(scores: Sequence[Scores]) -> tuple[list[int], int]:
    """Returns positions that every method explained, or else any, and how many were explained."""
    sets = [set(one.positions.tolist()) for one in scores]
    union = set().union(*sets)
    return sorted(set.intersection(*sets) or union), len(union)


def draw_positions(positions: Sequence[int], wanted: int, seed: int) -> list[int]:
    """Returns so many of the positions, drawn at random, in rising order.

    Example:
        >>> draw_positions([3, 5, 8], 5, seed=0)
        [3, 5, 8]
    """
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(positions), generator=generator)[:wanted].tolist()
    return sorted(positions[place] for place in order)


def bond_scores(scores: Scores, value: Tensor, position: int) -> list[float | None] | None:
    """Returns the values of one graph's bonds with four digits, or none if it was not explained."""
    place = (scores.positions == position).nonzero().view(-1)
    if place.numel() == 0:
        return None
    first, last = scores.bond_ptr[int(place)], scores.bond_ptr[int(place) + 1]
    return [short(one) for one in value[first:last].tolist()]


def short(value: float) -> float | None:
    """Returns a number with four digits; none for what is not finite, which JSON does not know.

    Example:
        >>> short(0.123456), short(float("nan"))
        (0.1235, None)
    """
    return float(f"{value:.4g}") if math.isfinite(value) else None


def _chosen(evidence: Evidence, dataset: str, seed: int | None) -> list[Source]:
    """Returns the sources that are shown, one per method, in the order of tables."""
    there = [s for s in evidence.sources if (s.dataset, s.target) == (dataset, evidence.target)]
    seeds = {source.seed for source in there}
    if not seeds or (seed is not None and seed not in seeds):
        raise ConfigError(f"There are no scores of {dataset} with seed {seed} (got {seeds}).")
    lowest = min(seeds) if seed is None else seed
    order = methods_in(evidence.rows, variants=True)
    found = [source for source in there if source.seed == lowest and source.method in order]
    return sorted(found, key=lambda source: order.index(source.method))


def _voices(folder: str | Path, source: Source) -> list[_Voice]:
    if source.explainer == "ground-truth":  # has a panel of its own
        return []
    try:
        scores = read_scores(folder, source)
    except NicegnnError:
        return []
    name = source.method.label
    found = [_Voice(name, source, scores, scores.bond_score, True)]
    for key, title in EXTRAS.items():
        value = scores.extras.get(key)
        if value is not None and not torch.equal(value, scores.bond_score):
            found.append(_Voice(f"{name}: {title}", source, scores, value, False))
    return found


def _values(rows: pd.DataFrame, positions: set[int]) -> dict[tuple[str, str, str, str, int], float]:
    """Returns metrics of single graphs by explainer, mechanism, protocol, metric and graph."""
    some = rows[rows["graph"].isin(positions)]
    columns = ["explainer", "mechanism", "protocol", "metric", "graph", "value"]
    return {
        (str(e), str(m), str(p), str(metric), int(graph)): float(value)
        for e, m, p, metric, graph, value in some[columns].itertuples(index=False)
    }


def _molecule(
    part: MoleculeDataset,
    position: int,
    voices: Sequence[_Voice],
    values: Mapping[tuple[str, str, str, str, int], float],
    protocols: Sequence[str],
) -> dict[str, Any]:
    data = part[position]
    bonds, is_true = _bonds(data)
    atoms = [part.vocabulary[column] for column in data.x.argmax(1).tolist()]
    drawn = sketch(data.smiles, atoms, bonds)
    found = drawn.to_dict() | {
        "n": position,
        "smiles": data.smiles,
        "y": int(data.y),
        "true": is_true,
        "alternatives": len(data.edge_alternatives),
        "scores": [bond_scores(voice.scores, voice.value, position) for voice in voices],
        "values": [_shown(voice, position, values, protocols) for voice in voices],
    }
    for scores in (voice.scores for voice in voices):
        place = (scores.positions == position).nonzero().view(-1)
        if place.numel():
            explained = int(scores.explained[place])
            chance = float(scores.prediction[place, explained].exp())
            return found | {"explained": explained, "p": short(chance)}
    return found


def _bonds(data: Data) -> tuple[list[Bond], list[int]]:
    """Returns the bonds in the order of scores, and the numbers of the true ones."""
    bonds = find_bonds(data.edge_index, torch.zeros_like(data.edge_index[0]))
    kind = torch.zeros(bonds.index.size(1), dtype=torch.long)
    kind[bonds.edge_bond] = 1 + data.edge_attr.argmax(1)
    rows = torch.cat([bonds.index, kind[None]]).t().tolist()  # [M, 3]
    is_true = bonds.mean(data.edge_truth.float()) > 0.5
    return [(u, v, k) for u, v, k in rows], is_true.nonzero().view(-1).tolist()


def _shown(
    voice: _Voice,
    position: int,
    values: Mapping[tuple[str, str, str, str, int], float],
    protocols: Sequence[str],
) -> list[float | None] | None:
    """Returns the metrics beside a picture; only scores have rows, gates have none."""
    if not voice.is_score:
        return None
    found: list[float | None] = []
    for protocol in protocols:
        for metric in SHOWN:
            key = (voice.source.explainer, voice.source.mechanism, protocol, metric, position)
            found.append(short(values.get(key, math.nan)))
    return found
