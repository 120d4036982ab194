"""Pictures of explained graphs: each bond is coloured by its score, each atom by its own.

RDKit draws molecules; a graph without SMILES is laid out by networkx. Under every bond lies a band
from node to node, of class ``band bond-N``, where N is its place in ``bond_index``; its colour and
its width grow with the score. Atom scores are discs behind the atoms.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from nicegnn.errors import ConfigError, NicegnnError
from nicegnn.molecule.canvas import (
    WHITE,
    Canvas,
    line,
    molecule_canvas,
    plain_canvas,
)
from nicegnn.molecule.picture import (
    INK,
    Palette,
    Picture,
    Ramp,
    Shape,
    Size,
    Words,
    check_size,
    circle,
    colour_bars,
    find_palette,
    key_line,
    make_ramp,
    stack,
    title_line,
)
from nicegnn.molecule.smiles import matched_molecule

Values = Sequence[float] | Tensor
Mask = Sequence[bool] | Tensor

#: What a legend calls scores of bonds, scores of atoms and outlined bonds.
NAMES = ("bond score", "atom score", "best bonds")


class DrawError(NicegnnError, ValueError):
    """Scores or marks do not fit the graph."""


def draw_graph(
    bond_index: Tensor,
    bond_score: Values | None = None,
    *,
    smiles: str | None = None,
    molecule: Any = None,
    num_nodes: int | None = None,
    atom_score: Values | None = None,
    bond_truth: Mask | None = None,
    bond_top: Mask | None = None,
    title: str | None = None,
    size: Size = (320, 240),
    palette: str | Palette = "score",
    signed: bool | None = None,
    limit: float | None = None,
    atom_signed: bool | None = None,
    atom_limit: float | None = None,
    names: tuple[str, str, str] = NAMES,
    legend: bool = True,
    background: str | None = WHITE,
    root: int | None = None,
    seed: int = 0,
    numbered: bool = False,
) -> Picture:
    """Returns the picture of a graph, its bonds and atoms coloured by their scores.

    Pointing at a bond or an atom shows its name and its score. Colours are relative to the largest
    score of the picture unless a limit is given.

    Args:
        bond_index: the two nodes of each bond, long ``[2, M]``; numbers of bonds are in its order.
        bond_score: one number per bond, ``[M]``; merge the two directed edges of a bond first.
        smiles: the molecule, whose atom ``i`` is node ``i``; without it a plain graph is drawn.
        molecule: instead of SMILES, an RDKit molecule that is ready to be drawn, such as one of
            `unchecked_molecule`.
        num_nodes: number of nodes, by default those that bonds and ``atom_score`` tell.
        atom_score: one number per node, ``[V]``.
        bond_truth: true bonds, bool ``[M]``; full lines without scores, outlines with scores.
        bond_top: bonds to outline, bool ``[M]``.
        size: width and height in pixels, with title and legend.
        palette: ``"score"``, ``"gate"`` or a `Palette`.
        signed: whether negative numbers get the second hue, or count as zero; by default they do
            where there are any.
        limit: number that has the full colour.
        atom_signed: as ``signed``, and ``atom_limit`` as ``limit``, for atoms.
        names: what the legend calls scores of bonds, scores of atoms and outlined bonds.
        background: ``#rrggbb``, or None for a transparent one.
        root: node with a ring around it.
        seed: of the layout of a plain graph.
        numbered: show the numbers of a molecule's atoms.

    >>> draw_graph(torch.tensor([[0], [1]]), [0.5], smiles="CO").size
    (320, 240)
    """
    check_size(size)
    colours = find_palette(palette)
    bond_index = _bond_index(bond_index)
    num_bonds = bond_index.size(1)
    atoms = None if atom_score is None else _numbers("atom_score", atom_score, num_nodes, "node")
    if num_nodes is None and atoms is not None:
        num_nodes = len(atoms)
    scores = None if bond_score is None else _numbers("bond_score", bond_score, num_bonds, "bond")
    truth, top = _mask("bond_truth", bond_truth, num_bonds), _mask("bond_top", bond_top, num_bonds)
    bond_ramp = make_ramp(scores or (), colours, signed=signed, limit=limit)
    atom_ramp = make_ramp(atoms or (), colours, signed=atom_signed, limit=atom_limit)

    head = [title_line(title, size[0])] if title else []
    below = []
    if legend:
        below = legend_lines(
            {
                **({} if scores is None else {names[0]: bond_ramp}),
                **({} if atoms is None else {names[1]: atom_ramp}),
            },
            {
                **({names[2]: colours.top} if any(top) else {}),
                **({"true bonds": colours.truth} if any(truth) else {}),
            },
            size[0],
        )
    taken = sum(line.size[1] for line in (*head, *below))
    if size[1] - taken < 20:
        raise ConfigError(
            f"`size` must be at least {taken + 20} pixels high with this title and legend (got "
            f"{size!r}). Make it larger, or leave them out."
        )
    inner = size[0], size[1] - taken
    ends = list(zip(*bond_index.tolist(), strict=True))
    if smiles:
        mol = matched_molecule(smiles, bond_index, num_nodes)
        canvas = molecule_canvas(mol, ends, inner, numbered=numbered)
    elif molecule is not None:
        canvas = molecule_canvas(molecule, ends, inner, is_prepared=True, numbered=numbered)
    else:
        canvas = plain_canvas(ends, num_nodes, inner, root, seed, is_filled=atoms is None)
    notes = [_note(canvas, ends, bond, scores, truth) for bond in range(len(ends))]
    parts = [
        *_bands(canvas, ends, notes, scores, truth, top, bond_ramp),
        *_noted(canvas.lines, notes),
        *_discs(canvas, atoms, atom_ramp),
        *_noted(canvas.front, notes),
    ]
    if root is not None:
        path = circle(*canvas.points[root], 0.38 * canvas.unit)
        parts.append(Shape(path, stroke=INK, width=1.6, kind="root", note="explained node"))
    body = Picture(inner, tuple(parts), smiles or "graph")
    return stack([*head, body, *below], label=title or smiles or "graph", background=background)


def legend_lines(
    ramps: Mapping[str, Ramp], outlines: Mapping[str, str], width: int
) -> list[Picture]:
    """Returns what stands below a picture: bars of colours, and outlines with their meaning."""
    shown = [(name, ramp) for name, ramp in ramps.items() if ramp.limit > 0]
    lines = [colour_bars(shown, width)] if shown else []
    if outlines:
        lines.append(key_line([(colour, text) for text, colour in outlines.items()], width))
    return lines


def _bands(
    canvas: Canvas,
    ends: Sequence[tuple[int, int]],
    notes: Sequence[str],
    scores: list[float] | None,
    truth: list[bool],
    top: list[bool],
    ramp: Ramp,
) -> list[Shape]:
    """Returns outlines of true and of best bonds, then the bands of scores, the strongest last."""
    palette = ramp.palette

    def band(bond: int, colour: str, width: float) -> Shape:
        u, v = ends[bond]
        path, kind = line(canvas.points[u], canvas.points[v]), f"band bond-{bond}"
        return Shape(path, "none", colour, width * canvas.unit, True, (), kind, notes[bond])

    true, best = ([bond for bond, is_it in enumerate(mask) if is_it] for mask in (truth, top))
    if scores is None:
        return [band(bond, palette.truth, 0.42) for bond in true]
    bands = [band(bond, palette.truth, 0.66) for bond in true]
    bands += [band(bond, palette.weak, 0.56) for bond in true]
    bands += [band(bond, palette.top, 0.53) for bond in best]
    bands += [band(bond, palette.weak, 0.46) for bond in best]
    levels = [ramp.level(score) for score in scores]
    for bond in sorted(range(len(levels)), key=levels.__getitem__):
        if levels[bond] > 0:
            bands.append(band(bond, ramp.colour(scores[bond]), 0.12 + 0.30 * levels[bond]))
    return bands


def _discs(canvas: Canvas, atoms: list[float] | None, ramp: Ramp) -> list[Shape]:
    """Returns a disc per atom whose score is not zero, the strongest last."""
    if atoms is None:
        return []
    discs = []
    for node in sorted(range(len(atoms)), key=lambda node: ramp.level(atoms[node])):
        level = ramp.level(atoms[node])
        if level > 0:
            path = circle(*canvas.points[node], canvas.unit * (0.16 + 0.18 * level))
            note, kind = f"{canvas.names[node]}, score {atoms[node]:.4g}", f"disc atom-{node}"
            discs.append(
                Shape(path, ramp.colour(atoms[node]), "#8c8c8c", 0.8, kind=kind, note=note)
            )
    return discs


def _noted(parts: Sequence[Shape | Words], notes: Sequence[str]) -> list[Shape | Words]:
    """Returns lines and labels; the line of a bond tells the same as its band."""
    noted: list[Shape | Words] = []
    for part in parts:
        if isinstance(part, Shape) and (number := re.match(r"bond-(\d+)\b", part.kind)):
            part = replace(part, note=notes[int(number[1])])
        noted.append(part)
    return noted


def _note(
    canvas: Canvas,
    ends: Sequence[tuple[int, int]],
    bond: int,
    scores: list[float] | None,
    truth: list[bool],
) -> str:
    """Returns the text of a bond: its atoms, its type, its score, and whether it is true."""
    words = ["-".join(canvas.names[node] for node in ends[bond])]
    words += [canvas.kinds[bond]] if canvas.kinds[bond] else []
    words += [] if scores is None else [f"score {scores[bond]:.4g}"]
    words += ["true"] if truth and truth[bond] else []
    return ", ".join(words)


def _bond_index(bond_index: Tensor) -> Tensor:
    """Returns the ends of bonds, long ``[2, M]``, checked; no pair of nodes may come twice."""
    index = torch.as_tensor(bond_index)
    if index.numel() == 0:
        return torch.zeros(2, 0, dtype=torch.long)
    if index.dim() != 2 or index.size(0) != 2 or index.is_floating_point() or index.min() < 0:
        raise DrawError(
            "`bond_index` must hold node numbers of shape [2, M], such as `out.bond_index` (got "
            f"shape {tuple(index.shape)} of {index.dtype}, lowest {index.min()})."
        )
    pairs = [frozenset(pair) for pair in index.t().tolist()]
    if len(set(pairs)) < len(pairs):
        twice = next(pair for number, pair in enumerate(pairs) if pair in pairs[:number])
        raise DrawError(
            f"`bond_index` must hold each bond once (got {'-'.join(map(str, sorted(twice)))} "
            "again). Merge the two directed edges of every bond, or explain with undirected=True."
        )
    return index.long().cpu()


def _numbers(name: str, score: Values, num: int | None, unit: str) -> list[float]:
    """Returns scores as plain numbers, one per bond or node, all finite."""
    values = [float(value) for value in score]
    if num is not None and len(values) != num:
        advice = "Pass the scores of this graph."
        if len(values) == 2 * num and num:
            advice = "Merge the two directed edges of every bond into one score first."
        raise DrawError(
            f"`{name}` must have {num} numbers, one per {unit} (got {len(values)}). {advice}"
        )
    bad = [index for index, value in enumerate(values) if not math.isfinite(value)]
    if bad:
        raise DrawError(
            f"`{name}` must be finite (got {values[bad[0]]} at {unit} {bad[0]}, and {len(bad)} of "
            f"{len(values)} are not finite). Replace them, or draw another value."
        )
    return values


def _mask(name: str, mask: Mask | None, num: int) -> list[bool]:
    """Returns whether each bond is marked, checked; numbers of bonds would be read as a mask."""
    if mask is None:
        return []
    marks = torch.as_tensor(mask)
    if marks.numel() == 0:
        marks = marks.bool()
    if marks.dtype != torch.bool or tuple(marks.shape) != (num,):
        raise DrawError(
            f"`{name}` must be a mask of {num} booleans, one per bond (got {marks.dtype} of shape "
            f"{tuple(marks.shape)})."
        )
    return [bool(mark) for mark in marks.tolist()]
