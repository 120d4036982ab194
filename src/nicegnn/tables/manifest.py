"""Manifests: from which rows every table and figure in a folder was made."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from nicegnn.bench.rows import Folder
from nicegnn.store import write_json

MANIFEST = "manifest.json"


def digest(source: str | Path) -> str:
    """Returns a short hash of a file, or of the rows of a family in its folder.

    Of a packed family it begins what ``sha256sum packed.parquet`` prints. Rows that are not packed
    yet count too, by their names and contents.
    """
    source = Path(source)
    if source.is_file():
        return _hash(source)[:24]
    folder = Folder(source)
    packed = [folder.packed] if folder.packed.is_file() else []
    files = packed + sorted(folder.rows("*").parent.glob("*.parquet"))
    if files == packed != []:
        return _hash(folder.packed)[:24]
    lines = [f"{file.relative_to(source).as_posix()} {_hash(file)}" for file in files]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:24]


def record(files: Iterable[Path], artefact: str, command: str, sources: Mapping[str, str]) -> None:
    """Writes what files of one folder were made from into its manifest, beside what is there.

    Entries of files that are gone are dropped. The manifest has no entry about itself.

    Args:
        files: just written, all in one folder.
        artefact: its name.
        command: that makes them again.
        sources: digests of the rows by the name of what was read.
    """
    from nicegnn import __version__

    files = list(files)
    if not files:
        return
    path = files[0].parent / MANIFEST
    about = {
        "artefact": artefact,
        "command": command,
        "sources": dict(sources),
        "nicegnn": __version__,
    }
    known = _read(path) | {file.name: about for file in files}
    write_json(path, {n: known[n] for n in sorted(known) if (path.parent / n).is_file()})


def _hash(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _read(path: Path) -> dict[str, Any]:
    """Returns a manifest, or nothing where there is none that can be read."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
