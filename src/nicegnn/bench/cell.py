"""A cell, the unit of work of a benchmark or study, and the key that names its files."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from nicegnn.bench.study import Variant
from nicegnn.datasets import MoleculeDataset
from nicegnn.explain.explainer import Explainer

#: Part of every key: raise it when the way cells are explained or measured changes.
RUNNER_VERSION = 1

#: What tells cells apart in rows: study, dataset, target, explainer, mechanism, setting, level,
#: seed. The level is minus infinity where there is none, so that names can be compared.
Name = tuple[str, str, str, str, str, str, float, int]

#: Settings that say how much is computed at once and change no number.
_SIZES = ("chunk_edges",)


@dataclass(frozen=True)
class Cell:
    """One line of a study on one dataset and target with one seed.

    Attributes:
        stand_in: whether the dataset's molecules stand in for the published ones.
        identity: everything that can change its rows, as plain values; ``scores`` is the part that
            can change the scores.
    """

    study: str
    dataset: str
    stand_in: bool
    target: str
    variant: Variant
    seed: int
    identity: Mapping[str, Any]

    @property
    def explainer(self) -> str:
        return self.variant.explainer

    @property
    def mechanism(self) -> str:
        return self.variant.mechanism

    @property
    def setting(self) -> str:
        return self.variant.setting

    @property
    def level(self) -> float:
        return float(self.variant.level)

    @property
    def name(self) -> Name:
        """What tells cells apart in a table of results."""
        return name_of(self.to_dict())

    @property
    def key(self) -> str:
        """Names the rows: a hash of all that can change them."""
        return content_hash(self.identity)

    def to_dict(self) -> dict[str, Any]:
        """Returns the name as plain values."""
        return {
            "study": self.study,
            "dataset": self.dataset,
            "stand_in": self.stand_in,
            "target": self.target,
            "explainer": self.explainer,
            "mechanism": self.mechanism,
            "setting": self.setting,
            "level": None if math.isnan(self.level) else self.level,
            "seed": self.seed,
        }

    def __str__(self) -> str:
        mechanism = f"+{self.mechanism}" if self.mechanism else ""
        level = "" if math.isnan(self.level) else f"{self.level:g}"
        words = (f"{self.explainer}{mechanism}", self.setting, level)
        said = " ".join(word for word in words if word)
        return f"{self.dataset} {self.target} {said} seed {self.seed}"


def name_of(cell: Mapping[str, Any]) -> Name:
    """Returns the name of the cell that `Cell.to_dict` described."""
    level = cell.get("level")
    return (
        *(cell["study"], cell["dataset"], cell["target"], cell["explainer"], cell["mechanism"]),
        cell.get("setting", ""),
        -math.inf if level is None else float(level),
        int(cell["seed"]),
    )


def content_hash(content: Any) -> str:
    """Returns a short hash of plain values, whatever the order of their names."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def without_defaults(values: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the values that differ from their defaults, so that a new default changes no key.

    Example:
        >>> without_defaults({"steps": 5, "new": 0}, {"steps": 3, "new": 0})
        {'steps': 5}
    """
    plain = json.loads(json.dumps([dict(values), dict(defaults)]))  # a tuple equals its list
    return {k: v for k, v in plain[0].items() if k not in plain[1] or plain[1][k] != v}


def flat_settings(config: Any) -> dict[str, Any]:
    """Returns the settings of an explainer by name, those of NICE's parts as ``boundary__steps``.

    Seed and mechanism are left out: a cell has them by themselves.
    """
    flat: dict[str, Any] = {}
    for name, value in asdict(config).items():
        if isinstance(value, Mapping):
            flat |= {f"{name}__{key}": item for key, item in value.items()}
        elif name not in ("seed", "mechanism", *_SIZES):
            flat[name] = value
    return flat


def config_of(explainer: Any) -> Any:
    """Returns the settings object of an explainer."""
    return explainer.config


def changed_settings(
    explainer: Explainer, default: Explainer, shell: Mapping[str, Any]
) -> dict[str, Any]:
    """Returns what differs between an explainer and the same one with its defaults.

    Args:
        shell: settings that no config holds: ``mode``, ``return_type`` and ``inputs``.
    """
    mine, theirs = flat_settings(config_of(explainer)), flat_settings(config_of(default))
    neutral = {"mode": "auto", "return_type": "auto", "inputs": None}
    return without_defaults(mine, theirs) | without_defaults(shell, neutral)


def data_key(dataset: MoleculeDataset) -> str:
    """Returns a hash of the graphs, labels, truths and parts of a dataset."""
    tensors, task, rows = dataset.flat()
    digest = hashlib.sha256()
    for name in sorted(tensors):
        if "/" not in name or name.startswith(f"{task}/"):  # not the other tasks of its family
            _add(digest, name, tensors[name])
    _add(digest, "rows", rows)
    _add(digest, "part", dataset.part)
    return digest.hexdigest()[:24]


def _add(digest: Any, name: str, value: Any) -> None:
    digest.update(f"{name}{value.dtype}{tuple(value.shape)}".encode())
    digest.update(value.contiguous().numpy().data)
