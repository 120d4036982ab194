"""Explanations as pictures: graphs and molecules, methods side by side, and in notebooks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import Any, get_args

import torch
from torch import Tensor

from nicegnn.config import check_choice, check_count
from nicegnn.errors import ConfigError, NicegnnError
from nicegnn.explain.checks import share_or_number, shown
from nicegnn.explain.explanation import Explanation, Value
from nicegnn.explain.words import summarise, title_of
from nicegnn.molecule.drawing import Panel, draw_panels
from nicegnn.molecule.picture import Palette, Picture, find_palette

#: What scores of bonds and atoms are, by their unit.
LEGENDS = {
    "odds": "share of the odds lost without it (minus: gained)",
    "value": "fall of the value without it (minus: rise)",
    "own": "score of the method",
}
_VALUES = {"loss": "loss", "change": "change of the log-odds or value", "gate": "gate"}
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

    def __post_init__(self) -> None:
        check_choice("value", self.value, get_args(Value))
        check_choice("signed", self.signed, (None, True, False))
        find_palette(self.palette)  # raises unless there is one
        if self.top is not None:
            share_or_number("top", self.top)
        check_count(self, "columns", "most")


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
    if out.num_graphs == 1:
        names, title = [title or title_of(out)], None
    else:
        names = [f"{k}: {title_of(part)}" for k, part in enumerate(out.first(look.most).split())]
        if title is None and out.num_graphs > look.most:
            title = f"{look.most} of {out.num_graphs} graphs"
    legend, limit = _VALUES.get(look.value) or LEGENDS[out.unit], look.limit
    if limit is None and out.unit == "odds" and look.value == "score":
        limit = 1.0  # one scale for all molecules: what rests on no bond stays pale
    return draw_panels(
        [
            replace(panel, title=name)
            for panel, name in zip(_panels(out, look, truth), names, strict=True)
        ],
        title=title or "",
        legend=legend,
        **_options(look, limit),
    )


def draw_methods(
    explanations: Mapping[str, Explanation],
    smiles: str | Sequence[str] | None = None,
    *,
    truth: Tensor | None = None,
    title: str | None = None,
    look: Look | None = None,
) -> Picture:
    """Returns explanations of the same graphs side by side: a row per graph, a column per method.

    Colours are relative to the largest score of each picture, since scores of methods have
    different units.

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
    rows = zip(*(_panels(out, look, truth) for out in named.values()), strict=True)
    panels = []
    for graph, row in enumerate(rows):
        for name, panel in zip(named, row, strict=True):
            scores = [s for s in (panel.bond_score, panel.atom_score) if s is not None]
            size = max(float(s.abs().max()) if s.numel() else 0.0 for s in scores) or 1.0
            panels.append(
                replace(
                    panel,
                    title=name if first.num_graphs == 1 else f"{name}, graph {graph}",
                    bond_score=panel.bond_score / size,
                    atom_score=None if panel.atom_score is None else panel.atom_score / size,
                )
            )
    return draw_panels(
        panels,
        title=title or (title_of(first) if first.num_graphs == 1 else " beside ".join(named)),
        legend="score, relative to the largest of each picture",
        **_options(replace(look, columns=len(named)), 1.0),
    )


def _options(look: Look, limit: float | None) -> dict[str, Any]:
    best = "best bonds"
    if look.top is not None:
        best = f"top {look.top:.0%}" if isinstance(look.top, float) else f"best {look.top}"
    return {
        "size": look.size,
        "columns": look.columns,
        "keys": ("true bonds", best),
        "palette": look.palette,
        "signed": look.signed,
        "limit": limit,
    }


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


def _panels(out: Explanation, look: Look, truth: Tensor | None) -> list[Panel]:
    """Returns the first graphs as they are drawn, without titles."""
    if out.whole is not None and (out.smiles or int(out.ptr[1]) <= _LARGE):  # of nodes: all bonds
        out = out.to_dense()
        if truth is not None:  # bonds are in the same order
            truth = torch.zeros_like(out.bond_reached).masked_scatter(out.bond_reached, truth)
    values: Tensor = getattr(out, f"bond_{look.value}")
    if bool(values.isnan().any()):
        raise ConfigError(
            f"`value` must be one that the explainer gives (got {look.value!r}, which it has not: "
            "the numbers are nan). Draw value='score'."
        )
    panels = []
    for graph, part in enumerate(out.first(look.most).split()):
        num_nodes, smiles = int(part.ptr[-1]), part.smiles[0] if part.smiles else ""
        kept = torch.ones_like(part.bond_reached)
        if not smiles and part.index is not None and num_nodes > _LARGE:
            kept = part.bond_reached  # the surroundings of the explained node
        here = out.bonds.batch == graph
        panels.append(
            Panel(
                part.bond_index[:, kept],
                values[here][kept],
                {"score": part.atom_score, "gate": None}.get(look.value, part.atom_loss),
                smiles=smiles,
                num_nodes=num_nodes,
                truth=() if truth is None else truth[here][kept],
                top=() if look.top is None else part.top(look.top)[kept],
                root=None if part.index is None else int(part.index),
                numbered=True,
            )
        )
    return panels


def to_html(out: Explanation) -> str:
    """Returns words, pictures of the first graphs and a table, for notebooks; never raises."""
    first = out.first(_PICTURED)
    words = escape(summarise(out, most=_PICTURED)).replace("\n", "<br>")
    parts = [f"<div style='max-width: 60em; line-height: 1.4'>{words}</div>"]
    makers: dict[str, Callable[[Explanation], str]] = {"picture": _svg, "table": _table}
    for name, make in makers.items():
        try:
            text = make(first)
        except (NicegnnError, ImportError) as error:
            text = f"<em>No {name}: {escape(str(error))}</em>"
        parts.append(f"<div style='margin-top: 0.5em'>{text}</div>")
    return f"<div>{''.join(parts)}</div>"


def _svg(out: Explanation) -> str:
    return draw(out, Look()).svg


def _table(out: Explanation) -> str:
    """Returns the best bonds of each graph as a table."""
    frame = out.to_frame()
    best = frame[frame["rank"] <= _LISTED].sort_values(["graph", "rank"], kind="stable")
    if len(best):  # without rows every column is empty
        best = best.dropna(axis="columns", how="all")
    return str(best.to_html(index=False, border=0, float_format=lambda value: f"{value:.3g}"))
