"""Settings of each explainer, from a table by its name; unknown names are errors."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nicegnn.bench.targets import TARGETS
from nicegnn.datasets import DATASETS
from nicegnn.errors import ConfigError
from nicegnn.rivals.registry import find_entry

#: Read by the command if it exists and no other file is named.
DEFAULT_FILE = Path("configs/explainers.toml")

Tables = Mapping[str, Mapping[str, Any]]


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
        find_mechanism(name)
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


def choose(name: str, tables: Tables) -> tuple[str, str, dict[str, Any]]:
    """Returns the explainer, mechanism and settings that a name such as ``refine+nc`` asks for.

    Settings are those that differ from the explainer's defaults.
    """
    entry, asked = find_entry(name)
    values = dict(tables.get(entry.name, {}))
    named = values.pop("mechanism", "")
    _, mechanism = find_mechanism(entry.name, asked or named)
    return entry.name, mechanism, values | dict(tables.get(f"{entry.name}+{mechanism}", {}))


def find_mechanism(name: str, wanted: str = "") -> tuple[str, str]:
    """Returns an explainer's plain name and its mechanism, by default its own, empty if none.

    Example:
        >>> find_mechanism("pgexplainer+nc"), find_mechanism("nice"), find_mechanism("random")
        (('pgexplainer', 'nc'), ('nice', 'both'), ('random', ''))
    """
    entry, asked = find_entry(name)
    try:
        known = entry.mechanisms
    except ImportError as error:
        raise ConfigError(f"Explainer {entry.name!r} cannot be loaded: {error}.") from error
    mechanism = wanted or asked or (known[0] if known else "")
    if mechanism and mechanism not in known:
        names = " or ".join(map(repr, known)) or "none"
        raise ConfigError(f"`mechanism` of {entry.name} must be {names} (got {mechanism!r}).")
    return entry.name, mechanism


def _is_group(name: str) -> bool:
    """Returns whether a table of this name holds tables of explainers."""
    return name in DATASETS or name in TARGETS
