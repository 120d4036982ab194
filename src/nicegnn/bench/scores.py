"""Raw scores, stored by content, so that new metrics need no new explanations."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nicegnn.bench.cell import content_hash
from nicegnn.errors import StoreError
from nicegnn.explain.explanation import Explanation
from nicegnn.store import load_tensors, save_tensors

SCORES_KIND = "bench-scores"

#: What some methods know beside their scores; stored where a method has it.
BOND_EXTRAS = ("bond_big", "bond_stderr", "bond_gate")
GRAPH_EXTRAS = ("completeness_gap", "risk_corrupted", "risk_boundary", "restored")


@dataclass(frozen=True)
class Scores:
    """What an explainer said about each graph, or about each node of one graph.

    Attributes:
        positions: of the graphs or nodes in their part of the dataset, ``[B]``.
        bond_ptr: first bond of each graph, and one past the last, ``[B + 1]``.
        bond_score: what ranks the bonds, ``[M]``.
        bond_reached: bonds that can influence the explained output, ``[M]``.
        explained: explained class of each graph, ``[B]``.
        prediction: log-probabilities on the whole graph, ``[B, C]``.
        flags: what was noticed about each graph, see `Flag`, ``[B]``.
        extras: further values per bond or graph, where the method has them.
        facts: the part that was explained, seconds of fit and explanation, status, notes, and the
            end of the fit's history.
    """

    positions: Tensor
    bond_ptr: Tensor
    bond_score: Tensor
    bond_reached: Tensor
    explained: Tensor
    prediction: Tensor
    flags: Tensor
    extras: Mapping[str, Tensor]
    facts: Mapping[str, Any]

    @property
    def num_graphs(self) -> int:
        return int(self.positions.numel())

    @property
    def part(self) -> str:
        """Part of the dataset that was explained."""
        return str(self.facts["part"])

    @property
    def fit_seconds(self) -> float:
        """Seconds of the fit, 0 without one, nan if it was resumed and nobody knows."""
        seconds = self.facts["fit_seconds"]
        return float("nan") if seconds is None else float(seconds)

    @property
    def explain_seconds_per_graph(self) -> float:
        return float(self.facts["explain_seconds"]) / self.num_graphs


def scores_of(parts: Sequence[Explanation], positions: Tensor, facts: Mapping[str, Any]) -> Scores:
    """Collects the explanations of consecutive batches.

    Args:
        parts: explanations, on the CPU or not.
        positions: of their graphs, in the same order, ``[B]``.
    """
    sizes = [torch.bincount(part.bonds.batch, minlength=part.num_graphs).cpu() for part in parts]
    ends = torch.cat(sizes).cumsum(0)
    extras = {name: _joined(parts, name) for name in (*BOND_EXTRAS, *GRAPH_EXTRAS)}
    return Scores(
        positions=positions,
        bond_ptr=torch.cat([ends.new_zeros(1), ends]),
        bond_score=_joined(parts, "bond_score"),
        bond_reached=_joined(parts, "bond_reached"),
        explained=_joined(parts, "target"),
        prediction=_joined(parts, "prediction"),
        flags=torch.tensor([int(flag) for part in parts for flag in part.status.flags]),
        extras={name: value for name, value in extras.items() if not bool(value.isnan().all())},
        facts={
            **facts,
            "boundary": parts[0].status.boundary,
            "notes": list(dict.fromkeys(note for part in parts for note in part.status.notes)),
        },
    )


def save_scores(path: Path, identity: Mapping[str, Any], scores: Scores) -> None:
    """Writes scores with all that tells how they came about."""
    tensors = _tensors(scores)
    description = {
        "kind": SCORES_KIND,
        "key": content_hash(identity),
        "identity": dict(identity),
        "facts": dict(scores.facts),
        "extras": list(scores.extras),
        "digest": _digest(tensors),
    }
    save_tensors(path, tensors, description)


def load_scores(path: Path, identity: Mapping[str, Any] | None = None) -> Scores:
    """Reads scores; raises `StoreError` if they are damaged or have another identity."""
    tensors, description = load_tensors(path, SCORES_KIND)
    if identity is not None and description.get("key") != content_hash(identity):
        raise StoreError(f"{path} holds other scores, {description.get('key')}.")
    if description.get("digest") != _digest(tensors):
        raise StoreError(f"{path} is damaged: its content does not match its checksum.")
    extras = {name: tensors.pop(name) for name in description["extras"]}
    return Scores(**tensors, extras=extras, facts=description["facts"])


def _joined(parts: Sequence[Explanation], name: str) -> Tensor:
    return torch.cat([getattr(part, name).cpu() for part in parts])


def _tensors(scores: Scores) -> dict[str, Tensor]:
    names = ("positions", "bond_ptr", "bond_score", "bond_reached", "explained", "prediction")
    return {name: getattr(scores, name) for name in (*names, "flags")} | dict(scores.extras)


def _digest(tensors: Mapping[str, Tensor]) -> str:
    digest = hashlib.sha256()
    for name in sorted(tensors):
        value = tensors[name].contiguous()
        digest.update(f"{name}{value.dtype}{tuple(value.shape)}".encode())
        digest.update(value.numpy().data)
    return digest.hexdigest()[:24]
