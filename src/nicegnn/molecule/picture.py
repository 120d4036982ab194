"""Colours for numbers, and pictures that RDKit's drawers paint as SVG or PNG."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nicegnn.config import Positive, check_number
from nicegnn.errors import ConfigError
from nicegnn.molecule.smiles import require_rdkit
from nicegnn.store import write_whole

if TYPE_CHECKING:
    from rdkit.Chem import Mol

Size = tuple[int, int]  # width and height in pixels
Place = tuple[float, float]
UNLABELLED = "unlabelled"  # property of a graph whose nodes are points
DRAW = "rdkit.Chem.Draw.rdMolDraw2D"
Paint = Callable[["Brush"], None]

_FINE = 2  # RDKit places letters in whole pixels, so it draws an SVG larger
#: What RDKit tells of every shape although it holds anyway.
_NEEDLESS = re.compile(
    r"fill-rule:evenodd;|fill-opacity:1;|stroke-miterlimit:10;|stroke:#\w{6};stroke-width:0\.0px;"
    r"|stroke-linecap:butt;|stroke-linejoin:miter;|;?stroke-opacity:1;?|(?<=\d)\.0(?=[ ,'])"
)
_SHAPE = re.compile(r"<(path|ellipse)( [^>]*?class='((?:bond|atom)-\d+)[^>]*?)\s*/>")


@dataclass(frozen=True)
class Palette:
    """Colours of a picture, as ``#rrggbb``; colour-blind readers can tell the defaults apart."""

    positive: str = "#d55e00"  # strongest positive value
    negative: str = "#0072b2"  # strongest negative value
    truth: str = "#009e73"  # outline of bonds known to be true
    weak: str = "#f7f4f0"  # value zero, where both ramps start
    ink: str = "#111111"  # lines and letters; outline of the best bonds
    faint: str = "#555555"  # numbers of atoms
    ground: str | None = "#ffffff"  # background; None for a transparent one


#: Palettes by name: one hue for scores, another for gates (masks in [0, 1]).
PALETTES = {
    "score": Palette(),
    "gate": Palette(positive="#7b52ab"),
    "dark": Palette("#ff8c42", "#4aa8e0", "#35d0a0", "#24272e", "#f0f0f0", "#b8bcc4", "#16181d"),
}


@dataclass(frozen=True)
class Ramp:
    """Colours for numbers from 0 to ``limit``, or from ``-limit`` to ``limit`` if signed."""

    palette: Palette
    limit: float  # number of the full colour
    signed: bool = False  # whether negative numbers get the second hue; otherwise they count as 0

    def colour(self, value: float) -> str | None:
        """Returns the colour of a number, None for one that is as good as nothing."""
        size = abs(value) if self.signed else max(value, 0.0)
        level = min(size / self.limit, 1.0) if self.limit > 0 else 0.0
        if not level >= 0.01:  # or nan
            return None
        strong = self.palette.negative if value < 0 else self.palette.positive
        pairs = zip(rgb(self.palette.weak), rgb(strong), strict=True)
        return "#" + "".join(f"{round(255 * (a + (b - a) * level)):02x}" for a, b in pairs)


def rgb(colour: str) -> tuple[float, float, float]:
    if not isinstance(colour, str) or not re.fullmatch(r"#[0-9a-fA-F]{6}", colour):
        raise ConfigError(f"A colour must be written as '#rrggbb' (got {colour!r}).")
    red, green, blue = (int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5))
    return red, green, blue


