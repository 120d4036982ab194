"""Explanations as pictures: graphs and molecules, methods side by side, and in notebooks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import get_args

import torch
from torch import Tensor

from nicegnn.config import check_choice, check_count
from nicegnn.errors import ConfigError, NicegnnError
from nicegnn.explain.checks import share_or_number, shown
from nicegnn.explain.explanation import Explanation, Value
from nicegnn.explain.words import summarise, title_of
from nicegnn.molecule.drawing import NAMES, draw_graph, legend_lines
from nicegnn.molecule.picture import (
    Palette,
    Picture,
    Ramp,
    find_palette,
    grid,
    make_ramp,
    stack,
    title_line,
)

_VALUES = {"loss": "loss", "gate": "gate"}  # names in legends
_UNITS = {"odds": "share of the odds lost", "value": "fall of the value", "own": "bond score"}
_LARGE = 60  # nodes of a plain graph of which only reached bonds are drawn
_PICTURED = 6  # graphs that a notebook shows
_LISTED = 5  # ranks in the table of a notebook


@dataclass(frozen=True)
class Look:
    """How graphs are drawn; see `Explanation.draw`."""

    value: Value = "score"
    top: float | int | None = None
    size: tuple[int, int] = (340, 260)
    columns: int = 3
    most: int = 12
    palette: str | Palette = "score"
    signed: bool | None = None
    limit: float | None = None
    background: str | None = "#ffffff"

    def __post_init__(self) -> None:
        check_choice("value", self.value, get_args(Value))
        check_choice("signed", self.signed, (None, True, False))
        find_palette(self.palette)  # raises unless there is one
        if self.top is not None:
            share_or_number("top", self.top)
        check_count(self, "columns", "most")


def _names(out: Explanation, look: Look) -> tuple[str, str, str]:
    """Returns what the legend calls scores of bonds, scores of atoms and outlined bonds."""
    best = NAMES[2]
    if look.top is not None:
        best = f"top {look.top:.0%}" if isinstance(look.top, float) else f"best {look.top}"
    bonds = _UNITS[out.unit] if look.value == "score" else _VALUES[look.value]
    return bonds, NAMES[1], best


def draw(
    out: Explanation,
    look: Look,
    smiles: str | Sequence[str] | None = None,
    truth: Tensor | None = None,
    title: str | None = None,
) -> Picture:
    """Returns the picture of an explanation; see `Explanation.draw`."""
    out = with_smiles(out, smiles)
    is_mask = isinstance(truth, Tensor) and truth.dtype == torch.bool
    if truth is not None and not (is_mask and truth.shape == out.bond_score.shape):
        raise ConfigError(
            f"`truth` must be a mask with one entry per bond, {out.bond_score.numel()} in all "
            f"(got {shown(truth)}). Pass True for true bonds."
        )
    if not isinstance(title, str | None):
        raise ConfigError(
            f"`title` must be a text (got {shown(title)}). Pass one, or leave it out."
        )
    out, truth = _with_all_bonds(out, truth)
    drawn = out.first(look.most)
    parts, bond_ramp, atom_ramp = drawn.split(), _ramp(drawn, look), _atom_ramp(drawn, look)
    truths: list[Tensor | None] = [None] * len(parts)
    if truth is not None:
        truths = [truth[out.bonds.batch == graph] for graph in range(len(parts))]
    if out.num_graphs == 1:
        return _cell(parts[0], look, truths[0], title or title_of(parts[0]), bond_ramp, atom_ramp)
    cells = [
        _cell(part, look, true, f"{number}: {title_of(part)}", bond_ramp, atom_ramp, legend=False)
        for number, (part, true) in enumerate(zip(parts, truths, strict=True))
    ]
    inner = grid(cells, look.columns, label=title or f"{len(parts)} graphs")
    width, palette = inner.size[0], find_palette(look.palette)
    if title is None and out.num_graphs > len(parts):
        title = f"{len(parts)} of {out.num_graphs} graphs"
    head = [title_line(title, width, size=15.0)] if title else []
    names = _names(out, look)
    ramps = {names[0]: bond_ramp} | ({names[1]: atom_ramp} if atom_ramp else {})
    outlines = {names[2]: palette.top} if look.top is not None else {}
    outlines |= {"true bonds": palette.truth} if truth is not None and bool(truth.any()) else {}
    legend = legend_lines(ramps, outlines, width)
    return stack([*head, inner, *legend], label=inner.label, background=look.background)


def draw_methods(
    explanations: Mapping[str, Explanation],
    smiles: str | Sequence[str] | None = None,
    *,
    truth: Tensor | None = None,
    title: str | None = None,
    look: Look | None = None,
) -> Picture:
    """Returns explanations of the same graphs side by side: a row per graph, a column per method.

    Every picture has its own scale, since scores of methods have different units.

    Args:
        explanations: explanations of the same graphs by the names of their methods.
        smiles: as in `Explanation.draw`.
        truth: true bonds in the order of the first explanation, bool ``[M]``.
    """
    look = Look() if look is None else look
    named = {name: with_smiles(out, smiles) for name, out in explanations.items()}
    if not named:
        raise ConfigError("`explanations` must hold at least one explanation (got none).")
    first = next(iter(named.values()))
    for name, out in named.items():
        is_same = torch.equal(out.ptr.cpu(), first.ptr.cpu())
        if not is_same or not torch.equal(out.bond_index.cpu(), first.bond_index.cpu()):
            raise ConfigError(
                f"`explanations` must all be of the same graphs (got others for {name!r}: "
                f"{out!r}, not {first!r})."
            )
    named = {name: _with_all_bonds(out)[0] for name, out in named.items()}
    first, truth = _with_all_bonds(first, truth)
    shown = min(first.num_graphs, look.most)
    cells = []
    split = {name: out.first(look.most).split() for name, out in named.items()}
    for graph in range(shown):
        true = None if truth is None else truth[first.bonds.batch == graph]
        for name, parts in split.items():
            part = parts[graph]
            words = name if shown == 1 else f"{name}, graph {graph}"
            ramps = _ramp(part, look), _atom_ramp(part, look)
            cells.append(_cell(part, look, true, words, *ramps))
    inner = grid(cells, len(named), label=title or " beside ".join(named))
    title = title or (title_of(first) if first.num_graphs == 1 else None)
    head = [title_line(title, inner.size[0], size=15.0)] if title else []
    return stack([*head, inner], label=inner.label, background=look.background)


def with_smiles(out: Explanation, smiles: str | Sequence[str] | None) -> Explanation:
    """Returns the explanation with other SMILES, one per graph."""
    if smiles is None:
        return out
    given = (smiles,) * out.num_graphs if isinstance(smiles, str) else smiles
    is_one = isinstance(smiles, str) and smiles != "" and out.index is None
    is_list = isinstance(given, list | tuple) and all(isinstance(one, str) for one in given)
    if not is_list or len(given) != out.num_graphs or (is_one and out.num_graphs > 1):
        raise ConfigError(
            f"`smiles` must be a list of SMILES, one per graph, {out.num_graphs} in all (got "
            f"{shown(smiles)}). Pass an empty one to draw a plain graph."
        )
    return replace(out, smiles=tuple(given))


def _with_all_bonds(
    out: Explanation, truth: Tensor | None = None
) -> tuple[Explanation, Tensor | None]:
    """Returns explanations of nodes with all bonds where these are drawn, and the truth of them."""
    if out.whole is None or not (out.smiles or int(out.ptr[1]) <= _LARGE):
        return out, truth
    dense = out.to_dense()
    if truth is not None:  # bonds are in the same order
        truth = torch.zeros_like(dense.bond_reached).masked_scatter(dense.bond_reached, truth)
    return dense, truth


def _value(out: Explanation, look: Look) -> Tensor:
    """Returns what colours the bonds, ``[M]``."""
    value: Tensor = getattr(out, f"bond_{look.value}")
    if bool(value.isnan().any()):
        raise ConfigError(
            f"`value` must be one that the explainer gives (got {look.value!r}, which it has not: "
            "the numbers are nan). Draw value='score'."
        )
    return value


def _ramp(out: Explanation, look: Look) -> Ramp:
    palette, values, limit = find_palette(look.palette), _value(out, look).tolist(), look.limit
    if limit is None and out.unit == "odds" and look.value == "score":
        limit = 1.0  # one scale for all molecules: what rests on no bond stays pale
    return make_ramp(values, palette, signed=look.signed, limit=limit)


def _atom_ramp(out: Explanation, look: Look) -> Ramp | None:
    if out.atom_score is None:
        return None
    limit = 1.0 if out.unit == "odds" else None
    values, palette = out.atom_score.tolist(), find_palette(look.palette)
    return make_ramp(values, palette, signed=look.signed, limit=limit)


def _cell(
    part: Explanation,
    look: Look,
    truth: Tensor | None,
    title: str,
    bond_ramp: Ramp,
    atom_ramp: Ramp | None,
    *,
    legend: bool = True,
) -> Picture:
    """Returns the picture of one graph on given scales."""
    num_nodes = int(part.ptr[-1])
    smiles = part.smiles[0] if part.smiles else ""
    shown = torch.ones_like(part.bond_reached)
    if not smiles and part.index is not None and num_nodes > _LARGE:
        shown = part.bond_reached  # the surroundings of the explained node
    return draw_graph(
        part.bond_index[:, shown],
        _value(part, look)[shown],
        smiles=smiles,
        num_nodes=num_nodes,
        atom_score=part.atom_score,
        bond_truth=None if truth is None else truth[shown],
        bond_top=None if look.top is None else part.top(look.top)[shown],
        title=title,
        size=look.size,
        palette=look.palette,
        signed=bond_ramp.signed,
        atom_signed=None if atom_ramp is None else atom_ramp.signed,
        limit=bond_ramp.limit or None,
        atom_limit=None if atom_ramp is None else atom_ramp.limit or None,
        names=_names(part, look),
        legend=legend,
        background=look.background,
        root=None if part.index is None or part.index.dim() > 1 else int(part.index),
    )


def to_html(out: Explanation) -> str:
    """Returns words, pictures of the first graphs and a table, for notebooks; never raises."""
    shown = out.first(_PICTURED)
    words = escape(summarise(out, most=_PICTURED)).replace("\n", "<br>")
    parts = [f"<div style='max-width: 60em; line-height: 1.4'>{words}</div>"]
    for name, make in (("picture", _picture_of), ("table", _table_of)):
        try:
            text = make(shown)
        except (NicegnnError, ImportError) as error:
            text = f"<em>No {name}: {escape(str(error))}</em>"
        parts.append(f"<div style='margin-top: 0.5em'>{text}</div>")
    return f"<div>{''.join(parts)}</div>"


def _picture_of(out: Explanation) -> str:
    return draw(out, Look()).svg


def _table_of(out: Explanation) -> str:
    """Returns the best bonds of each graph as a table."""
    frame = out.to_frame()
    best = frame[frame["rank"] <= _LISTED].sort_values(["graph", "rank"], kind="stable")
    if len(best):  # without rows every column is empty
        best = best.dropna(axis="columns", how="all")
    return str(best.to_html(index=False, border=0, float_format=lambda value: f"{value:.3g}"))
