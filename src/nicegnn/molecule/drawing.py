"""Pictures of explained graphs: each bond and each atom is coloured by its score.

RDKit draws molecules, and other graphs as molecules too, laid out by networkx.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from html import escape
from itertools import chain, compress, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from nicegnn.config import Count, Positive, check_number
from nicegnn.errors import ConfigError
from nicegnn.molecule.smiles import matched_molecule, require, require_rdkit
from nicegnn.store import write_whole

if TYPE_CHECKING:
    from rdkit.Chem import Mol

Size = tuple[int, int]  # width and height in pixels
Place = tuple[float, float]
_DRAW = "rdkit.Chem.Draw.rdMolDraw2D"
Values = Sequence[float] | Tensor

_FINE = 2  # RDKit places letters in whole pixels, so it draws an SVG larger
#: What RDKit tells of every shape although it holds anyway.
_NEEDLESS = re.compile(
    r"fill-rule:evenodd;|fill-opacity:1;|stroke-miterlimit:10;|stroke:#\w{6};stroke-width:0\.0px;"
    r"|stroke-linecap:butt;|stroke-linejoin:miter;|;?stroke-opacity:1;?|(?<=\d)\.0(?=[ ,'])"
)
_SHAPE = re.compile(r"<(path|ellipse)( [^>]*?class='((?:bond|atom)-\d+)[^>]*?)\s*/>")
_NUMBERED = 60  # most nodes of a plain graph that show their numbers
_BALANCED = 150  # most nodes of a plain graph that is laid out by distances
_TITLE, _LEGEND, _LINE, _GAP = 24, 38, 15, 8  # pixels
_STEPS = 40  # shades of a bar of colours
_LETTER = 0.55  # mean width of a letter in heights of the font


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
        kinds = require_rdkit(_DRAW)
        kind = kinds.MolDraw2DSVG if is_svg else kinds.MolDraw2DCairo
        self.drawer: Any = kind(*(round(scale * length) for length in sizes))
        self.scale, self._is_svg = scale, is_svg
        self.notes: list[tuple[int, int, dict[str, str]]] = []  # ranges of the SVG, notes in them
        self.texts: list[str] = []  # of the SVG
        self.places: list[list[Place]] = []  # of the atoms of each molecule
        options = self.drawer.drawOptions()
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
        self, mol: Mol, corner: Place, colours: dict[str, dict[int, Any]], notes: dict[str, str]
    ) -> list[Place]:
        """Draws a molecule in the panel with this corner; returns the places of its atoms.

        Pointing at ``bond-0`` or ``atom-3`` shows its note.
        """
        options = self.drawer.drawOptions()
        options.clearBackground = options.prepareMolsBeforeDrawing = False
        options.padding = 0.08
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
    paint: Callable[[Brush], None]
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


@dataclass(frozen=True)
class Panel:
    """A graph with what is shown of it; the order of bonds is that of ``bond_index``."""

    bond_index: Tensor  # the two nodes of each bond, long [2, M]
    bond_score: Values | None = None  # [M]
    atom_score: Values | None = None  # [V]
    smiles: str = ""  # the molecule, whose atom i is node i; without it a plain graph is drawn
    num_nodes: int | None = None  # by default those that bonds tell
    truth: Sequence[bool] | Tensor = ()  # bonds that are true, [M]; they are outlined
    top: Sequence[bool] | Tensor = ()  # bonds to outline, [M]
    title: str = ""
    root: int | None = None  # node with a ring around it


def draw_panels(
    panels: Sequence[Panel],
    *,
    size: Size = (320, 240),
    columns: int = 1,
    title: str = "",
    legend: str = "",
    palette: str | Palette = "score",
    signed: bool | None = None,
    limit: float | None = None,
) -> Picture:
    """Returns graphs in rows from left to right, all on one scale of colours.

    Args:
        size: width and height of a panel in pixels, with its title.
        legend: what the scores are, in lines above the bar of colours; nothing draws no bar.
        signed: whether negative numbers get the second hue, or count as zero; by default they do
            where there are any.
        limit: number that has the full colour; by default the largest.

    >>> draw_panels([Panel(torch.tensor([[0], [1]]), [0.5], smiles="CO")]).size
    (320, 240)
    """
    lengths = size if isinstance(size, Sequence) else ()
    if len(lengths) != 2 or not all(type(one) is int and one >= 1 for one in lengths):
        raise ConfigError(f"`size` must be width and height in whole pixels (got {size!r}).")
    check_number("columns", columns, Count)
    check_number("limit", 1 if limit is None else limit, Positive)
    colours = PALETTES.get(palette) if isinstance(palette, str) else palette
    if not isinstance(colours, Palette):
        raise ConfigError(f"`palette` must be one of {[*PALETTES]} or a Palette (got {palette!r}).")
    given = [one for panel in panels for one in (panel.bond_score, panel.atom_score)]
    scores = [torch.as_tensor(one, dtype=torch.double) for one in given if one is not None]
    shown = torch.cat([torch.zeros(1), *scores])
    shown = shown[shown.isfinite()]
    signed = bool((shown < 0).any()) if signed is None else signed
    largest = (shown.abs() if signed else shown).max()
    ramp = Ramp(colours, float(largest if limit is None else limit), signed)
    columns = max(1, min(columns, len(panels)))
    head, top = _TITLE * any(panel.title for panel in panels), (_TITLE + 4) * bool(title)
    room = size[0], max(1, size[1] - head)
    painters = [_painter(panel, room, ramp) for panel in panels]
    width = columns * (size[0] + _GAP) - _GAP
    below = top + max(0, -(-len(panels) // columns) * (size[1] + _GAP) - _GAP)
    lines = legend.split("\n") if legend and ramp.limit > 0 else []
    height = below + (_LEGEND + _LINE * (len(lines) - 1) if lines else 0)

    def paint(brush: Brush) -> None:
        if colours.ground is not None:
            brush.box(0, 0, width, height, colours.ground)
        if title:
            brush.words(width / 2, 16, shortened(title, width, 15), 15, colours.ink)
        for number, (panel, painter) in enumerate(zip(panels, painters, strict=True)):
            x = number % columns * (size[0] + _GAP)
            y = top + number // columns * (size[1] + _GAP)
            if words := shortened(panel.title, size[0], 13):
                brush.words(x + size[0] / 2, y + 13, words, 13, colours.ink)
            painter(brush, (x, y + head))
        if lines:
            _paint_bar(brush, lines, ramp, width, below)

    label = title or ", ".join(panel.title or panel.smiles or "graph" for panel in panels)
    return Picture((width, height), paint, label, room)


def _painter(panel: Panel, room: Size, ramp: Ramp) -> Callable[[Brush, Place], None]:
    """Returns what paints a panel with its upper left corner at a place."""
    ends = [(int(u), int(v)) for u, v in zip(*panel.bond_index.tolist(), strict=True)]
    if len({frozenset(pair) for pair in ends}) < len(ends):
        raise ConfigError(
            "`bond_index` must hold each bond once (got both of its directions). Explain with "
            "undirected=True."
        )
    palette = ramp.palette
    if panel.smiles:
        mol = matched_molecule(panel.smiles, panel.bond_index, panel.num_nodes)
        mol = require_rdkit(_DRAW).PrepareMolForDrawing(mol, addChiralHs=False)
        place = {node: node for node in range(mol.GetNumAtoms())}
        names = [f"{atom.GetSymbol()}{atom.GetIdx()}" for atom in mol.GetAtoms()]
    else:
        mol, place = _plain_molecule(panel, ends)
        names = [str(node) for node in place]
    colours: dict[str, dict[int, Any]] = {"atom": {}, "bond": {}}
    notes: dict[str, str] = {}

    def show(kind: str, number: int, name: str, value: float, more: str = "") -> None:
        if (colour := ramp.colour(value)) is not None:
            colours[kind][number] = rgb(colour)
        score = "" if math.isnan(value) else f", score {value:.4g}"
        notes[f"{kind}-{number}"] = f"{name}{score}{more}"

    truth = torch.as_tensor(panel.truth).tolist() or [False] * len(ends)
    scores = [math.nan] * len(ends) if panel.bond_score is None else panel.bond_score
    for (u, v), value, is_true in zip(ends, map(float, scores), truth, strict=True):
        if u != v:  # a message from a node to itself has no line
            bond = mol.GetBondBetweenAtoms(place[u], place[v])
            name = f"{names[place[u]]}-{names[place[v]]}"
            name += f", {str(bond.GetBondType()).lower()}" if panel.smiles else ""
            show("bond", bond.GetIdx(), name, value, ", true" * bool(is_true))
    for node, value in enumerate(map(float, () if panel.atom_score is None else panel.atom_score)):
        if node in place:
            show("atom", place[node], names[place[node]], value)

    def paint(brush: Brush, corner: Place) -> None:
        longest, options = min(room) / 6, brush.drawer.drawOptions()  # of a bond
        options.fixedBondLength = brush.scale * longest
        options.noAtomLabels = not panel.smiles and len(place) > _NUMBERED
        options.setAtomPalette({-1: rgb(palette.ink)})  # colour is kept for scores
        options.setSymbolColour(rgb(palette.ink))
        points = brush.molecule(mol, corner, colours, notes)
        at = {node: points[atom] for node, atom in place.items()}
        lengths = [math.dist(at[u], at[v]) for u, v in ends]
        unit = math.fsum(lengths) / len(lengths) if lengths else longest
        if panel.smiles:
            size = max(7.0, min(10.0, 0.28 * unit))
            for atom, (x, y) in enumerate(_beside(mol, points, 0.24 * unit + 0.65 * size)):
                brush.words(x, y, str(atom), size, palette.faint)
        outlines = (panel.truth, palette.truth, 0.3), (panel.top, palette.ink, 0.23)
        for mask, colour, radius in outlines:
            for u, v in compress(ends, torch.as_tensor(mask).tolist()):
                brush.outline(at[u], at[v], radius * unit, colour)
        if panel.root is not None:
            brush.outline(at[panel.root], at[panel.root], 0.42 * unit, palette.ink)

    return paint


def _beside(mol: Mol, points: Sequence[Place], far: float) -> Iterator[Place]:
    """Yields a place beside each atom, between its bonds and above or below a wide label."""
    for atom, (x, y) in zip(mol.GetAtoms(), points, strict=True):
        others = [points[one.GetIdx()] for one in atom.GetNeighbors()]
        taken = [math.atan2(v - y, u - x) for u, v in others]
        is_wide = atom.GetTotalNumHs() or atom.GetFormalCharge() or len(atom.GetSymbol()) > 1
        if is_wide and (atom.GetSymbol() != "C" or not others):
            taken += [0.0, math.pi]
        rooms = {
            angle: min((abs(math.remainder(angle - one, math.tau)) for one in taken), default=0)
            for angle in (math.tau * step / 16 - math.pi / 2 for step in range(16))
        }
        best = max(rooms, key=lambda angle: round(rooms[angle], 3))
        yield x + far * math.cos(best), y + far * math.sin(best)


def _plain_molecule(panel: Panel, ends: Sequence[tuple[int, int]]) -> tuple[Mol, dict[int, int]]:
    """Returns a graph that is no molecule as one, laid out, and the atom of each node.

    Of a large graph nodes without a bond are left out, and no node shows its number.
    """
    chem, root = require_rdkit(), () if panel.root is None else (panel.root,)
    used = sorted({*root, *chain.from_iterable(ends)})
    known = len(panel.atom_score) if panel.atom_score is not None else max(used, default=-1) + 1
    num_nodes = known if panel.num_nodes is None else panel.num_nodes
    nodes = used if num_nodes > _NUMBERED and used else list(range(num_nodes))
    place = {node: atom for atom, node in enumerate(nodes)}
    bonds = [(place[u], place[v]) for u, v in ends if u != v]
    is_small, mol, spots = len(nodes) <= _NUMBERED, chem.RWMol(), chem.Conformer(len(nodes))
    for node, (x, y) in zip(nodes, _layout(bonds, len(nodes)), strict=True):
        atom = chem.Atom(0 if is_small else 6)
        atom.SetNoImplicit(True)
        atom.SetProp("atomLabel", str(node) if is_small else "")
        spots.SetAtomPosition(mol.AddAtom(atom), (x, y, 0.0))
    for u, v in bonds:
        mol.AddBond(u, v, chem.BondType.SINGLE)
    mol.UpdatePropertyCache(strict=False)
    chem.FastFindRings(mol)
    mol.AddConformer(spots)
    return mol, place


def _layout(bonds: Sequence[tuple[int, int]], num_nodes: int) -> list[Place]:
    """Returns a place of each node, the same for the same graph; mean length of a bond is 1.5."""
    nx = require("networkx", "plots")
    graph = nx.Graph(bonds)
    graph.add_nodes_from(range(num_nodes))
    parts = [min(part) for part in nx.connected_components(graph)]
    graph.add_edges_from(pairwise(parts))  # side by side
    if 1 < num_nodes <= _BALANCED:
        spots = nx.kamada_kawai_layout(graph)
    else:
        spots = nx.spring_layout(graph, seed=0, iterations=200) if num_nodes else {}
    lengths = [math.dist(spots[u], spots[v]) for u, v in bonds]
    scale = 1.5 * len(lengths) / math.fsum(lengths) if lengths else 1.0
    points = [(scale * float(x), scale * float(y)) for x, y in map(spots.get, range(num_nodes))]
    wide, high = (max(side) - min(side) for side in zip(*points, strict=True)) if points else (0, 0)
    return [(y, x) for x, y in points] if high > wide else points  # pictures are wide


def _paint_bar(brush: Brush, lines: Sequence[str], ramp: Ramp, width: int, y: float) -> None:
    """Paints what the scores are, and below it a bar of colours between its two numbers."""
    ink, wide = ramp.palette.ink, min(150, width - 90)
    start, step = (width - wide) / 2, wide / _STEPS
    for number, words in enumerate(lines):
        brush.words(width / 2, y + 9 + _LINE * number, shortened(words, width, 11), 11, ink)
    y += _LINE * (len(lines) - 1)
    low = -ramp.limit if ramp.signed else 0.0
    for number in range(_STEPS):
        colour = ramp.colour(low + (ramp.limit - low) * (number + 0.5) / _STEPS)
        over = 0.4 if number < _STEPS - 1 else 0.0  # no seams between neighbours
        brush.box(start + number * step, y + 20, step + over, 10, colour or ramp.palette.weak)
    brush.words(start - 6, y + 26, f"−{ramp.limit:.2g}" if ramp.signed else "0", 11, ink, 2)
    brush.words(start + wide + 6, y + 26, f"{ramp.limit:.2g}", 11, ink, 1)


def shortened(text: str, width: float, size: float) -> str:
    """Returns a text that fits into the width, an ellipsis for its middle if it must be."""
    most = max(3, int(width / (_LETTER * size)))
    head = most * 2 // 3
    tail = len(text) - (most - head - 1)
    return text if len(text) <= most else f"{text[:head]}…{text[tail:]}"
