"""One row per molecule, scores as lists: the table of a run over very many molecules.

Bond ``k`` of a row joins atoms ``atom_a[k]`` and ``atom_b[k]`` of its SMILES and has ``score[k]``.
A molecule that cannot be explained has a ``reason`` and no scores, so every record of the input has
exactly one row.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from nicegnn.explain.explanation import Explanation
from nicegnn.explain.words import flag_words
from nicegnn.intervention.fused import WORTH, Fusion
from nicegnn.pretrained import Pretrained
from nicegnn.screening.explaining import (
    explained_batches,
    graph_of,
    prediction_cells,
)
from nicegnn.screening.reading import Record
from nicegnn.screening.shards import Schema, Table
from nicegnn.target.frozen_model import Target

SCHEMA: Schema = {
    "row": int,  # in the input, from 1
    "id": str,
    "smiles": str,
    "prediction": str,  # name of the predicted class, or the value
    "probability": float,  # of the predicted class; nan for a value
    "status": str,  # "ok", or observations about the explanation, see `Flag`
    "reason": str,  # why there is no explanation; else nothing
    "atom_a": list[int],  # atoms of each bond
    "atom_b": list[int],
    "score": list[float],  # of each bond
    "stderr": list[float],  # standard error of each bond's attribution
}
ATOMS: Schema = {"atom_score": list[float]}  # with scores of atoms


@dataclass(frozen=True)
class Seconds:
    """Where the time of some work went."""

    reading: float = 0.0  # from SMILES to graphs
    explaining: float = 0.0
    writing: float = 0.0

    def __add__(self, other: Seconds) -> Seconds:
        return Seconds(
            self.reading + other.reading,
            self.explaining + other.explaining,
            self.writing + other.writing,
        )


def schema_for(atoms: bool) -> Schema:
    """Returns the columns of the table."""
    return {**SCHEMA, **ATOMS} if atoms else SCHEMA


@dataclass(frozen=True)
class Memory:
    """What an explainer knows about its model when it starts with a batch.

    An explainer finds out which shortcuts the model allows, such as kernels after many graphs, and
    remembers them. They change the last digits of scores. So that these do not depend on what a
    process has explained before, every batch starts with what some first molecules have told.
    """

    target: Target

    @classmethod
    def of_first(
        cls,
        records: Sequence[Record],
        subject: Pretrained,
        *,
        seed: int = 0,
        asked: Mapping[str, Any] | None = None,
        kernels: bool = True,
    ) -> Memory:
        """Explains some molecules with a subject that is new, and returns what it knows then.

        Args:
            kernels: use them from the first batch on, where the model allows it; else never.
        """
        target, words = subject.explainer.target, dict(asked or {})
        copies = max(WORTH.values()) if kernels else -(2**62)
        target.fusion = Fusion(target.weights(), copies)
        graphs = ((record, graph_of(record, subject.featurizer)[0]) for record in records)
        readable = [(record, graph) for record, graph in graphs if graph is not None]
        turns = [words]
        if words.get("student") == "auto":  # it may be sure of all of these
            turns.append({key: word for key, word in words.items() if key != "student"})
        for turn in turns:
            for _ in explained_batches(readable, subject, seed, turn):
                pass
        return cls(_remembered(target))

    def recall(self, subject: Pretrained) -> None:
        """Makes the explainer forget what it has found out since."""
        subject.explainer.target.remember(_remembered(self.target))


def _remembered(target: Target) -> Target:
    """Returns a copy whose notes are its own."""
    out, fusion = copy.copy(target), target.fusion
    out.fusion = None if fusion is None else replace(fusion, agreed=set(fusion.agreed))
    return out


def explain_compactly(
    records: Sequence[Record],
    subject: Pretrained,
    *,
    batch_size: int,
    seed: int = 0,
    asked: Mapping[str, Any] | None = None,
    memory: Memory | None = None,
) -> tuple[Table, Seconds]:
    """Returns the table of some molecules, in their order, and where the time went.

    Molecules are explained in batches of `batch_size` records, rejected ones included: if records
    are always cut at multiples of it, batches are the same, and so are results, with the same
    `memory` to the last bit. ``asked`` are further words of `explain`, such as ``atoms=True``.
    """
    words = dict(asked or {})
    schema = schema_for(bool(words.get("atoms")))
    table: Table = {name: [None] * len(records) for name in schema}
    place = {record.row: number for number, record in enumerate(records)}
    spent = Seconds()
    for name in ("row", "id", "smiles"):
        table[name] = [getattr(record, name) for record in records]
    for first in range(0, len(records), batch_size):
        start = time.perf_counter()
        readable: list[tuple[Record, Data]] = []
        for record in records[first : first + batch_size]:
            graph, reason = graph_of(record, subject.featurizer)
            if graph is None:
                table["reason"][place[record.row]] = reason
            else:
                readable.append((record, graph))
        read = time.perf_counter()
        if memory is not None:
            memory.recall(subject)
        for some, found in explained_batches(readable, subject, seed, words):
            places = [place[record.row] for record in some]
            if isinstance(found, str):
                table["reason"][places[0]] = found
            else:
                _fill(table, places, found, subject)
        spent += Seconds(reading=read - start, explaining=time.perf_counter() - read)
    return table, spent


def _fill(table: Table, places: Sequence[int], found: Explanation, subject: Pretrained) -> None:
    """Puts the explanations of a batch into the rows `places`."""
    bonds = found.bonds
    order = bonds.batch.argsort(stable=True)  # by graph
    sizes = torch.bincount(bonds.batch, minlength=found.num_graphs).tolist()
    ends = (bonds.index - found.ptr[bonds.batch])[:, order]  # [2, M], counted in each molecule
    columns = {
        "atom_a": _cut(ends[0], sizes),
        "atom_b": _cut(ends[1], sizes),
        "score": _cut(found.bond_score[order], sizes),
        "stderr": _cut(found.bond_stderr[order], sizes),
    }
    if found.atom_score is not None and "atom_score" in table:
        columns["atom_score"] = _cut(found.atom_score, found.ptr.diff().tolist())
    cells = [prediction_cells(subject.card, out) for out in found.prediction.tolist()]
    columns["prediction"], columns["probability"] = map(list, zip(*cells, strict=True))
    columns["status"] = [flag_words(flag) for flag in found.status.flags]
    for name, values in columns.items():
        for row, value in zip(places, values, strict=True):
            table[name][row] = value


def _cut(values: Tensor, sizes: list[int]) -> list[Any]:
    """Returns the values of each graph as an array."""
    plain = values.detach().cpu()
    plain = plain.float() if plain.is_floating_point() else plain.int()
    return [part.numpy() for part in torch.split(plain, sizes)]
