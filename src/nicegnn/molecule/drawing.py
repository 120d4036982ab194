"""Pictures of explanations: a molecule with coloured bonds, or a node-link drawing of any graph.

Each picture shows one number per bond. Numbers are divided by the largest absolute value of the
graph, so the strongest bond always has the full colour: compare pictures by shape, not by shade.
Colour and line width rise together. Bonds known to be true have a colour of their own, so panels
of truth, gates and scores can stand side by side.

SVG strings start at ``<svg``, define no ids and no style sheet, and have a transparent background
unless one is given, so any number of them can be put into one HTML page.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

from torch import Tensor

from nicegnn.errors import ConfigError, NicegnnError
from nicegnn.molecule.smiles import parse_smiles, require_rdkit

if TYPE_CHECKING:
    from rdkit.Chem import Mol

Point = tuple[float, float]


@dataclass(frozen=True)
class Palette:
    """Colours of a picture, as ``#rrggbb``; defaults tell apart with any colour vision."""

    positive: str = "#d55e00"  # strongest positive value
    negative: str = "#0072b2"  # strongest negative value of a signed picture
    truth: str = "#009e73"  # bonds known to be true
    weak: str = "#f7f4f0"  # value zero, where both ramps start


#: Palettes by name: one hue for scores, another for gates (masks in [0, 1]).
PALETTES = {"score": Palette(), "gate": Palette(positive="#7b52ab")}


class DrawError(NicegnnError, ValueError):
    """Scores or marks that do not fit the graph to be drawn."""


@dataclass(frozen=True)
class _Stroke:
    """A coloured line behind one bond; the width is a fraction of the usual bond length."""

    bond: int
    colour: str
    width: float


def molecule_svg(
    smiles: str,
    bond_score: Sequence[float] | Tensor | None = None,
    *,
    bond_truth: Iterable[int] | Tensor | None = None,
    title: str | None = None,
    size: tuple[int, int] = (320, 240),
    palette: str | Palette = "score",
    signed: bool = False,
    background: str | None = None,
) -> str:
    """Returns a molecule as an SVG string, its bonds coloured by score.

    Pointing at a bond shows its atoms and its score.

    Args:
        smiles: The molecule; bond numbers are those of the parsed string.
        bond_score: One number per bond, ``[E/2]``; merge the two directed edges of a bond first.
        bond_truth: Numbers of the true bonds. Alone they are drawn as full lines, together with
            scores as an outline.
        title: Text under the molecule.
        size: Width and height in pixels.
        palette: ``"score"``, ``"gate"`` or a `Palette`.
        signed: Whether negative numbers get the second hue; otherwise they count as zero.
        background: Colour behind the picture, ``#rrggbb``; none leaves it transparent.

    Raises:
        DrawError: If scores or true bonds do not fit the molecule.
        MoleculeError: If the SMILES cannot be read.
    """
    mol, strokes, notes = _plan(smiles, bond_score, bond_truth, palette, signed)
    points, unit, text = _sketch(mol, size, title)
    lines = [
        _line(
            points[b.GetBeginAtomIdx()], points[b.GetEndAtomIdx()], stroke, unit, notes[b.GetIdx()]
        )
        for stroke in strokes
        for b in (mol.GetBondWithIdx(stroke.bond),)
    ]
    body = text.partition("<!-- END OF HEADER -->")[2].rpartition("</svg>")[0]
    body = re.sub(  # RDKit writes one or more paths of class 'bond-<number>' per bond
        r"(<path class='bond-(\d+) [^>]*?)\s*/>",
        lambda path: f"{path[1]}><title>{escape(notes[int(path[2])])}</title></path>",
        body,
    )
    return _svg([*lines, body.strip()], size, title or smiles, background)