class Brush:
    """One of RDKit's drawers, told in pixels of the picture, whatever the scale."""

    def __init__(self, sizes: tuple[int, ...], scale: float, *, is_svg: bool) -> None:
        kinds = require_rdkit(DRAW)
        drawer = (kinds.MolDraw2DSVG if is_svg else kinds.MolDraw2DCairo)(
            *(round(scale * length) for length in sizes)
        )
        self.drawer, self.scale, self._is_svg = drawer, scale, is_svg
        self.notes: list[tuple[int, int, dict[str, str]]] = []  # ranges of the SVG, notes in them
        self.texts: list[str] = []  # of the SVG
        self.places: list[list[Place]] = []  # of the atoms of each molecule
        options = drawer.drawOptions()
        options.minFontSize, options.maxFontSize = 1, 1000

    def point(self, x: float, y: float) -> Any:
        return require_rdkit("rdkit.Geometry").Point2D(x * self.scale, y * self.scale)

    def words(self, x: float, y: float, text: str, size: float, colour: str, side: int = 0) -> None:
        """Writes a line in the middle of x and y; with `side` 1 it starts there, with 2 it ends."""
        if self._is_svg:
            anchor = ("middle", "start", "end")[side]
            self.texts.append(
                f"<text x='{x:.1f}' y='{y + 0.35 * size:.1f}' font-size='{size:g}' fill='{colour}' "
                "font-family='Helvetica, Arial, DejaVu Sans, sans-serif' "
                f"text-anchor='{anchor}'>{escape(text)}</text>"
            )
            return
        self.drawer.SetColour(rgb(colour))
        self.drawer.SetFontSize(size * self.scale)
        text = text.replace("−", "-").replace("…", "...")  # RDKit's font has few letters
        self.drawer.DrawString(text, self.point(x, y), side, True)

    def box(self, x: float, y: float, width: float, height: float, colour: str) -> None:
        self.drawer.SetColour(rgb(colour))
        self.drawer.SetFillPolys(True)
        self.drawer.SetLineWidth(0)
        self.drawer.DrawRect(self.point(x, y), self.point(x + width, y + height), True)

    def outline(self, start: Place, end: Place, radius: float, colour: str) -> None:
        """Draws a line around the line between two places, or a ring around one place."""
        turn = math.atan2(end[1] - start[1], end[0] - start[0])
        rim = [
            self.point(x + radius * math.cos(angle), y + radius * math.sin(angle))
            for (x, y), first in ((start, turn + math.pi / 2), (end, turn - math.pi / 2))
            for angle in (first + math.pi * step / 12 for step in range(13))
        ]
        self.drawer.SetColour(rgb(colour))
        self.drawer.SetFillPolys(False)
        self.drawer.SetLineWidth(1.8 * self.scale)
        self.drawer.DrawPolygon([*rim, rim[0]], True)

    def molecule(
        self,
        mol: Mol,
        corner: Place,
        colours: Mapping[str, Mapping[int, Any]],
        notes: dict[str, str],
        ink: str,
        length: float,
    ) -> list[Place]:
        """Draws a molecule in the panel with this corner; returns the places of its atoms.

        Pointing at ``bond-0`` or ``atom-3`` shows its note. No bond is longer than ``length``.
        """
        options = self.drawer.drawOptions()
        options.clearBackground = options.prepareMolsBeforeDrawing = False
        options.setAtomPalette({-1: rgb(ink)})  # colour is kept for scores
        options.setSymbolColour(rgb(ink))
        options.noAtomLabels = bool(mol.HasProp(UNLABELLED))
        options.padding = 0.08
        options.fixedBondLength = self.scale * length
        options.bondLineWidth = max(1, round(1.7 * self.scale))
        options.highlightBondWidthMultiplier = max(1, round(24 / options.bondLineWidth))
        options.highlightRadius = 0.3
        start = len(self.drawer.GetDrawingText()) if self._is_svg else 0
        self.drawer.SetOffset(*(round(place * self.scale) for place in corner))
        self.drawer.DrawMolecule(
            mol,
            highlightAtoms=list(colours["atom"]),
            highlightAtomColors=colours["atom"],
            highlightBonds=list(colours["bond"]),
            highlightBondColors=colours["bond"],
        )
        if self._is_svg:
            self.notes.append((start, len(self.drawer.GetDrawingText()), notes))
        spots = (self.drawer.GetDrawCoords(atom) for atom in range(mol.GetNumAtoms()))
        self.places.append([(spot.x / self.scale, spot.y / self.scale) for spot in spots])
        return self.places[-1]


@dataclass(frozen=True)
class Picture:
    """A picture to be painted. Notebooks show it; `save` writes it."""

    size: Size
    paint: Paint
    label: str = ""  # read out where a picture cannot be seen
    panel: Size = (1, 1)  # room of each molecule

    @property
    def svg(self) -> str:
        """The picture as an SVG string, without ids and style sheets, so a page can hold many."""
        return self._painted[0]

    @property
    def points(self) -> list[Place]:
        """The place of each atom of the first molecule."""
        return self._painted[1][0]

    @cached_property
    def _painted(self) -> tuple[str, list[list[Place]]]:
        brush = Brush((*self.size, *self.panel), _FINE, is_svg=True)
        self.paint(brush)
        text = brush.drawer.GetDrawingText()
        for start, end, notes in reversed(brush.notes):
            shapes = _SHAPE.sub(partial(_told, notes), text[start:end])
            text = text[:start] + shapes + text[end:]
        body = text.partition("<!-- END OF HEADER -->")[2].replace("</svg>", "").strip()
        width, height = self.size
        svg = (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 '
            f'0 {width} {height}" role="img" aria-label="{escape(self.label)}">\n'
            f"<g transform='scale({1 / _FINE:g})'>\n{_NEEDLESS.sub('', body)}\n</g>\n"
            f"{''.join(brush.texts)}\n</svg>"
        )
        return svg, brush.places

    def png(self, scale: float = 2.0) -> bytes:
        """Returns the bytes of a PNG file with `scale` times as many pixels."""
        check_number("scale", scale, Positive)
        brush = Brush((*self.size, *self.panel), scale, is_svg=False)
        self.paint(brush)
        brush.drawer.FinishDrawing()
        return bytes(brush.drawer.GetDrawingText())

    def save(self, path: str | Path) -> Path:
        """Writes an SVG or PNG file, told by the end of its name."""
        path = Path(path)
        if (kind := path.suffix.lower()) not in (".svg", ".png"):
            raise ConfigError(f"`path` must end with .svg or .png (got {str(path)!r}).")
        content = self.svg.encode() if kind == ".svg" else self.png()
        write_whole(path, lambda part: part.write_bytes(content))
        return path

    def _repr_svg_(self) -> str:
        return self.svg


def _told(notes: dict[str, str], shape: re.Match[str]) -> str:
    """Returns a shape of RDKit with the note of its bond or atom."""
    tag, facts, part = shape.groups()
    note = notes.get(part, "")
    return f"<{tag}{facts}><title>{escape(note)}</title></{tag}>" if note else shape[0]
