"""Figures: message scale per layer, and molecules in rows of panels. Needs matplotlib."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from nicegnn.errors import NicegnnError
from nicegnn.intervention.scale import ScaleProfile
from nicegnn.molecule.drawing import molecule_png

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = {"clean": "#444444", "EM": "#d55e00", "NC": "#0072b2"}


@dataclass(frozen=True)
class Panels:
    """One molecule with its true bonds, gates and scores, each in RDKit's bond order."""

    smiles: str
    truth: Sequence[int]
    gate: Sequence[float]
    score: Sequence[float]
    caption: str


def new_figure(width: float, height: float) -> Figure:
    """Returns an empty figure that belongs to no window."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure as New
    except ImportError as error:
        raise NicegnnError(
            "Figures need matplotlib; install it with pip install 'nicegnn[plots]'."
        ) from error
    figure = New(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def draw_scale(axes: Axes, profile: ScaleProfile) -> None:
    """Draws mean message scale per layer, relative to clean, under EM and NC."""
    layers = list(range(1, len(profile.layers) + 1))
    axes.axhline(1.0, color=COLOURS["clean"], linewidth=2, label="clean")
    for name, ratio, mark in (
        ("EM", profile.em_propagated, "o"),
        ("NC", profile.nc_propagated, "s"),
    ):
        mean, spread = _mean_and_spread(ratio)
        axes.plot(layers, mean, color=COLOURS[name], marker=mark, linewidth=2, label=name)
        low = [max(m - s, 0) for m, s in zip(mean, spread, strict=True)]
        high = [m + s for m, s in zip(mean, spread, strict=True)]
        axes.fill_between(layers, low, high, color=COLOURS[name], alpha=0.15, linewidth=0)
    axes.set_xticks(layers)
    axes.set_xlabel("message-passing layer")
    axes.set_ylabel("message scale / clean scale")
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)


def scale_figure(profile: ScaleProfile) -> Figure:
    """Returns mean message scale per layer, clean, under EM and under NC."""
    figure = new_figure(5.2, 3.4)
    draw_scale(figure.subplots(), profile)
    return figure


def panels_figure(rows: Sequence[Panels], profile: ScaleProfile) -> Figure:
    """Returns molecules with truth, gate and score side by side, and the scale per layer."""
    from matplotlib.image import imread

    figure = new_figure(13.0, 2.6 * len(rows))
    left, right = (figure.subfigures(1, 2, width_ratios=[2.5, 1], squeeze=False))[0]
    grid = left.subplots(len(rows), 3, squeeze=False)
    for axes, panels in zip(grid, rows, strict=True):
        pictures = (
            molecule_png(panels.smiles, bond_truth=panels.truth, size=(640, 480)),
            molecule_png(panels.smiles, panels.gate, palette="gate", size=(640, 480)),
            molecule_png(panels.smiles, [max(s, 0) for s in panels.score], size=(640, 480)),
        )
        for place, picture in zip(axes, pictures, strict=True):
            place.imshow(imread(io.BytesIO(picture)))
            place.set_axis_off()
    for place, title in zip(grid[0], ("truth", "gate (SRB)", "score (NICE)"), strict=True):
        place.set_title(title)
    axes = right.subplots()
    draw_scale(axes, profile)
    axes.set_title("Scale Drift")
    return figure


def calibration_figure(manifests: Sequence[dict[str, Any]]) -> Figure:
    """Returns the confidence histogram of each target, one panel per dataset, with its ECE."""
    names = list(dict.fromkeys(manifest["dataset"] for manifest in manifests))
    figure = new_figure(12.0, 2.7 * -(-len(names) // 4))
    grid = figure.subplots(-(-len(names) // 4), min(4, len(names)), sharey=True, squeeze=False)
    for place in grid.flat[len(names) :]:
        place.set_axis_off()
    for place, name in zip(grid.flat, names, strict=False):
        for manifest in manifests:
            if manifest["dataset"] == name:
                test = manifest["test"]
                label = f"{manifest['target']}, ECE {test['ece']:.3f}"
                place.stairs(test["histogram"], test["edges"], label=label, linewidth=1.6)
        place.set_title(next(m["title"] for m in manifests if m["dataset"] == name), fontsize=9)
        place.set_xlabel("confidence", fontsize=8)
        place.legend(frameon=False, fontsize=7)
        place.spines[["top", "right"]].set_visible(False)
    grid[0, 0].set_ylabel("share of test graphs", fontsize=8)
    return figure


def figure_svg(figure: Figure) -> str:
    """Returns a figure as SVG text that can stand inside an HTML page."""
    from matplotlib import rc_context

    out = io.StringIO()
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "nicegnn"}):
        figure.savefig(out, format="svg", metadata={"Date": None}, transparent=True)
    text = out.getvalue()
    return text[text.index("<svg") :]


def save_figure(figure: Figure, path: str | Path) -> None:
    """Writes a figure; the ending of the name says the format."""
    figure.savefig(path, dpi=110, facecolor="white")


def _mean_and_spread(ratio: Tensor) -> tuple[list[float], list[float]]:
    finite: list[Any] = [row[row.isfinite()] for row in ratio.cpu()]
    return [float(r.mean()) for r in finite], [float(r.std(correction=0)) for r in finite]
