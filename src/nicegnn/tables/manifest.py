"""Manifests: from which rows and by which code every table and figure in a folder was made."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from nicegnn.bench.cell import code_hash
from nicegnn.store import write_json

MANIFEST = "manifest.json"
_ROWS = (".parquet", ".json", ".safetensors")


def digest(path: str | Path) -> str:
    """Returns a short hash of a file of rows, or of all rows in a folder: names and contents."""
    path = Path(path)
    files = [path] if path.is_file() else sorted(f for f in path.rglob("*") if f.suffix in _ROWS)
    found = hashlib.sha256()
    for file in files:
        found.update((file.name if file == path else file.relative_to(path).as_posix()).encode())
        found.update(hashlib.sha256(file.read_bytes()).digest())
    return found.hexdigest()[:24]


def record(files: Iterable[Path], artefact: str, command: str, sources: Mapping[str, str]) -> None:
    """Writes what files of one folder were made from into its manifest, beside what is there.

    Args:
        files: just written, all in one folder.
        artefact: its name.
        command: that makes them again.
        sources: digests of the rows by the name of what was read.
    """
    from nicegnn import __version__

    files = list(files)
    path = files[0].parent / MANIFEST
    known = _read(path)
    about = {
        "artefact": artefact,
        "command": command,
        "sources": dict(sources),
        "nicegnn": __version__,
        "code": code_hash(),
    }
    known |= {file.name: about for file in files}
    there = {name: known[name] for name in sorted(known) if (path.parent / name).is_file()}
    write_json(path, there)


def _read(path: Path) -> dict[str, Any]:
    """Returns a manifest, or nothing where there is none that can be read."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
