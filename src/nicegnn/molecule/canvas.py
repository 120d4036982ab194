"""Graphs that are laid out: molecules by RDKit, other graphs by networkx."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nicegnn.errors import NicegnnError
from nicegnn.molecule.picture import Shape, Size, Words, check_size, circle
from nicegnn.molecule.smiles import BOND_TYPES, CATCH_ALL, Bond, require_rdkit

if TYPE_CHECKING:
    from rdkit.Chem import Mol

Point = tuple[float, float]

WHITE = "#ffffff"
_DRAW = "rdkit.Chem.Draw.rdMolDraw2D"
_PATH = re.compile(r"<path([^>]*)/>")
_NUMBERED = 60  # most nodes of a plain graph that show their numbers
_BALANCED = 150  # most nodes of a plain graph that is laid out by distances


@dataclass(frozen=True)
class Canvas:
    """A graph that is laid out: what bands and discs are put behind."""

    points: list[Point]  # place of each node, [V]
    unit: float  # mean length of a bond in pixels
    lines: tuple[Shape | Words, ...]  # in front of bands, behind discs
    front: tuple[Shape | Words, ...]  # in front of all
    names: list[str]  # name of each node, [V]
    kinds: list[str]  # type of each bond in words, [M]; empty where it is not known


def molecule_canvas(
    mol: Mol,
    ends: Sequence[tuple[int, int]],
    size: Size,
    *,
    is_prepared: bool = False,
    numbered: bool = False,
) -> Canvas:
    """Returns a molecule drawn by RDKit; its lines have the bond numbers of ``ends``."""
    kinds = []
    for u, v in ends:
        kinds.append(str(mol.GetBondBetweenAtoms(u, v).GetBondType()).lower())
    names = [f"{atom.GetSymbol()}{atom.GetIdx()}" for atom in mol.GetAtoms()]
    prepared = mol if is_prepared else prepared_molecule(mol)
    points, unit, body = rdkit_drawing(prepared, size, numbered=numbered)
    place = {frozenset(pair): number for number, pair in enumerate(ends)}
    numbers = [place[frozenset(_ends(bond))] for bond in prepared.GetBonds()]
    return Canvas(points, unit, (), tuple(_shapes(body, numbers)), names, kinds)


def _shapes(body: str, numbers: Sequence[int]) -> list[Shape]:
    """Returns RDKit's paths as shapes; RDKit's bond ``b`` is bond ``numbers[b]``."""
    shapes = []
    for words in _PATH.findall(body):
        given = dict(re.findall(r"(\w+)='([^']*)'", words))
        style = dict(item.split(":") for item in given.get("style", "").split(";") if ":" in item)
        bond = re.match(r"bond-(\d+)\b", given.get("class", ""))
        dash = style.get("stroke-dasharray", "")
        shapes.append(
            Shape(
                path=" ".join(given["d"].split()),
                fill=given.get("fill") or style.get("fill", "none"),
                stroke=style.get("stroke", "none"),
                width=float(style.get("stroke-width", "1").removesuffix("px")),
                dash=tuple(float(length) for length in dash.split(",") if length),
                kind=f"bond-{numbers[int(bond[1])]} line" if bond else given.get("class", ""),
            )
        )
    return shapes


def plain_canvas(
    ends: Sequence[tuple[int, int]],
    num_nodes: int | None,
    size: Size,
    root: int | None,
    seed: int,
    *,
    is_filled: bool,
) -> Canvas:
    """Returns a graph of numbered circles; nodes without a bond are left out of large graphs."""
    used = sorted(
        {node for pair in ends for node in pair} | ({root} if root is not None else set())
    )
    num_nodes = max(used, default=-1) + 1 if num_nodes is None else num_nodes
    shown = used if num_nodes > _NUMBERED and used else list(range(num_nodes))
    spots = _layout(ends, shown, seed)
    high, wide = (
        max((spots[node][axis] for node in shown), default=0.0)
        - min((spots[node][axis] for node in shown), default=0.0)
        for axis in (1, 0)
    )
    if (high > wide) != (size[1] > size[0]):  # lay a tall graph down in a wide picture
        spots = {node: (y, x) for node, (x, y) in spots.items()}
    points = _fitted([spots.get(node, (0.0, 0.0)) for node in range(num_nodes)], shown, size)
    lengths = [math.dist(points[u], points[v]) for u, v in ends if u != v]
    mean = math.fsum(lengths) / len(lengths) if lengths else min(size) / 6
    unit = max(8.0, min(mean, min(size) / 6))
    radius = 0.2 * unit
    lines = tuple(
        Shape(line(points[u], points[v]), stroke="#777777", width=1.2, kind=f"bond-{number} line")
        for number, (u, v) in enumerate(ends)
    )
    front: list[Shape | Words] = []
    for node in shown:
        x, y = points[node]
        if is_filled:
            path, kind = circle(x, y, radius), f"node atom-{node}"
            front.append(Shape(path, WHITE, "#777777", 1.0, kind=kind, note=str(node)))
        if len(shown) <= _NUMBERED:
            font = max(6.0, min(11.0, 1.5 * radius, 3.0 * radius / len(str(node))))
            front.append(Words(x, y + 0.36 * font, str(node), font))
    names = [str(node) for node in range(num_nodes)]
    return Canvas(points, unit, lines, tuple(front), names, [""] * len(ends))


def _layout(ends: Sequence[tuple[int, int]], nodes: Sequence[int], seed: int) -> dict[int, Any]:
    """Returns a place of each node, the same for the same graph and seed."""
    try:
        import networkx as nx
    except ImportError as error:
        raise NicegnnError(
            "Graphs without SMILES need networkx; install it with pip install 'nicegnn[plots]'."
        ) from error
    graph = nx.Graph()
    graph.add_nodes_from(nodes)
    graph.add_edges_from(pair for pair in ends if pair[0] != pair[1])
    if 1 < len(nodes) <= _BALANCED and nx.is_connected(graph):
        return dict(nx.kamada_kawai_layout(graph))
    return dict(nx.spring_layout(graph, seed=seed, iterations=200)) if nodes else {}


def _fitted(points: Sequence[Any], shown: Sequence[int], size: Size) -> list[Point]:
    """Moves and stretches places so that those shown fill the picture but for a rim."""
    xs, ys = ([float(points[node][axis]) for node in shown] for axis in (0, 1))
    rim = 0.1 * min(size)
    wide, high = (max(values, default=0.0) - min(values, default=0.0) for values in (xs, ys))
    room = size[0] - 2 * rim, size[1] - 2 * rim
    scale = min(
        (space / length for space, length in zip(room, (wide, high), strict=True) if length > 1e-9),
        default=1.0,
    )
    middle = [(max(values, default=0.0) + min(values, default=0.0)) / 2 for values in (xs, ys)]
    return [
        (
            size[0] / 2 + scale * (float(x) - middle[0]),
            size[1] / 2 + scale * (float(y) - middle[1]),
        )
        for x, y in points
    ]


def unchecked_molecule(atoms: Sequence[str], bonds: Sequence[Bond]) -> Mol:
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
    return mol


def prepared_molecule(mol: Mol) -> Mol:
    """Returns the molecule with 2D coordinates, in Kekulé's form."""
    return require_rdkit(_DRAW).PrepareMolForDrawing(mol, addChiralHs=False)


