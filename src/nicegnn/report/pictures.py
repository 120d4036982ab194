"""Pictures from files, as parts of the page itself."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from pathlib import Path

from nicegnn.figures.drawing import read_caption

KINDS = {".png": "image/png", ".svg": "image/svg+xml"}


@dataclass(frozen=True)
class Picture:
    """One picture of a folder.

    Attributes:
        name: file name without ending, the anchor on the page.
        caption: what the file says about itself, or nothing.
        uri: the file itself as a ``data:`` address.
    """

    name: str
    caption: str
    uri: str


def read_pictures(folder: str | Path | None) -> list[Picture]:
    """Returns all PNG and SVG files of a folder; of two kinds of one picture the smaller file."""
    if folder is None:
        return []
    files: dict[str, Path] = {}
    for path in sorted(Path(folder).rglob("*")):
        if path.suffix.lower() not in KINDS or not path.is_file():
            continue
        name = "-".join(path.relative_to(folder).with_suffix("").parts)
        known = files.get(name)
        if known is None or path.stat().st_size < known.stat().st_size:
            files[name] = path
    return [Picture(name, _caption(path), _uri(path)) for name, path in files.items()]


def _caption(path: Path) -> str:
    return read_caption(path) if path.suffix.lower() == ".png" else ""


def _uri(path: Path) -> str:
    content = base64.b64encode(path.read_bytes()).decode()
    return f"data:{KINDS[path.suffix.lower()]};base64,{content}"
