"""Pictures from files, as parts of the page itself."""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass
from html import escape
from pathlib import Path

KINDS = {".png": "image/png", ".svg": "image/svg+xml"}


@dataclass(frozen=True)
class Picture:
    """One picture of a folder.

    Attributes:
        name: file name without ending, the anchor on the page.
        title: caption.
        uri: the file itself as a ``data:`` address.
    """

    name: str
    title: str
    uri: str

    def to_html(self) -> str:
        """Returns the picture with its caption."""
        return (
            f'<figure class="picture" id="figure-{escape(self.name)}"><img src="{self.uri}" '
            f'alt="{escape(self.title)}" loading="lazy"><figcaption>{escape(self.title)}'
            "</figcaption></figure>"
        )


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
    return [Picture(name, title_of(name), _uri(path)) for name, path in files.items()]


def title_of(name: str) -> str:
    """Returns a file name as a caption.

    Example:
        >>> title_of("layer_scale-gin")
        'Layer scale, gin'
    """
    words = ", ".join(re.sub(r"[_\s]+", " ", part).strip() for part in name.split("-") if part)
    return words[:1].upper() + words[1:]


def _uri(path: Path) -> str:
    content = base64.b64encode(path.read_bytes()).decode()
    return f"data:{KINDS[path.suffix.lower()]};base64,{content}"
