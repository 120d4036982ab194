"""Pictures of explanations: RDKit draws a molecule, and each bond is coloured by its score.

Scores are divided by the largest absolute score of the molecule, so the strongest bond always has
the full colour and the widest line. Shades of two pictures cannot be compared.

RDKit's paths have the class ``bond-N``. Under every bond lies a band from atom to atom, of class
``band bond-N``. The stroke of a band is the colour of its bond; a browser can change it later.

SVG strings define no ids and no style sheet, and have a transparent background unless one is
given, so one HTML page can hold any number of them.
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
from nicegnn.molecule.smiles import (
    BOND_TYPES,
    CATCH_ALL,
    Bond,
    MoleculeError,
    parse_smiles,
    require_rdkit,
)

if TYPE_CHECKING:
    from rdkit.Chem import Mol

Point = tuple[float, float]
Values = Sequence[float] | Tensor
Stroke = tuple[int, str, float]  # a line behind a bond: bond, colour, width in mean bond lengths

_DRAW = "rdkit.Chem.Draw.rdMolDraw2D"
_BOND_PATH = re.compile(r"(<path class='bond-(\d+) [^>]*?)\s*/>")
_STYLED = re.compile(r"<path[^>]*? d='([^']*)' style='([^']*)'\s*/>")


@dataclass(frozen=True)
class Palette:
    """Colours of a picture, as ``#rrggbb``; colour-blind readers can tell the defaults apart."""

    positive: str = "#d55e00"  # strongest positive value
    negative: str = "#0072b2"  # strongest negative value of a signed picture
    truth: str = "#009e73"  # bonds known to be true
    weak: str = "#f7f4f0"  # value zero, where both ramps start


#: Palettes by name: one hue for scores, another for gates (masks in [0, 1]).
PALETTES = {"score": Palette(), "gate": Palette(positive="#7b52ab")}


class DrawError(NicegnnError, ValueError):
    """Scores or true bonds do not fit the molecule."""


def molecule_svg(
    smiles: str,
    bond_score: Values | None = None,
    *,
    bond_truth: Iterable[int] | Tensor | None = None,
    title: str | None = None,
    size: tuple[int, int] = (320, 240),
    palette: str | Palette = "score",
    signed: bool = False,
    background: str | None = None,
) -> str:
    """Returns a molecule as an SVG string, its bonds coloured by score.

    Pointing at a bond shows its atoms and its score. Bond numbers are those of the parsed SMILES.

    Args:
        bond_score: one number per bond, ``[E/2]``; merge the two directed edges of a bond first.
        bond_truth: numbers of the true bonds; full lines without scores, outlines with scores.
        size: width and height in pixels.
        palette: ``"score"``, ``"gate"`` or a `Palette`.
        signed: whether negative numbers get the second hue; otherwise they count as zero.
        background: ``#rrggbb``, or transparent by default.
    """
    mol, strokes, texts = _plan(smiles, bond_score, bond_truth, palette, signed)
    bands, body, unit = _draw(mol, size, title)
    notes = [f"<title>{escape(text)}</title>" for text in texts]
    parts = [
        f"<path class='band bond-{bond}' d='{bands[bond]}' stroke='{colour}' "
        f"stroke-width='{width * unit:.2f}' stroke-linecap='round'>{notes[bond]}</path>"
        for bond, colour, width in strokes
    ]
    if background is not None:
        _rgb(background)  # raises unless it is a colour
        parts.insert(0, f'<rect width="{size[0]}" height="{size[1]}" fill="{background}"/>')
    parts.append(_BOND_PATH.sub(lambda path: f"{path[1]}>{notes[int(path[2])]}</path>", body))
    return _svg(parts, size, title or smiles)


def molecule_png(
    smiles: str,
    bond_score: Values | None = None,
    *,
    bond_truth: Iterable[int] | Tensor | None = None,
    palette: str | Palette = "score",
    size: tuple[int, int] = (320, 240),
    background: str | None = None,
) -> bytes:
    """Returns the picture of `molecule_svg` as the bytes of a PNG file."""
    mol, strokes, _ = _plan(smiles, bond_score, bond_truth, palette, signed=False)
    point = require_rdkit("rdkit.Geometry").Point2D
    scratch, drawer = (_drawer("MolDraw2DCairo", size) for _ in range(2))
    scratch.DrawMolecule(mol)  # only to place the atoms
    points, unit = _layout(scratch, mol)
    if background is not None:
        drawer.drawOptions().setBackgroundColour(_rgb(background))
        drawer.ClearDrawing()
    drawer.SetFillPolys(True)
    for bond, colour, width in strokes:
        ends = [points[atom] for atom in _ends(mol.GetBondWithIdx(bond))]
        radius = width * unit / 2
        drawer.SetColour(_rgb(colour))
        drawer.SetLineWidth(2 * radius)
        drawer.DrawLine(point(*ends[0]), point(*ends[1]), rawCoords=True)
        drawer.SetLineWidth(0)
        for x, y in ends:  # round ends, as in the SVG
            corners = point(x - radius, y - radius), point(x + radius, y + radius)
            drawer.DrawEllipse(*corners, rawCoords=True)
    drawer.SetLineWidth(2)
    drawer.DrawMolecule(mol)
    drawer.FinishDrawing()
    return bytes(drawer.GetDrawingText())


