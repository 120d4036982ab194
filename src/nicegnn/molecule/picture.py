"""Pictures made of outlines and words, with colours for values; written as SVG, PNG or PDF.

A picture knows nothing of molecules. SVG needs no other package, PNG and PDF need matplotlib. SVG
strings define no ids and no style sheet, so one HTML page can hold any number of them.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nicegnn.errors import ConfigError, NicegnnError
from nicegnn.store import write_whole

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Size = tuple[int, int]  # width and height in pixels

FORMATS = (".svg", ".png", ".pdf")
INK = "#222222"
# widths of letters in heights of the font, a little more than those of common fonts
_NARROW, _LETTER, _WIDE, _BOLD = 0.36, 0.58, 0.76, 1.06
_STEPS = 32  # shades of a colour bar


@dataclass(frozen=True)
class Palette:
    """Colours of a picture, as ``#rrggbb``; colour-blind readers can tell the defaults apart."""

    positive: str = "#d55e00"  # strongest positive value
    negative: str = "#0072b2"  # strongest negative value of a signed picture
    truth: str = "#009e73"  # bonds known to be true
    weak: str = "#f7f4f0"  # value zero, where both ramps start
    top: str = "#222222"  # outline of the best bonds


#: Palettes by name: one hue for scores, another for gates (masks in [0, 1]).
PALETTES = {"score": Palette(), "gate": Palette(positive="#7b52ab")}


def find_palette(palette: str | Palette) -> Palette:
    """Returns a palette by its name, or the palette that was passed."""
    if isinstance(palette, Palette):
        return palette
    if not isinstance(palette, str) or palette not in PALETTES:
        names = [*PALETTES]
        raise ConfigError(f"`palette` must be one of {names} or a Palette (got {palette!r}).")
    return PALETTES[palette]


@dataclass(frozen=True)
class Ramp:
    """Colours for numbers from 0 to ``limit``, or from ``-limit`` to ``limit`` if signed."""

    palette: Palette
    limit: float  # number of the full colour
    signed: bool = False  # whether negative numbers get the second hue; otherwise they count as 0

    def level(self, value: float) -> float:
        """Returns the strength of a number in [0, 1]."""
        shown = abs(value) if self.signed else max(value, 0.0)
        return min(shown / self.limit, 1.0) if self.limit > 0 else 0.0

    def colour(self, value: float) -> str:
        """Returns the colour of a number."""
        strong = self.palette.negative if self.signed and value < 0 else self.palette.positive
        return mix(self.palette.weak, strong, self.level(value))


def make_ramp(
    values: Iterable[float],
    palette: Palette,
    *,
    signed: bool | None = None,
    limit: float | None = None,
) -> Ramp:
    """Returns the ramp of some numbers: signed if any is negative, up to the largest of them."""
    values = list(values)
    if limit is not None and not (isinstance(limit, int | float) and 0 < limit < math.inf):
        raise ConfigError(f"`limit` must be a number above 0 (got {limit!r}).")
    if signed is None:
        signed = any(value < 0 for value in values)
    if limit is None:
        limit = max((abs(value) if signed else max(value, 0.0) for value in values), default=0.0)
    return Ramp(palette, float(limit), signed)


def mix(weak: str, strong: str, level: float) -> str:
    """Returns the colour at ``level`` in [0, 1] on the straight line between two colours."""
    pairs = zip(rgb(weak), rgb(strong), strict=True)
    return "#" + "".join(f"{round(a + (b - a) * level):02x}" for a, b in pairs)


def rgb(colour: str) -> tuple[int, int, int]:
    """Returns red, green and blue of a colour, 0 to 255 each."""
    if not isinstance(colour, str) or not re.fullmatch(r"#[0-9a-fA-F]{6}", colour):
        raise ConfigError(f"A colour must be written as '#rrggbb' (got {colour!r}).")
    red, green, blue = (int(colour[start : start + 2], 16) for start in (1, 3, 5))
    return red, green, blue