def rdkit_drawing(
    mol: Mol, size: Size, *, numbered: bool = False
) -> tuple[list[Point], float, str]:
    """Returns the place of each atom, the mean bond length in pixels, and RDKit's SVG paths."""
    check_size(size)
    drawer = require_rdkit(_DRAW).MolDraw2DSVG(*size)
    options = drawer.drawOptions()
    options.clearBackground = False
    options.prepareMolsBeforeDrawing = False
    options.padding = 0.08  # room for wide lines at the rim
    options.fixedBondLength = min(size) / 6  # small molecules are not blown up
    options.addAtomIndices = numbered
    options.useBWAtomPalette()  # colour is kept for scores
    drawer.DrawMolecule(mol)
    drawer.FinishDrawing()
    spots = [drawer.GetDrawCoords(atom) for atom in range(mol.GetNumAtoms())]
    points = [(spot.x, spot.y) for spot in spots]
    lengths = [math.dist(*(points[atom] for atom in _ends(bond))) for bond in mol.GetBonds()]
    unit = math.fsum(lengths) / len(lengths) if lengths else min(size) / 6
    body = drawer.GetDrawingText().partition("<!-- END OF HEADER -->")[2].rpartition("</svg>")[0]
    return points, unit, body.strip()


def line(start: Point, end: Point) -> str:
    """Returns the path from one point to another."""
    return f"M {start[0]:.1f},{start[1]:.1f} L {end[0]:.1f},{end[1]:.1f}"


def _ends(bond: Any) -> tuple[int, int]:
    return bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()