def molecule_png(
    smiles: str,
    bond_score: Sequence[float] | Tensor | None = None,
    *,
    bond_truth: Iterable[int] | Tensor | None = None,
    title: str | None = None,
    size: tuple[int, int] = (320, 240),
    palette: str | Palette = "score",
    signed: bool = False,
    background: str | None = None,
) -> bytes:
    """Returns the picture of `molecule_svg` as the bytes of a PNG file."""
    mol, strokes, _ = _plan(smiles, bond_score, bond_truth, palette, signed)
    points, unit, _ = _sketch(mol, size, title)
    module = require_rdkit("rdkit.Chem.Draw.rdMolDraw2D")
    point = require_rdkit("rdkit.Geometry").Point2D
    drawer = module.MolDraw2DCairo(*size)
    _set_options(drawer, size)
    if background is not None:
        drawer.drawOptions().setBackgroundColour(_rgb(background))
        drawer.ClearDrawing()
    drawer.SetFillPolys(True)
    for stroke in strokes:
        bond = mol.GetBondWithIdx(stroke.bond)
        ends = [points[bond.GetBeginAtomIdx()], points[bond.GetEndAtomIdx()]]
        radius = stroke.width * unit / 2
        drawer.SetColour(_rgb(stroke.colour))
        drawer.SetLineWidth(2 * radius)
        drawer.DrawLine(point(*ends[0]), point(*ends[1]), rawCoords=True)
        drawer.SetLineWidth(0)
        for x, y in ends:  # round ends, as in the SVG
            corners = point(x - radius, y - radius), point(x + radius, y + radius)
            drawer.DrawEllipse(*corners, rawCoords=True)
    drawer.SetLineWidth(2)
    drawer.DrawMolecule(mol, legend=title or "")
    drawer.FinishDrawing()
    return bytes(drawer.GetDrawingText())


def graph_svg(
    edge_index: Tensor,
    edge_score: Sequence[float] | Tensor | None,
    num_nodes: int,
    *,
    edge_truth: Iterable[int] | Tensor | None = None,
    title: str | None = None,
    size: tuple[int, int] = (320, 240),
    palette: str | Palette = "score",
    signed: bool = False,
    background: str | None = None,
    seed: int = 0,
) -> str:
    """Returns any graph as an SVG string of dots and lines, its edges coloured by score.

    Nodes stand where a seeded spring layout puts them, or on a circle if networkx is missing.
    Edges between the same two nodes are one line that shows the mean of their scores.

    Args:
        edge_index: ``[2, E]``.
        edge_score: One number per directed edge, ``[E]``.
        num_nodes: Number of nodes.
        edge_truth: Numbers of the true directed edges.

    The other arguments are those of `molecule_svg`.
    """
    pairs = [(min(u, v), max(u, v)) for u, v in edge_index.t().tolist()]
    if any(not 0 <= u <= v < num_nodes for u, v in pairs):
        raise DrawError(
            f"edge_index: expected node numbers from 0 to {num_nodes - 1}, got "
            f"{min(u for u, _ in pairs)} to {max(v for _, v in pairs)}. Pass the right num_nodes."
        )
    values = _values(edge_score, len(pairs), "edge_score", "edge")
    lines = list(dict.fromkeys(pairs))
    truth = {lines.index(pairs[i]) for i in _indices(edge_truth, len(pairs), "edge_truth", "edge")}
    means = None
    if values is not None:
        groups: dict[tuple[int, int], list[float]] = {pair: [] for pair in lines}
        for pair, value in zip(pairs, values, strict=True):
            groups[pair].append(value)
        means = [math.fsum(group) / len(group) for group in groups.values()]
    points = _layout(lines, num_nodes, size, seed)
    parts = []
    thin = [_Stroke(line, "#999999", 0.05) for line in range(len(lines))]
    for stroke in [*thin, *_strokes(means, truth, _palette(palette), signed)]:
        u, v = lines[stroke.bond]
        note = _note(f"{u}-{v}", means, truth, stroke.bond)
        parts.append(_line(points[u], points[v], stroke, min(size) / 10, note))
    parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="#333333"/>' for x, y in points]
    if title:
        parts.append(
            f'<text x="{size[0] / 2:.1f}" y="{size[1] - 6}" text-anchor="middle" '
            f'font-family="sans-serif" font-size="12" fill="#333333">{escape(title)}</text>'
        )
    return _svg(parts, size, title or f"graph of {num_nodes} nodes", background)