def blank_svg(
    smiles: str, atoms: Sequence[str], bonds: Sequence[Bond], size: tuple[int, int] = (320, 240)
) -> str:
    """Returns a molecule whose bands have no colour yet; a page colours them.

    Band ``N`` belongs to ``bonds[N]``, in any order; ``data-unit`` of the SVG is the mean bond
    length. If the SMILES is empty or describes another graph, the molecule is drawn from its atoms
    and bonds without a check of its chemistry.
    """
    known = _same_molecule(smiles, len(atoms), bonds)
    mol = _unchecked(atoms, bonds) if known is None else _prepared(known, wedges=False)
    bands, body, unit = _draw(mol, size)
    place = {frozenset(bond[:2]): number for number, bond in enumerate(bonds)}
    paths = sorted((place[frozenset(_ends(bond))], bands[bond.GetIdx()]) for bond in mol.GetBonds())
    parts = [f"<path class='band bond-{number}' d='{path}'/>" for number, path in paths]

    def without_style(path: re.Match[str]) -> str:  # a class for the page's style sheet instead
        dashed = " dashed" if "dasharray" in path[2] else ""
        return f"<path class='line{dashed}' d='{path[1]}'/>"

    drawn = _svg([*parts, _STYLED.sub(without_style, body)], size, smiles or "molecule")
    return drawn.replace("<svg", f'<svg data-unit="{unit:.1f}"', 1)


def _same_molecule(smiles: str, num_atoms: int, bonds: Sequence[Bond]) -> Mol | None:
    """Returns the molecule of a SMILES, or None if it has other atoms or bonds."""
    try:
        mol = parse_smiles(smiles)
    except MoleculeError:
        return None
    wanted = {frozenset(bond[:2]) for bond in bonds}
    is_same = wanted == {frozenset(_ends(bond)) for bond in mol.GetBonds()}
    return mol if is_same and mol.GetNumAtoms() == num_atoms else None


def _unchecked(atoms: Sequence[str], bonds: Sequence[Bond]) -> Mol:
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


def _prepared(mol: Mol, *, wedges: bool = True) -> Mol:
    """Returns the molecule with 2D coordinates, in Kekulé's form."""
    return require_rdkit(_DRAW).PrepareMolForDrawing(mol, addChiralHs=False, wedgeBonds=wedges)


def _draw(
    mol: Mol, size: tuple[int, int], title: str | None = None
) -> tuple[list[str], str, float]:
    """Returns the path of each band, RDKit's SVG, and the mean bond length in pixels."""
    drawer = _drawer("MolDraw2DSVG", size)
    drawer.DrawMolecule(mol, legend=title or "")
    drawer.FinishDrawing()
    points, unit = _layout(drawer, mol)
    lines = [[points[atom] for atom in _ends(bond)] for bond in mol.GetBonds()]
    bands = [f"M {u:.1f},{v:.1f} L {x:.1f},{y:.1f}" for (u, v), (x, y) in lines]
    body = drawer.GetDrawingText().partition("<!-- END OF HEADER -->")[2].rpartition("</svg>")[0]
    return bands, body.strip(), unit


def _layout(drawer: Any, mol: Mol) -> tuple[list[Point], float]:
    """Returns the positions of the atoms and the mean bond length, in pixels."""
    spots = [drawer.GetDrawCoords(atom) for atom in range(mol.GetNumAtoms())]
    points = [(spot.x, spot.y) for spot in spots]
    lengths = [math.dist(*(points[atom] for atom in _ends(bond))) for bond in mol.GetBonds()]
    return points, math.fsum(lengths) / max(len(lengths), 1)


def _drawer(kind: str, size: tuple[int, int]) -> Any:
    """Returns RDKit's drawer of a kind with our options."""
    if len(size) != 2 or not all(type(length) is int and length >= 1 for length in size):
        raise ConfigError(
            f"`size` must be width and height in whole pixels, at least 1 each (got {size!r})."
        )
    drawer = getattr(require_rdkit(_DRAW), kind)(*size)
    options = drawer.drawOptions()
    options.clearBackground = False
    options.prepareMolsBeforeDrawing = False
    options.padding = 0.08  # room for wide lines at the rim
    options.fixedBondLength = min(size) / 6  # small molecules are not blown up
    options.useBWAtomPalette()  # colour is kept for scores
    return drawer