@dataclass(frozen=True)
class Shape:
    """An outline: SVG path data with the commands M, L, Q, C and Z, absolute coordinates."""

    path: str
    fill: str = "none"
    stroke: str = "none"
    width: float = 1.0
    is_round: bool = False  # whether a line has round ends
    dash: tuple[float, ...] = ()
    kind: str = ""  # class of the SVG element
    note: str = ""  # shown when one points at it

    def svg(self) -> str:
        """Returns the SVG element."""
        words = [f"class='{self.kind}'"] if self.kind else []
        words += [f"d='{self.path}'", f"fill='{self.fill}'"]
        if self.stroke != "none":
            words += [f"stroke='{self.stroke}'", f"stroke-width='{self.width:.2f}'"]
            if self.is_round:
                # a style, since the sheets of other drawings on a page overrule attributes
                words.append("style='stroke-linecap:round'")
            if self.dash:
                words.append(f"stroke-dasharray='{','.join(map(str, self.dash))}'")
        inner = f"<title>{escape(self.note)}</title>" if self.note else ""
        return f"<path {' '.join(words)}>{inner}</path>" if inner else f"<path {' '.join(words)}/>"


@dataclass(frozen=True)
class Words:
    """A line of text; ``y`` is its base line."""

    x: float
    y: float
    text: str
    size: float = 12.0  # height of the font in pixels
    anchor: str = "middle"  # what lies at x: "start", "middle" or "end"
    colour: str = INK
    is_bold: bool = False

    def svg(self) -> str:
        """Returns the SVG element."""
        bold = " font-weight='bold'" if self.is_bold else ""
        return (
            f"<text x='{self.x:.1f}' y='{self.y:.1f}' font-size='{self.size:g}' "
            f"font-family='Helvetica, Arial, DejaVu Sans, sans-serif' text-anchor='{self.anchor}' "
            f"fill='{self.colour}'{bold}>{escape(self.text)}</text>"
        )


@dataclass(frozen=True)
class Placed:
    """A picture inside another, with its upper left corner at x and y."""

    x: float
    y: float
    picture: Picture

    def svg(self) -> str:
        """Returns the SVG element."""
        inner = "\n".join(part.svg() for part in self.picture.parts)
        label = escape(self.picture.label)
        place = f"transform='translate({self.x:g},{self.y:g})'"
        return f"<g {place} role='img' aria-label='{label}'>\n{inner}\n</g>"


@dataclass(frozen=True)
class Picture:
    """Shapes and words from back to front. Notebooks show it; `save` writes it."""

    size: Size
    parts: tuple[Shape | Words | Placed, ...]
    label: str = ""  # read out where a picture cannot be seen

    @property
    def svg(self) -> str:
        """The picture as an SVG string."""
        width, height = self.size
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
            f'viewBox="0 0 {width} {height}" role="img" aria-label="{escape(self.label)}">'
        )
        return "\n".join([head, *(part.svg() for part in self.parts), "</svg>"])

    def png(self, scale: float = 2.0) -> bytes:
        """Returns the bytes of a PNG file with `scale` times as many pixels."""
        if not (isinstance(scale, int | float) and 0 < scale < math.inf):
            raise ConfigError(f"`scale` must be a number above 0 (got {scale!r}).")
        return self._render("png", 72 * scale)

    def save(self, path: str | Path) -> Path:
        """Writes an SVG, PNG or PDF file, told by the end of its name."""
        path = Path(path)
        kind = path.suffix.lower()
        if kind not in FORMATS:
            raise ConfigError(f"`path` must end with one of {FORMATS} (got {str(path)!r}).")
        if kind == ".svg":
            content = self.svg.encode()
        else:
            content = self.png() if kind == ".png" else self._render("pdf", 72)
        write_whole(path, lambda part: part.write_bytes(content))
        return path

    def _repr_svg_(self) -> str:
        return self.svg

    def __repr__(self) -> str:
        return f"Picture({self.label!r}, {self.size[0]} x {self.size[1]} pixels)"

    def _render(self, kind: str, dpi: float) -> bytes:
        figure = _figure(self.size)
        axes = figure.add_axes((0, 0, 1, 1))
        axes.set(xlim=(0, self.size[0]), ylim=(self.size[1], 0))
        axes.set_axis_off()
        for order, (part, x, y) in enumerate(_flat(self, 0.0, 0.0)):
            _put(axes, part, x, y, order)
        content = io.BytesIO()
        figure.savefig(content, format=kind, dpi=dpi, transparent=True)
        return content.getvalue()