def _plan(
    smiles: str,
    bond_score: Sequence[float] | Tensor | None,
    bond_truth: Iterable[int] | Tensor | None,
    palette: str | Palette,
    signed: bool,
) -> tuple[Mol, list[_Stroke], list[str]]:
    """The molecule with its 2D coordinates, the coloured lines, and a note per bond."""
    mol = parse_smiles(smiles)
    values = _values(bond_score, mol.GetNumBonds(), "bond_score", "bond")
    truth = _indices(bond_truth, mol.GetNumBonds(), "bond_truth", "bond")
    strokes = _strokes(values, truth, _palette(palette), signed)
    notes = []
    for bond in mol.GetBonds():
        ends = (bond.GetBeginAtom(), bond.GetEndAtom())
        name = "-".join(f"{atom.GetSymbol()}{atom.GetIdx()}" for atom in ends)
        kind = str(bond.GetBondType()).lower()
        notes.append(_note(f"{name}, {kind}", values, truth, bond.GetIdx()))
    prepare = require_rdkit("rdkit.Chem.Draw.rdMolDraw2D").PrepareMolForDrawing
    return prepare(mol, addChiralHs=False), strokes, notes


def _values(
    score: Sequence[float] | Tensor | None, num: int, name: str, unit: str
) -> list[float] | None:
    """The scores as plain numbers, checked against the graph."""
    if score is None:
        return None
    values = [float(value) for value in score]
    if len(values) != num:
        advice = "Pass the scores of this very graph."
        if len(values) == 2 * num and num:
            advice = "Merge the two directed edges of every bond into one score first."
        raise DrawError(
            f"{name}: expected {num} scores, one per {unit}, got {len(values)}. {advice}"
        )
    bad = [index for index, value in enumerate(values) if not math.isfinite(value)]
    if bad:
        raise DrawError(
            f"{name}: expected finite scores, got {values[bad[0]]} at {unit} {bad[0]} "
            f"({len(bad)} of {num} are not finite). Replace them, or explain this graph again."
        )
    return values


def _indices(truth: Iterable[int] | Tensor | None, num: int, name: str, unit: str) -> set[int]:
    """The numbers of true bonds, checked; a mask is refused, as it would read as 0s and 1s."""
    given = () if truth is None else truth
    items: list[Any] = given.tolist() if isinstance(given, Tensor) else list(given)
    for item in items:
        if "bool" in type(item).__name__ or not 0 <= item < num:
            raise DrawError(
                f"{name}: expected {unit} numbers from 0 to {num - 1}, got {item!r}. A mask is "
                "turned into numbers with `mask.nonzero().flatten().tolist()`."
            )
    return {int(item) for item in items}


def _palette(palette: str | Palette) -> Palette:
    if isinstance(palette, Palette):
        return palette
    if palette not in PALETTES:
        raise ConfigError(f"palette: expected one of {', '.join(PALETTES)}, got {palette!r}.")
    return PALETTES[palette]


def _strokes(
    values: list[float] | None, truth: set[int], palette: Palette, signed: bool
) -> list[_Stroke]:
    """Lines from back to front: outlines of true bonds, then scores, the strongest last."""
    if values is None:
        return [_Stroke(bond, palette.truth, 0.42) for bond in sorted(truth)]
    strokes = [_Stroke(bond, palette.truth, 0.66) for bond in sorted(truth)]
    strokes += [_Stroke(bond, palette.weak, 0.50) for bond in sorted(truth)]
    shown = [value if signed else max(value, 0.0) for value in values]
    largest = max((abs(value) for value in values), default=0.0)
    for bond in sorted(range(len(shown)), key=lambda bond: abs(shown[bond])):
        level = abs(shown[bond]) / largest if largest > 0 else 0.0  # in [0, 1]
        if level > 0:
            strong = palette.positive if shown[bond] > 0 else palette.negative
            strokes.append(_Stroke(bond, _mix(palette.weak, strong, level), 0.12 + 0.30 * level))
    return strokes


