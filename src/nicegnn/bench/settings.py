"""Settings of each explainer, from a table by its name; unknown names are errors."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from torch import nn

from nicegnn.bench.targets import TARGETS
from nicegnn.datasets import DATASETS
from nicegnn.errors import ConfigError
from nicegnn.explain.explainer import Explainer
from nicegnn.rivals.registry import find_entry, get_explainer

#: Read by the command if it exists and no other file is named.
DEFAULT_FILE = Path("configs/explainers.toml")

Tables = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Choice:
    """An explainer as it will run.

    Attributes:
        explainer: its name.
        mechanism: ``em``, ``nc``, or empty where it perturbs no messages.
        learns: whether it is fitted first.
        values: settings that differ from its defaults.
    """

    explainer: str
    mechanism: str
    learns: bool
    values: Mapping[str, Any]

    def make(self, model: nn.Module, seed: int) -> Explainer:
        """Returns the explainer of a model."""
        return get_explainer(
            self.explainer, model, mechanism=self.mechanism or None, **self.values, seed=seed
        )


def read_settings(path: str | Path) -> dict[str, dict[str, Any]]:
    """Reads a TOML file with a table per explainer.

    ``[pgexplainer]`` holds for both mechanisms, ``["pgexplainer+nc"]`` goes on top of it for one,
    ``[benzene.pgexplainer]`` on top of both for one dataset, and ``[gcn.benzene.pgexplainer]`` on
    top of all for one target.
    Settings of NICE's components are written ``boundary__steps = 100``.
    """
    try:
        tables = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"Cannot read settings of explainers from {path}: {error}") from error
    try:
        check_tables(tables)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error
    return tables


def check_tables(tables: Tables) -> None:
    """Raises `ConfigError` unless tables are of explainers, or of datasets or targets with such."""
    for name, table in tables.items():
        if _is_group(name) and isinstance(table, Mapping):
            check_tables(table)
            continue
        entry, mechanism = find_entry(name)
        if mechanism is not None and mechanism not in entry.mechanisms:
            known = " or ".join(entry.mechanisms) or "none"
            raise ConfigError(f"The mechanism of {name!r} must be {known} (got {mechanism!r}).")
        if not isinstance(table, Mapping):
            raise ConfigError(
                f"Settings of {name!r} must be a table, [{name}] in TOML (got {table!r})."
            )
        if "seed" in table:
            raise ConfigError(
                f"Settings of {name!r} must not hold `seed`: it comes from the benchmark."
            )
        if table.get("undirected") is False:
            raise ConfigError(
                f"Settings of {name!r} must leave `undirected` true: bonds are compared."
            )


def settings_for(tables: Tables, dataset: str, target: str) -> dict[str, dict[str, Any]]:
    """Returns the tables of explainers as they hold for one dataset and target."""
    merged: dict[str, dict[str, Any]] = {}
    own = tables.get(target, {})
    for layer in (tables, tables.get(dataset, {}), own, own.get(dataset, {})):
        for name, table in layer.items():
            if not _is_group(name):
                merged[name] = merged.get(name, {}) | dict(table)
    return merged


def choose(name: str, tables: Tables) -> Choice:
    """Returns the explainer that a name such as ``gnnexplainer+nc`` asks for."""
    entry, asked = find_entry(name)
    try:
        mechanisms, learns = entry.mechanisms, entry.learns
    except ImportError as error:
        raise ConfigError(f"Explainer {entry.name!r} cannot be loaded: {error}.") from error
    values = dict(tables.get(entry.name, {}))
    named = values.pop("mechanism", None)
    mechanism = asked or named or (mechanisms[0] if mechanisms else "")
    if mechanism and mechanism not in mechanisms:
        raise ConfigError(
            f"{entry.name} works with mechanism {' or '.join(map(repr, mechanisms)) or 'none'} "
            f"(got {mechanism!r})."
        )
    values |= tables.get(f"{entry.name}+{mechanism}", {})
    return Choice(entry.name, mechanism, learns, values)


def full_settings(explainer: Any, values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns every setting of an explainer, defaults included, as plain values."""
    shell = {key: values[key] for key in ("mode", "return_type", "inputs") if key in values}
    return asdict(explainer.config) | shell


def _is_group(name: str) -> bool:
    """Returns whether a table of this name holds tables of explainers."""
    return name in DATASETS or name in TARGETS
