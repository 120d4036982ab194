"""Pictures of explained graphs: each bond and each atom is coloured by its score.

RDKit draws molecules. A graph without SMILES is laid out by networkx and drawn by RDKit too, its
nodes as numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from nicegnn.errors import ConfigError, NicegnnError
from nicegnn.molecule.picture import Brush, Palette, Picture, Place, Ramp, Size, find_palette, rgb
from nicegnn.molecule.smiles import BOND_TYPES, CATCH_ALL, Bond, matched_molecule, require_rdkit

if TYPE_CHECKING:
    from rdkit.Chem import Mol

Values = Sequence[float] | Tensor

_NUMBERED = 60  # most nodes of a plain graph that show their numbers
_BALANCED = 150  # most nodes of a plain graph that is laid out by distances
_TITLE, _LEGEND, _GAP = 24, 38, 8  # pixels
_STEPS = 40  # shades of a bar of colours
_LETTER = 0.55  # mean width of a letter in heights of the font


@dataclass(frozen=True)
class Panel:
    """A graph with what is shown of it; the order of bonds is that of ``bond_index``."""

    bond_index: Tensor  # the two nodes of each bond, long [2, M]
    bond_score: Values | None = None  # [M]
    atom_score: Values | None = None  # [V]
    smiles: str = ""  # the molecule, whose atom i is node i; without it a plain graph is drawn
    molecule: Any = None  # instead of SMILES, an RDKit molecule, such as an `unchecked_molecule`
    num_nodes: int | None = None  # by default those that bonds tell
    truth: Sequence[bool] | Tensor = ()  # bonds that are true, [M]; they are outlined
    top: Sequence[bool] | Tensor = ()  # bonds to outline, [M]
    title: str = ""
    root: int | None = None  # node with a ring around it
    numbered: bool = False  # show the numbers of a molecule's atoms

    @property
    def ends(self) -> list[tuple[int, int]]:
        """The two nodes of each bond, none of which may come twice."""
        ends = [(int(u), int(v)) for u, v in zip(*self.bond_index.tolist(), strict=True)]
        if len({frozenset(pair) for pair in ends}) < len(ends):
            raise ConfigError(
                "`bond_index` must hold each bond once (got both of its directions). Explain with "
                "undirected=True, or merge the two directed edges of every bond."
            )
        return ends


def draw_panels(
    panels: Sequence[Panel],
    *,
    size: Size = (320, 240),
    columns: int = 1,
    title: str = "",
    legend: str = "",
    keys: tuple[str, str] = ("true bonds", "best bonds"),
    palette: str | Palette = "score",
    signed: bool | None = None,
    limit: float | None = None,
) -> Picture:
    """Returns graphs in rows from left to right, all on one scale of colours.

    Pointing at a bond or an atom of the SVG shows its name and its score.

    Args:
        size: width and height of a panel in pixels, with its title.
        legend: what the scores are, written beside the bar of colours; nothing draws no bar.
        keys: what outlined bonds are, true ones and others.
        signed: whether negative numbers get the second hue, or count as zero; by default they do
            where there are any.
        limit: number that has the full colour; by default the largest.

    >>> draw_panels([Panel(torch.tensor([[0], [1]]), [0.5], smiles="CO")]).size
    (320, 240)
    """
    check_size(size)
    if type(columns) is not int or columns < 1:
        raise ConfigError(f"`columns` must be a whole number of at least 1 (got {columns!r}).")
    colours = find_palette(palette)
    columns = max(1, min(columns, len(panels)))
    shown = [
        s for p in panels for one in (p.bond_score, p.atom_score) if one is not None for s in one
    ]
    ramp = Ramp.of(map(float, shown), colours, signed=signed, limit=limit)
    head = _TITLE if any(panel.title for panel in panels) else 0
    room = size[0], max(1, size[1] - head)
    drawn = [_prepared(panel, room, ramp) for panel in panels]
    marks = [
        (words, colour)
        for words, colour, name in zip(
            keys, (colours.truth, colours.ink), ("truth", "top"), strict=True
        )
        if any(bool(torch.as_tensor(getattr(panel, name)).any()) for panel in panels)
    ]
    top = _TITLE + 4 if title else 0
    rows = -(-len(panels) // columns)
    width = columns * (size[0] + _GAP) - _GAP
    below = top + max(0, rows * (size[1] + _GAP) - _GAP)
    bar = legend if ramp.limit > 0 else ""
    height = below + (_LEGEND if bar else 0) + (_TITLE if marks else 0)

    def paint(brush: Brush) -> None:
        if colours.ground is not None:
            brush.box(0, 0, width, height, colours.ground)
        if title:
            brush.words(width / 2, 16, shortened(title, width, 15), 15, colours.ink)
        for number, (panel, one) in enumerate(zip(panels, drawn, strict=True)):
            x = number % columns * (size[0] + _GAP)
            y = top + number // columns * (size[1] + _GAP)
            if panel.title:
                words = shortened(panel.title, size[0], 13)
                brush.words(x + size[0] / 2, y + 13, words, 13, colours.ink)
            one.paint(brush, x, y + head)
        if bar:
            _paint_bar(brush, bar, ramp, width, below)
        if marks:
            _paint_keys(brush, marks, colours.ink, width, height - _TITLE / 2)

    label = title or ", ".join(panel.title or panel.smiles or "graph" for panel in panels)
    return Picture((width, height), paint, label, room)


@dataclass(frozen=True)
class _Prepared:
    """A panel as RDKit takes it."""

    panel: Panel
    mol: Mol
    place: dict[int, int]  # atom of each node
    atoms: dict[int, tuple[float, float, float]]  # colours
    bonds: dict[int, tuple[float, float, float]]
    notes: dict[str, str]
    room: Size
    palette: Palette
    ends: list[tuple[int, int]]

    def paint(self, brush: Brush, x: float, y: float) -> None:
        """Draws the molecule with its upper left corner at x and y, then outlines on top of it."""
        scale, drawer, options = brush.scale, brush.drawer, brush.options
        ink = rgb(self.palette.ink)
        options.clearBackground = options.prepareMolsBeforeDrawing = False
        options.setAtomPalette({-1: ink})  # colour is kept for scores
        options.setSymbolColour(ink)
        options.setAnnotationColour(ink)
        options.padding = 0.08
        options.fixedBondLength = scale * min(self.room) / 6  # small molecules are not blown up
        options.bondLineWidth = max(1, round(1.7 * scale))
        options.highlightBondWidthMultiplier = max(1, round(24 / options.bondLineWidth))
        options.highlightRadius = 0.3
        drawer.SetOffset(round(x * scale), round(y * scale))
        brush.noted(
            self.notes,
            partial(
                drawer.DrawMolecule,
                self.mol,
                highlightAtoms=list(self.atoms),
                highlightAtomColors=self.atoms,
                highlightBonds=list(self.bonds),
                highlightBondColors=self.bonds,
            ),
        )
        spots = [drawer.GetDrawCoords(atom) for atom in range(self.mol.GetNumAtoms())]
        points = [(spot.x / scale, spot.y / scale) for spot in spots]
        brush.places.append(points)
        at = {node: points[atom] for node, atom in self.place.items()}
        lengths = [math.dist(at[u], at[v]) for u, v in self.ends]
        unit = math.fsum(lengths) / len(lengths) if lengths else min(self.room) / 6
        if self.panel.numbered:
            size = max(7.0, min(10.0, 0.28 * unit))
            for atom, (x, y) in enumerate(self._beside(points, 0.24 * unit + 0.65 * size)):
                brush.words(x, y, str(atom), size, self.palette.faint)
        for mask, colour, radius in (
            (self.panel.truth, self.palette.truth, 0.3),
            (self.panel.top, self.palette.ink, 0.23),
        ):
            for (u, v), is_it in zip(self.ends, torch.as_tensor(mask).tolist(), strict=False):
                if is_it:
                    brush.outline(at[u], at[v], radius * unit, colour, 1.8)
        if self.panel.root is not None:
            middle = at[self.panel.root]
            brush.outline(middle, middle, 0.42 * unit, self.palette.ink, 1.6)

    def _beside(self, points: Sequence[Place], far: float) -> Iterator[Place]:
        """Yields a place beside each atom, between its bonds and above or below a wide label."""
        for atom in self.mol.GetAtoms():
            x, y = points[atom.GetIdx()]
            others = [points[one.GetIdx()] for one in atom.GetNeighbors()]
            taken = [math.atan2(v - y, u - x) for u, v in others]
            is_labelled = atom.GetSymbol() != "C" or not others
            if is_labelled and (
                atom.GetTotalNumHs() or atom.GetFormalCharge() or len(atom.GetSymbol()) > 1
            ):
                taken += [0.0, math.pi]  # a wide label
            rooms = {
                angle: min((abs(math.remainder(angle - one, math.tau)) for one in taken), default=0)
                for angle in (math.tau * step / 16 - math.pi / 2 for step in range(16))
            }
            best = max(rooms, key=lambda angle: round(rooms[angle], 3))
            yield x + far * math.cos(best), y + far * math.sin(best)


def _prepared(panel: Panel, room: Size, ramp: Ramp) -> _Prepared:
    """Returns the molecule of a panel, its colours, and the notes of its bonds and atoms."""
    ends = panel.ends
    if panel.smiles or panel.molecule is not None:
        mol = panel.molecule
        if mol is None:
            mol = matched_molecule(panel.smiles, panel.bond_index, panel.num_nodes)
            draw = require_rdkit("rdkit.Chem.Draw.rdMolDraw2D")
            mol = draw.PrepareMolForDrawing(mol, addChiralHs=False)
        place = {node: node for node in range(mol.GetNumAtoms())}
        names = [f"{atom.GetSymbol()}{atom.GetIdx()}" for atom in mol.GetAtoms()]
    else:
        mol, place = _plain_molecule(panel, ends, room)
        names = [str(node) for node in place]
    atoms, bonds, notes = {}, {}, {}
    scores = [math.nan] * len(ends) if panel.bond_score is None else list(panel.bond_score)
    truth = torch.as_tensor(panel.truth).tolist() or [False] * len(ends)
    for (u, v), value, is_true in zip(ends, map(float, scores), truth, strict=True):
        if u == v:  # a message from a node to itself has no line
            continue
        bond = mol.GetBondBetweenAtoms(place[u], place[v])
        number = bond.GetIdx()
        if (colour := ramp.colour(value)) is not None:
            bonds[number] = rgb(colour)
        words = [f"{names[place[u]]}-{names[place[v]]}"]
        words += [str(bond.GetBondType()).lower()] if panel.smiles else []
        words += [] if math.isnan(value) else [f"score {value:.4g}"]
        notes[f"bond-{number}"] = ", ".join([*words, *(["true"] if is_true else [])])
    values = [] if panel.atom_score is None else panel.atom_score
    for node, value in enumerate(map(float, values)):
        if node in place:
            notes[f"atom-{place[node]}"] = f"{names[place[node]]}, score {value:.4g}"
            if (colour := ramp.colour(value)) is not None:
                atoms[place[node]] = rgb(colour)
    return _Prepared(panel, mol, place, atoms, bonds, notes, room, ramp.palette, ends)


def _plain_molecule(
    panel: Panel, ends: Sequence[tuple[int, int]], room: Size
) -> tuple[Mol, dict[int, int]]:
    """Returns a graph that is no molecule as one, laid out, and the atom of each node.

    Of a large graph nodes without a bond are left out, and no node shows its number.
    """
    root = () if panel.root is None else (panel.root,)
    used = sorted({*root, *(node for pair in ends for node in pair)})
    known = len(panel.atom_score) if panel.atom_score is not None else max(used, default=-1) + 1
    num_nodes = known if panel.num_nodes is None else panel.num_nodes
    nodes = used if num_nodes > _NUMBERED and used else list(range(num_nodes))
    place = {node: atom for atom, node in enumerate(nodes)}
    bonds = [(place[u], place[v], 1) for u, v in ends if u != v]
    is_small = len(nodes) <= _NUMBERED
    mol = unchecked_molecule(
        ["*" if is_small else "C"] * len(nodes), bonds, _layout(bonds, len(nodes), room)
    )
    for node, atom in place.items() if is_small else ():
        mol.GetAtomWithIdx(atom).SetProp("atomLabel", str(node))
    return mol, place


def _layout(bonds: Sequence[Bond], num_nodes: int, room: Size) -> list[Place]:
    """Returns a place of each node, the same for the same graph; mean length of a bond is 1.5."""
    try:
        import networkx as nx
    except ImportError as error:
        raise NicegnnError(
            "Graphs without SMILES need networkx; install it with pip install 'nicegnn[plots]'."
        ) from error
    graph = nx.Graph()
    graph.add_nodes_from(range(num_nodes))
    graph.add_edges_from((u, v) for u, v, _ in bonds)
    graph.add_edges_from(pairwise([min(part) for part in nx.connected_components(graph)]))
    if 1 < num_nodes <= _BALANCED:
        spots = nx.kamada_kawai_layout(graph)
    else:
        spots = nx.spring_layout(graph, seed=0, iterations=200) if num_nodes else {}
    points = torch.tensor([[float(x) for x in spots[node]] for node in range(num_nodes)]).view(
        -1, 2
    )
    if num_nodes:
        wide, high = (points.amax(0) - points.amin(0)).tolist()
        if (high > wide) != (room[1] > room[0]):  # lay a tall graph down in a wide picture
            points = points.flip(1)
    if bonds:
        first, second = torch.tensor([bond[:2] for bond in bonds]).t()
        points = points * (1.5 / (points[first] - points[second]).norm(dim=1).mean())
    return [(x, y) for x, y in points.tolist()]


def unchecked_molecule(
    atoms: Sequence[str], bonds: Sequence[Bond], places: Sequence[Place] | None = None
) -> Mol:
    """Returns the molecule of atoms and bonds, with 2D coordinates but not sanitised."""
    chem = require_rdkit()
    mol = chem.RWMol()
    for symbol in atoms:
        atom = chem.Atom(0 if symbol in CATCH_ALL else symbol)
        atom.SetNoImplicit(True)  # hydrogens are among the atoms or unknown
        mol.AddAtom(atom)
    for u, v, kind in bonds:
        mol.AddBond(u, v, getattr(chem.BondType, BOND_TYPES[kind - 1].upper()))
    mol.UpdatePropertyCache(strict=False)
    chem.FastFindRings(mol)
    require_rdkit("rdkit.Chem.rdDepictor").Compute2DCoords(mol)
    for number, (x, y) in enumerate(places or ()):
        mol.GetConformer().SetAtomPosition(number, (x, y, 0.0))
    return mol


def _paint_bar(brush: Brush, words: str, ramp: Ramp, width: int, y: float) -> None:
    """Paints what the scores are, and below it a bar of colours between its two numbers."""
    ink, wide = ramp.palette.ink, min(150, width - 90)
    start, step = (width - wide) / 2, wide / _STEPS
    brush.words(width / 2, y + 9, shortened(words, width, 11), 11, ink)
    low = -ramp.limit if ramp.signed else 0.0
    for number in range(_STEPS):
        value = low + (ramp.limit - low) * (number + 0.5) / _STEPS
        over = 0.4 if number < _STEPS - 1 else 0.0  # no seams between neighbours
        colour = ramp.colour(value) or ramp.palette.weak
        brush.box(start + number * step, y + 20, step + over, 10, colour)
    brush.words(start - 6, y + 26, f"−{ramp.limit:.2g}" if ramp.signed else "0", 11, ink, 2)
    brush.words(start + wide + 6, y + 26, f"{ramp.limit:.2g}", 11, ink, 1)


def _paint_keys(
    brush: Brush, marks: Sequence[tuple[str, str]], ink: str, width: int, y: float
) -> None:
    """Paints outlined bars with their meaning, side by side."""
    wide = [34 + 11 * _LETTER * len(words) for words, _ in marks]
    x = (width - sum(wide)) / 2
    for (words, colour), one in zip(marks, wide, strict=True):
        brush.outline((x + 8, y), (x + 16, y), 5, colour, 1.8)
        brush.words(x + 26, y, words, 11, ink, 1)
        x += one


def shortened(text: str, width: float, size: float) -> str:
    """Returns a text that fits into the width, an ellipsis for its middle if it must be."""
    most = max(3, int(width / (_LETTER * size)))
    if len(text) <= most:
        return text
    head = most * 2 // 3
    return f"{text[:head]}…{text[len(text) - (most - head - 1) :]}"


def check_size(size: Size) -> None:
    """Raises `ConfigError` unless a size is two whole numbers of at least 1."""
    is_pair = isinstance(size, Sequence) and len(size) == 2
    if not is_pair or not all(type(length) is int and length >= 1 for length in size):
        raise ConfigError(
            f"`size` must be width and height in whole pixels, at least 1 each (got {size!r})."
        )