def grid(pictures: Sequence[Picture], columns: int, *, label: str, gap: int = 8) -> Picture:
    """Returns pictures in rows, from left to right; every cell is as large as the largest."""
    if type(columns) is not int or columns < 1:
        raise ConfigError(f"`columns` must be a whole number of at least 1 (got {columns!r}).")
    if not pictures:
        raise ConfigError("`pictures` must hold at least one picture (got none).")
    columns = min(columns, len(pictures))
    width = max(picture.size[0] for picture in pictures)
    height = max(picture.size[1] for picture in pictures)
    parts = [
        Placed(place % columns * (width + gap), place // columns * (height + gap), picture)
        for place, picture in enumerate(pictures)
    ]
    rows = -(-len(pictures) // columns)
    size = columns * (width + gap) - gap, rows * (height + gap) - gap
    return Picture(size, tuple(parts), label)


def stack(pictures: Sequence[Picture], *, label: str, background: str | None = None) -> Picture:
    """Returns pictures one below the other, each in the middle."""
    width = max(picture.size[0] for picture in pictures)
    parts: list[Shape | Placed] = []
    y = 0
    for picture in pictures:
        parts.append(Placed((width - picture.size[0]) / 2, y, picture))
        y += picture.size[1]
    return Picture((width, y), (*backdrop((width, y), background), *parts), label)


def backdrop(size: Size, colour: str | None) -> tuple[Shape, ...]:
    """Returns a rectangle behind a picture, or nothing for a transparent one."""
    if colour is None:
        return ()
    rgb(colour)  # raises unless it is a colour
    return (Shape(rectangle(0, 0, *size), fill=colour, kind="background"),)


def title_line(text: str, width: int, *, size: float = 13.0, is_bold: bool = True) -> Picture:
    """Returns a title that fits into the width; too long a text ends with an ellipsis."""
    height = round(2 * size)
    short = shortened(text, width - 8, size, is_bold=is_bold)
    words = Words(width / 2, 1.4 * size, short, size, is_bold=is_bold)
    return Picture((width, height), (words,), text)


def colour_bars(ramps: Sequence[tuple[str, Ramp]], width: int) -> Picture:
    """Returns a line per ramp: its name, and a bar of colours between its two numbers."""
    size, high = 11.0, 22
    lows = [f"−{ramp.limit:.2g}" if ramp.signed else "0" for _, ramp in ramps]
    tops = [f"{ramp.limit:.2g}" for _, ramp in ramps]
    columns = [name for name, _ in ramps], lows, tops
    wide, before, after = (max(text_width(text, size) for text in one) for one in columns)
    bar = max(24.0, min(110.0, width - wide - before - after - 28))
    start = (width - wide - before - bar - after - 22) / 2 + wide + before + 16  # of the bars
    parts: list[Shape | Words] = []
    for row, ((name, ramp), low, top) in enumerate(zip(ramps, lows, tops, strict=True)):
        y, step = high * row + 15.0, bar / _STEPS
        lowest = -ramp.limit if ramp.signed else 0.0
        parts.append(Words(start - 16 - before, y, name, size, "end"))
        parts.append(Words(start - 6, y, low, size, "end"))
        for number in range(_STEPS):
            value = lowest + (ramp.limit - lowest) * (number + 0.5) / _STEPS
            over = 0.4 if number < _STEPS - 1 else 0.0  # no seams between neighbours
            path = rectangle(start + number * step, y - 9, step + over, 10)
            parts.append(Shape(path, fill=ramp.colour(value)))
        parts.append(Shape(rectangle(start, y - 9, bar, 10), stroke="#999999", width=0.7))
        parts.append(Words(start + bar + 6, y, top, size, "start"))
    label = "; ".join(f"{n} from {u} to {v}" for n, u, v in zip(*columns, strict=True))
    return Picture((width, high * len(ramps)), tuple(parts), label)


def key_line(entries: Sequence[tuple[str, str]], width: int) -> Picture:
    """Returns a line of outlined bars with their meaning; an entry is a colour and its words."""
    size, y = 11.0, 15.0
    widths = [26 + text_width(text, size) for _, text in entries]
    x = (width - sum(widths) - 14 * (len(entries) - 1)) / 2
    parts: list[Shape | Words] = []
    for (colour, text), wide in zip(entries, widths, strict=True):
        path = f"M {x + 5:.1f},{y - 4:.1f} L {x + 15:.1f},{y - 4:.1f}"
        parts.append(Shape(path, stroke=colour, width=9, is_round=True))
        parts.append(Shape(path, stroke="#f7f4f0", width=5.5, is_round=True))
        parts.append(Words(x + 25, y, text, size, "start"))
        x += wide + 14
    return Picture((width, 22), tuple(parts), ", ".join(text for _, text in entries))


def text_width(text: str, size: float, *, is_bold: bool = False) -> float:
    """Returns about how wide a text is, in pixels."""
    widths = (
        _NARROW if c in " ,.:;'|!()[]ijlt-" else _WIDE if c.isupper() or c in "=+@%…mw" else _LETTER
        for c in text
    )
    return math.fsum(widths) * size * (_BOLD if is_bold else 1.0)


def shortened(text: str, width: float, size: float, *, is_bold: bool = False) -> str:
    """Returns a text that fits into the width, an ellipsis for its middle if it must be."""
    short, kept = text, len(text)
    while kept > 1 and text_width(short, size, is_bold=is_bold) > width:
        kept -= 1
        head = -(-kept * 2 // 3)
        short = f"{text[:head]}…{text[len(text) - (kept - head) :]}"
    return short


def rectangle(x: float, y: float, width: float, height: float) -> str:
    """Returns the path of a rectangle."""
    corners = (x, y), (x + width, y), (x + width, y + height), (x, y + height)
    return "M " + " L ".join(f"{u:.1f},{v:.1f}" for u, v in corners) + " Z"


def circle(x: float, y: float, radius: float) -> str:
    """Returns the path of a circle, as four curves."""
    r, k = radius, 0.5523 * radius
    steps = (
        ((x + r, y + k), (x + k, y + r), (x, y + r)),
        ((x - k, y + r), (x - r, y + k), (x - r, y)),
        ((x - r, y - k), (x - k, y - r), (x, y - r)),
        ((x + k, y - r), (x + r, y - k), (x + r, y)),
    )
    curves = (" ".join(f"{u:.1f},{v:.1f}" for u, v in step) for step in steps)
    return f"M {x + r:.1f},{y:.1f} C " + " C ".join(curves) + " Z"


def check_size(size: Size) -> None:
    """Raises `ConfigError` unless a size is two whole numbers of at least 1."""
    is_pair = isinstance(size, Sequence) and len(size) == 2
    if not is_pair or not all(type(length) is int and length >= 1 for length in size):
        raise ConfigError(
            f"`size` must be width and height in whole pixels, at least 1 each (got {size!r})."
        )


def _figure(size: Size) -> Figure:
    """Returns an empty figure of one point per pixel, which belongs to no window."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure as New
    except ImportError as error:
        raise NicegnnError(
            "PNG and PDF need matplotlib; install it with pip install 'nicegnn[plots]', or write "
            "an .svg file."
        ) from error
    figure = New(figsize=(size[0] / 72, size[1] / 72))
    FigureCanvasAgg(figure)
    return figure


def _flat(picture: Picture, x: float, y: float) -> Iterable[tuple[Shape | Words, float, float]]:
    """Yields shapes and words with the place of the picture they belong to."""
    for part in picture.parts:
        if isinstance(part, Placed):
            yield from _flat(part.picture, x + part.x, y + part.y)
        else:
            yield part, x, y


def _put(axes: Any, part: Shape | Words, x: float, y: float, order: int) -> None:
    """Draws one part with matplotlib."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path as Outline

    if isinstance(part, Words):
        axes.text(
            x + part.x,
            y + part.y,
            part.text,
            fontsize=part.size,
            ha={"start": "left", "middle": "center", "end": "right"}[part.anchor],
            va="baseline",
            color=part.colour,
            weight="bold" if part.is_bold else "normal",
            zorder=order,
            parse_math=False,
        )
        return
    points, codes = [], []
    kinds = {"M": Outline.MOVETO, "L": Outline.LINETO, "Q": Outline.CURVE3, "C": Outline.CURVE4}
    for command, text in re.findall(r"([MLQCZ])([^MLQCZ]*)", part.path):
        numbers = [float(number) for number in re.findall(r"-?[\d.]+", text)]
        here = [(x + u, y + v) for u, v in zip(numbers[::2], numbers[1::2], strict=True)]
        if command == "Z":
            here, code = [(0.0, 0.0)], Outline.CLOSEPOLY
        else:
            code = kinds[command]
        points += here
        codes += [code] * len(here)
    dash = (0, tuple(length / part.width for length in part.dash)) if part.dash else "solid"
    patch = PathPatch(
        Outline(points, codes),
        facecolor=part.fill,
        edgecolor=part.stroke,
        linewidth=part.width if part.stroke != "none" else 0,
        capstyle="round" if part.is_round else "butt",
        joinstyle="miter",
        linestyle=dash,
        zorder=order,
    )
    axes.add_patch(patch)
