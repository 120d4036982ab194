"""A self-contained HTML page: text, tables and inline SVG, readable offline and when narrow."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

from nicegnn.store import write_text

_STYLE = """
:root { --ink: #222; --faint: #667; --line: #dde; --tile: #f6f6fa; }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1080px; padding: 1.5rem; color: var(--ink);
  font: 16px/1.5 system-ui, sans-serif; background: #fff; }
h1 { font-size: 1.7rem; margin: 0 0 .3rem; } h2 { margin: 2.2rem 0 .6rem; font-size: 1.25rem; }
p.lead { color: var(--faint); margin-top: 0; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: .8rem; }
.tile { background: var(--tile); border-radius: 8px; padding: .7rem .9rem; }
.tile b { display: block; font-size: 1.45rem; }
.tile span { color: var(--faint); font-size: .85rem; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; width: 100%; }
th, td { text-align: right; padding: .35rem .6rem; border-bottom: 1px solid var(--line);
  white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
.row { border: 1px solid var(--line); border-radius: 8px; margin: .8rem 0; padding: .4rem .8rem; }
.panels { display: grid; grid-template-columns: repeat(3, 1fr); gap: .4rem; }
.panels figure { margin: 0; text-align: center; }
.panels figcaption, .caption { color: var(--faint); font-size: .85rem; }
.caption { overflow-wrap: anywhere; } .panels figure { min-width: 0; }
svg { max-width: 100%; height: auto; } code { background: var(--tile); padding: 0 .25em; }
@media (max-width: 640px) { .panels { grid-template-columns: 1fr; } body { padding: .8rem; } }
"""


class Page:
    """Collects parts of a page and writes them as one file."""

    def __init__(self, title: str, lead: str) -> None:
        self.title = title
        self._parts = [f"<h1>{escape(title)}</h1>", f'<p class="lead">{escape(lead)}</p>']

    def heading(self, text: str) -> None:
        self._parts.append(f"<h2>{escape(text)}</h2>")

    def text(self, text: str) -> None:
        self._parts.append(f"<p>{escape(text)}</p>")

    def tiles(self, values: Sequence[tuple[str, str]]) -> None:
        """Shows key numbers: (number, what it is)."""
        inner = "".join(
            f'<div class="tile"><b>{escape(number)}</b><span>{escape(what)}</span></div>'
            for number, what in values
        )
        self._parts.append(f'<div class="tiles">{inner}</div>')

    def table(self, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        header = "".join(f"<th>{escape(cell)}</th>" for cell in head)
        body = "".join(
            "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
        )
        self._parts.append(
            f'<div class="scroll"><table><thead><tr>{header}</tr></thead>'
            f"<tbody>{body}</tbody></table></div>"
        )

    def panels(self, pictures: Sequence[tuple[str, str]], caption: str) -> None:
        """Shows inline SVG pictures side by side: (svg, what it shows)."""
        inner = "".join(
            f"<figure>{svg}<figcaption>{escape(what)}</figcaption></figure>"
            for svg, what in pictures
        )
        self._parts.append(
            f'<div class="row"><div class="panels">{inner}</div>'
            f'<div class="caption">{escape(caption)}</div></div>'
        )

    def picture(self, svg: str, caption: str) -> None:
        self._parts.append(f'{svg}<p class="caption">{escape(caption)}</p>')

    def html(self) -> str:
        """Returns the whole page."""
        return (
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            '<link rel="icon" href="data:,">'
            f"<title>{escape(self.title)}</title><style>{_STYLE}</style></head>"
            f"<body>{''.join(self._parts)}</body></html>\n"
        )

    def save(self, path: str | Path) -> None:
        """Writes the page, whole or not at all."""
        write_text(path, self.html())