def _svg(parts: Sequence[str], size: tuple[int, int], label: str) -> str:
    width, height = size
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" role="img" aria-label="{escape(label)}">'
    )
    return "\n".join([head, *parts, "</svg>"])


def _plan(
    smiles: str,
    bond_score: Values | None,
    bond_truth: Iterable[int] | Tensor | None,
    palette: str | Palette,
    signed: bool,
) -> tuple[Mol, list[Stroke], list[str]]:
    """Returns the prepared molecule, lines from back to front, and a note per bond."""
    if not isinstance(palette, Palette):
        if palette not in PALETTES:
            known = [*PALETTES]
            raise ConfigError(f"`palette` must be one of {known} or a Palette (got {palette!r}).")
        palette = PALETTES[palette]
    mol = parse_smiles(smiles)
    values = _values(bond_score, mol.GetNumBonds())
    truth = _indices(bond_truth, mol.GetNumBonds())
    strokes = _strokes(values, truth, palette, signed)
    notes = [_note(bond, values, truth) for bond in mol.GetBonds()]
    return _prepared(mol), strokes, notes


def _strokes(
    values: list[float] | None, truth: set[int], palette: Palette, signed: bool
) -> list[Stroke]:
    """Returns lines from back to front: outlines of true bonds, then scores, the strongest last."""
    if values is None:
        return [(bond, palette.truth, 0.42) for bond in sorted(truth)]
    strokes = [(bond, palette.truth, 0.66) for bond in sorted(truth)]
    strokes += [(bond, palette.weak, 0.50) for bond in sorted(truth)]
    shown = [value if signed else max(value, 0.0) for value in values]
    largest = max((abs(value) for value in values), default=0.0)
    for bond in sorted(range(len(shown)), key=lambda bond: abs(shown[bond])):
        level = abs(shown[bond]) / largest if largest > 0 else 0.0  # in [0, 1]
        if level > 0:
            strong = palette.positive if shown[bond] > 0 else palette.negative
            strokes.append((bond, _mix(palette.weak, strong, level), 0.12 + 0.30 * level))
    return strokes


def _mix(weak: str, strong: str, level: float) -> str:
    """Returns the colour at ``level`` in [0, 1] on the straight line between two colours."""
    pairs = zip(_rgb(weak), _rgb(strong), strict=True)
    return "#" + "".join(f"{round(255 * (a + (b - a) * level)):02x}" for a, b in pairs)


def _rgb(colour: str) -> tuple[float, float, float]:
    if not re.fullmatch(r"#[0-9a-fA-F]{6}", colour):
        raise ConfigError(f"A colour must be written as '#rrggbb' (got {colour!r}).")
    red, green, blue = (int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5))
    return red, green, blue


def _note(bond: Any, values: list[float] | None, truth: set[int]) -> str:
    """Returns the text of a bond: its atoms, its type, its score, and whether it is true."""
    number, ends = bond.GetIdx(), (bond.GetBeginAtom(), bond.GetEndAtom())
    name = "-".join(f"{atom.GetSymbol()}{atom.GetIdx()}" for atom in ends)
    score = "" if values is None else f", score {values[number]:.4g}"
    return f"{name}, {str(bond.GetBondType()).lower()}{score}{', true' if number in truth else ''}"


def _ends(bond: Any) -> tuple[int, int]:
    return bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()


def _values(score: Values | None, num: int) -> list[float] | None:
    """Returns the scores as plain numbers, checked against the molecule."""
    if score is None:
        return None
    values = [float(value) for value in score]
    if len(values) != num:
        advice = "Pass the scores of this molecule."
        if len(values) == 2 * num and num:
            advice = "Merge the two directed edges of every bond into one score first."
        raise DrawError(
            f"`bond_score` must have {num} numbers, one per bond (got {len(values)}). {advice}"
        )
    bad = [index for index, value in enumerate(values) if not math.isfinite(value)]
    if bad:
        raise DrawError(
            f"`bond_score` must be finite (got {values[bad[0]]} at bond {bad[0]}, and {len(bad)} "
            f"of {num} are not finite). Replace them, or explain the molecule again."
        )
    return values


def _indices(truth: Iterable[int] | Tensor | None, num: int) -> set[int]:
    """Returns the numbers of true bonds, checked; a mask would be read as bonds 0 and 1."""
    given = () if truth is None else truth
    items: list[Any] = given.tolist() if isinstance(given, Tensor) else list(given)
    for item in items:
        if "bool" in type(item).__name__ or not 0 <= item < num:
            raise DrawError(
                f"`bond_truth` must hold bond numbers from 0 to {num - 1} (got {item!r}). Turn a "
                "mask into numbers with `mask.nonzero().flatten().tolist()`."
            )
    return {int(item) for item in items}
