"""Explanations as pictures, and in notebooks."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any, get_args

import torch
from torch import Tensor

from nicegnn.config import check_choice
from nicegnn.errors import ConfigError, NicegnnError
from nicegnn.explain.checks import share_or_number, shown
from nicegnn.explain.explanation import Explanation, Value
from nicegnn.explain.words import summarise, title_of
from nicegnn.molecule.drawing import Panel, Picture, draw_panels

#: What scores of bonds and atoms are, by their unit.
LEGENDS = {
    "odds": "share of the odds lost without it; minus: gained",
    "value": "fall of the value without it; minus: rise",
    "own": "score of the method",
}
_VALUES = {"loss": "loss", "change": "change of the log-odds or value", "gate": "gate"}
_LARGE = 60  # nodes of a plain graph of which only reached bonds are drawn
_PICTURED = 6  # graphs that a notebook shows


def draw(
    out: Explanation,
    value: Value,
    top: float | int | None,
    truth: Tensor | None,
    title: str | None,
    most: int,
    **look: Any,
) -> Picture:
    """Returns the picture of an explanation; see `Explanation.draw`."""
    check_choice("value", value, get_args(Value))
    if top is not None:
        share_or_number("top", top)
    first = out.first(most)
    is_mask = isinstance(truth, Tensor) and truth.dtype == torch.bool
    if truth is not None and not (is_mask and truth.shape == out.bond_score.shape):
        raise ConfigError(
            f"`truth` must be a mask with one entry per bond, {out.bond_score.numel()} in all "
            f"(got {shown(truth)}). Pass True for true bonds."
        )
    if not isinstance(title, str | None):
        raise ConfigError(f"`title` must be a text (got {shown(title)}). Leave it out.")
    names = [title_of(part) for part in first.split()]
    if out.num_graphs == 1:
        names, title = [title or names[0]], ""
    else:
        names = [f"{number}: {name}" for number, name in enumerate(names)]
        if title is None and out.num_graphs > most:
            title = f"{most} of {out.num_graphs} graphs"
    is_share = out.unit == "odds" and value == "score"
    legend = LEGENDS[out.unit] if value == "score" else _VALUES[value]
    marks = ["green: true bonds"] if truth is not None else []
    if top is not None:
        marks.append(f"black: {f'top {top:.0%}' if isinstance(top, float) else f'best {top}'}")
    return draw_panels(
        _panels(first, value, top, truth, names),
        title=title or "",
        legend="\n".join(filter(None, [legend, "; ".join(marks)])),
        limit=1.0 if is_share else None,  # one scale: what rests on no bond stays pale
        **look,
    )


def _panels(
    out: Explanation, value: Value, top: float | None, truth: Tensor | None, names: Sequence[str]
) -> list[Panel]:
    """Returns graphs as they are drawn."""
    if truth is not None:
        truth = truth[: out.bond_score.numel()]  # graphs follow each other
    if out.whole is not None and (out.smiles or int(out.ptr[1]) <= _LARGE):  # of nodes: all bonds
        out = out.to_dense()
        if truth is not None:  # bonds are in the same order
            truth = torch.zeros_like(out.bond_reached).masked_scatter(out.bond_reached, truth)
    values: Tensor = getattr(out, f"bond_{value}")
    if bool(values.isnan().any()):
        raise ConfigError(
            f"`value` must be one that the explainer gives (got {value!r}). Draw value='score'."
        )
    panels = []
    for graph, part in enumerate(out.split()):
        num_nodes, smiles = int(part.ptr[-1]), part.smiles[0] if part.smiles else ""
        kept = torch.ones_like(part.bond_reached)
        if not smiles and part.index is not None and num_nodes > _LARGE:
            kept = part.bond_reached  # the surroundings of the explained node
        here = out.bonds.batch == graph
        panels.append(
            Panel(
                part.bond_index[:, kept],
                values[here][kept],
                {"score": part.atom_score, "gate": None}.get(value, part.atom_loss),
                smiles=smiles,
                num_nodes=num_nodes,
                truth=() if truth is None else truth[here][kept],
                top=() if top is None else part.top(top)[kept],
                root=None if part.index is None or part.index.dim() > 1 else int(part.index),
                title=names[graph],
            )
        )
    return panels


def to_html(out: Explanation) -> str:
    """Returns words, and pictures of the first graphs, for notebooks; never raises."""
    words = escape(summarise(out, most=_PICTURED)).replace("\n", "<br>")
    try:
        shown = out.first(_PICTURED).draw().svg
    except (NicegnnError, ImportError) as error:
        shown = f"<em>No picture: {escape(str(error))}</em>"
    return f"<div style='max-width: 60em; line-height: 1.4'>{words}</div><div>{shown}</div>"
