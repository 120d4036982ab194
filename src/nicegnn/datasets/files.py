"""Finding the files of a family in the data folder, and saying what to put where if they lack."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from nicegnn.datasets.errors import MissingDataError
from nicegnn.datasets.registry import DATASETS, Family, Layout
from nicegnn.errors import ConfigError


@dataclass(frozen=True)
class Found:
    """A layout whose files are all there."""

    layout: Layout
    files: Mapping[str, Path]  # what the reader needs
    extras: Mapping[str, Path]  # what only ``data verify`` needs, as far as it is there


def find_files(family: Family, root: Path, layout: str | None = None) -> Found:
    """Returns the preferred layout that is complete.

    Args:
        layout: name of a layout, to use only that one.

    Raises:
        ConfigError: If the family has no such layout.
        MissingDataError: If the files are not there; names them.
    """
    names = [candidate.name for candidate in family.layouts]
    if layout is not None and layout not in names:
        raise ConfigError(f"layout: expected one of {', '.join(names)}, got {layout!r}.")
    wanted = [item for item in family.layouts if layout in (None, item.name)]
    for item in wanted:
        for candidate in item.candidates:
            paths = {role: root / place for role, place in candidate.items()}
            files = {role: path for role, path in paths.items() if role not in item.extras}
            if all(path.is_file() for path in files.values()):
                extras = {r: p for r, p in paths.items() if r in item.extras and p.is_file()}
                return Found(item, files, extras)
    raise MissingDataError(_missing(family, root, wanted))


def _missing(family: Family, root: Path, layouts: list[Layout]) -> str:
    lines = [f"{family.name}: expected one of these sets of files in {root}:"]
    for item in layouts:
        for candidate in item.candidates:
            places = [place for role, place in candidate.items() if role not in item.extras]
            marks = [p if not (root / p).is_file() else f"{p} (there)" for p in places]
            lines.append(f"  {item.name}: {', '.join(marks)}")
    name = next(facts.name for facts in DATASETS.values() if facts.family == family.name)
    lines.append(
        "Set NICEGNN_DATA or pass root= if they lie elsewhere; "
        f"`nicegnn data download {name}` fetches the published files."
    )
    return "\n".join(lines)