def _mix(weak: str, strong: str, level: float) -> str:
    """The colour at ``level`` in [0, 1] on the straight line between two colours."""
    pairs = zip(_rgb(weak), _rgb(strong), strict=True)
    return "#" + "".join(f"{round(255 * (a + (b - a) * level)):02x}" for a, b in pairs)


def _rgb(colour: str) -> tuple[float, float, float]:
    if not re.fullmatch(r"#[0-9a-fA-F]{6}", colour):
        raise ConfigError(f"colour: expected '#rrggbb', got {colour!r}.")
    red, green, blue = (int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5))
    return red, green, blue


def _note(name: str, values: list[float] | None, truth: set[int], bond: int) -> str:
    score = "" if values is None else f", score {values[bond]:.4g}"
    return f"{name}{score}{', true' if bond in truth else ''}"


def _sketch(mol: Mol, size: tuple[int, int], title: str | None) -> tuple[list[Point], float, str]:
    """Atom positions and mean bond length in pixels, and RDKit's plain SVG of the molecule."""
    drawer = require_rdkit("rdkit.Chem.Draw.rdMolDraw2D").MolDraw2DSVG(*size)
    _set_options(drawer, size)
    drawer.DrawMolecule(mol, legend=title or "")
    drawer.FinishDrawing()
    spots = [drawer.GetDrawCoords(atom) for atom in range(mol.GetNumAtoms())]
    points = [(spot.x, spot.y) for spot in spots]
    lengths = [
        math.dist(points[bond.GetBeginAtomIdx()], points[bond.GetEndAtomIdx()])
        for bond in mol.GetBonds()
    ]
    return points, math.fsum(lengths) / max(len(lengths), 1), drawer.GetDrawingText()


def _set_options(drawer: Any, size: tuple[int, int]) -> None:
    options = drawer.drawOptions()
    options.clearBackground = False
    options.prepareMolsBeforeDrawing = False
    options.padding = 0.08  # room for wide lines at the rim
    options.fixedBondLength = min(size) / 6  # small molecules are not blown up
    options.useBWAtomPalette()  # colour is kept for scores


def _layout(
    lines: list[tuple[int, int]], num_nodes: int, size: tuple[int, int], seed: int
) -> list[Point]:
    """Node positions in pixels: a spring layout, or a circle without networkx."""
    try:
        import networkx
    except ImportError:
        turns = [2 * math.pi * node / num_nodes for node in range(num_nodes)]
        spots = [(math.cos(turn), math.sin(turn)) for turn in turns]
    else:
        graph = networkx.Graph(lines)
        graph.add_nodes_from(range(num_nodes))
        places = networkx.spring_layout(graph, seed=seed)
        spots = [(float(places[node][0]), float(places[node][1])) for node in range(num_nodes)]
    margin = 24
    columns = []
    for values, length in zip(zip(*spots, strict=True), size, strict=False):
        low, span = min(values), max(values) - min(values)
        shares = [(value - low) / span if span > 0 else 0.5 for value in values]
        columns.append([margin + (length - 2 * margin) * share for share in shares])
    return list(zip(*columns, strict=True))


def _line(start: Point, end: Point, stroke: _Stroke, unit: float, note: str) -> str:
    return (
        f'<line x1="{start[0]:.1f}" y1="{start[1]:.1f}" x2="{end[0]:.1f}" y2="{end[1]:.1f}" '
        f'stroke="{stroke.colour}" stroke-width="{stroke.width * unit:.2f}" '
        f'stroke-linecap="round"><title>{escape(note)}</title></line>'
    )


def _svg(parts: list[str], size: tuple[int, int], label: str, background: str | None) -> str:
    width, height = size
    rect = []
    if background is not None:
        _rgb(background)
        rect = [f'<rect width="{width}" height="{height}" fill="{background}"/>']
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" role="img" aria-label="{escape(label)}">'
    )
    return "\n".join([head, *rect, *parts, "</svg>"])
