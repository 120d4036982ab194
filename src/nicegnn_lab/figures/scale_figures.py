"""Message scale layer by layer for datasets and backbones, and the motivation."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from sklearn.manifold import TSNE
from torch import Tensor

from nicegnn_lab.figures.panels import (
    COLOURS,
    LABEL_SIZE,
    TICK_SIZE,
    TITLE_SIZE,
    damaged,
    legend_below,
    new_figure,
    plain,
    set_caption,
    share_histogram,
)
from nicegnn_lab.paper.methods import datasets_in
from nicegnn_lab.studies.mechanisms import States, read_states
from nicegnn_lab.tables.studies import read_scales
from nicegnn_lab.tables.table import dataset_title, stand_in_note, stand_ins, targets_in

#: Name, setting and mark of each line.
WAYS = (
    *(("clean", "clean", "D"), ("EM", "em", "o")),
    *(("NC", "nc", "s"), ("exchange", "exchange", "^")),
)
BAND = (0.1, 0.9)  # quantiles over graphs
_MARKS = ("o", "s", "^", "D", "v", "P")
_NUM_BINS = 40


def layer_scale_figure(studies: str | Path, *, is_clean: bool = True) -> Figure:
    """Returns a grid, backbones by datasets, of mean message scale per layer on a log axis.

    Damage is done to clean messages, or to propagated ones.
    """
    scales = read_scales(studies, is_clean=is_clean)
    datasets, targets, marked = datasets_in(scales), targets_in(scales), stand_ins(scales)
    figure = new_figure(2.1 * len(datasets) + 0.8, 1.9 * len(targets) + 0.6)
    grid = figure.subplots(len(targets), len(datasets), squeeze=False)
    handles: dict[str, Any] = {}
    for line, target in zip(grid, targets, strict=True):
        for place, dataset in zip(line, datasets, strict=True):
            plain(place)
            here = scales[(scales["dataset"] == dataset) & (scales["target"] == target)]
            if here.empty:
                place.set_axis_off()
                continue
            handles |= draw_layers(place, here)
            place.set_title(f"n = {here['graph'].nunique()}", fontsize=LABEL_SIZE)
        line[0].set_axis_on()
        line[0].set_ylabel(f"{target}\nmessage scale")
    for place, dataset in zip(grid[0], datasets, strict=True):
        title = dataset_title(dataset, marked).replace(" (", "\n(")
        place.set_title(f"{title}\n{place.get_title()}", fontsize=TITLE_SIZE)
    for place in grid[-1]:
        place.set_xlabel("layer")
    legend_below(figure, handles)
    set_caption(
        figure,
        "Mean squared message norm of each message-passing layer, clean and with gates open on the "
        f"true bonds only, {damaged(is_clean, scales)}, log axis.",
        "Mean over n correctly classified test graphs of label 1; bands run from the 10th to the "
        "90th percentile of graphs.",
        *stand_in_note(datasets, marked),
    )
    return figure


def draw_layers(axes: Axes, scales: pd.DataFrame) -> dict[str, Any]:
    """Draws mean scale and its spread over graphs against the layer; returns the lines by name."""
    handles: dict[str, Any] = {}
    for name, setting, mark in WAYS:
        grouped = scales[scales["setting"] == setting].groupby("layer")["scale"]
        if grouped.ngroups == 0:
            continue
        mean = grouped.mean()
        low, high = (grouped.quantile(q) for q in BAND)
        axes.fill_between(mean.index, low, high, color=COLOURS[name], alpha=0.15, linewidth=0)
        (handles[name],) = axes.plot(
            mean.index, mean, color=COLOURS[name], marker=mark, markersize=4, linewidth=1.6
        )
    axes.set(yscale="log", xticks=sorted(int(layer) for layer in scales["layer"].unique()))
    return handles


def motivation_figure(studies: str | Path, *, is_clean: bool = True) -> Figure:
    """Returns the five panels of the paper's motivation from stored rows and states of ``scale``.

    Damage is done to clean messages, or to propagated ones.

    (a) t-SNE of graph embeddings, clean and damaged; (b), (c) message norms of two targets;
    (d) mean scale per layer; (e) scale of the last layer over its clean value, all datasets and
    targets. Panels (a) to (d) are of one dataset.
    """
    dataset, first, second = "benzene", "gcn", "gin"
    states = {
        target: read_states(studies, dataset, target, is_clean=is_clean)
        for target in (first, second)
    }
    scales = read_scales(studies, is_clean=is_clean)
    datasets, marked = datasets_in(scales), stand_ins(scales)
    figure = new_figure(13.0, 6.4)
    halves: Any = figure.subfigures(2, 1)
    top, bottom = halves
    a, b, c = top.subplots(1, 3)
    d, e = bottom.subplots(1, 2, width_ratios=[1, 2])
    for place in (a, b, c, d, e):
        plain(place)
    draw_embeddings(a, states[second])
    for place, target in ((b, first), (c, second)):
        draw_norms(place, states[target])
    here = scales[(scales["dataset"] == dataset) & (scales["target"] == second)]
    _legend(d, draw_layers(d, here))
    d.set(xlabel="message-passing layer", ylabel="mean squared message norm")
    draw_summary(e, scales, marked)
    for place, title, target in (
        (a, "(a) embeddings", second),
        (b, "(b) message norms", first),
        (c, "(c) message norms", second),
        (d, "(d) scale per layer", second),
    ):
        text = f"{title}, {target}, {dataset}, n = {states[target].num_graphs}"
        place.set_title(text, fontsize=TITLE_SIZE)
    e.set_title("(e) last layer, all datasets and targets", fontsize=TITLE_SIZE)
    per_part = scales.groupby(["dataset", "target"])["graph"].nunique()
    set_caption(
        figure,
        f"The target's computation with gates open on the true bonds only, "
        f"{damaged(is_clean, scales)}, beside the clean one.",
        f"(a) t-SNE of graph embeddings of {second} on {dataset}. (b), (c) Norms of all messages "
        "of all layers; the last bin holds those beyond the 99th percentile. (d) Mean squared "
        "message norm per layer, log axis, bands from the 10th to the 90th percentile of graphs. "
        "(e) Mean squared message norm of the last layer over its clean value, median over graphs, "
        "log axis; 1 is no drift.",
        f"n correctly classified test graphs of label 1; {per_part.min()} to {per_part.max()} per "
        "dataset and target in (e). One draw in (a) to (c), a mean over draws in (d) "
        "and (e).",
        *stand_in_note(datasets, marked),
    )
    return figure


def draw_embeddings(axes: Axes, states: States) -> None:
    """Draws graph embeddings of all computations in one plane of t-SNE."""
    ways = [way for way in WAYS if way[1] in states.embedding]
    joined = torch.cat([states.embedding[setting] for _, setting, _ in ways])  # [W B, F]
    plane = tsne(joined).view(len(ways), -1, 2)
    handles = {}
    for (name, _, mark), (x, y) in zip(ways, plane.transpose(1, 2), strict=True):
        style: dict[str, Any] = {"color": COLOURS[name], "marker": mark, "linestyle": "none"}
        (handles[name],) = axes.plot(x, y, markersize=3.5, alpha=0.6, **style)
    axes.set(xticks=[], yticks=[], xlabel="t-SNE 1", ylabel="t-SNE 2")
    _legend(axes, handles)


def tsne(points: Tensor) -> Tensor:
    """Returns points of a plane whose neighbours are those of the given ones, ``[n, 2]``.

    Features are brought to unit variance first, for single large ones would hide the others.
    """
    scaled = (points - points.mean(0)) / points.std(0).clamp(min=1e-6)
    perplexity = max(1.0, min(30.0, (points.size(0) - 1) / 3))
    model = TSNE(perplexity=perplexity, init="pca", random_state=0)
    return torch.from_numpy(model.fit_transform(scaled.double().numpy()))


def draw_norms(axes: Axes, states: States) -> None:
    """Draws the distribution of message norms of all layers; says how many are zero."""
    norms = {
        name: states.norm[setting].flatten() for name, setting, _ in WAYS if setting in states.norm
    }
    high = max(float(norm.quantile(0.99)) for norm in norms.values()) or 1.0
    edges = torch.linspace(0, high, _NUM_BINS + 1).tolist()
    for name, norm in norms.items():
        share = float((norm == 0).double().mean())
        zeros = f", {100 * share:.0f}% are 0" if share > 0 else ""
        label = f"{name}, mean {float(norm.mean()):.2g}{zeros}"
        share_histogram(axes, name, norm.clamp(max=high).numpy(), edges, label)
    axes.set(yscale="log", xlabel="message norm", ylabel="messages, %")
    axes.legend(frameon=False, fontsize=TICK_SIZE)


def draw_summary(axes: Axes, scales: pd.DataFrame, marked: Collection[str]) -> None:
    """Draws the last layer's scale over its clean value, a mark per dataset, target, mechanism."""
    datasets, targets = datasets_in(scales), targets_in(scales)
    last = scales[scales["layer"] == scales["layer"].max()]
    medians = last.groupby(["dataset", "target", "setting"])["ratio"].median()
    axes.axhline(1.0, color=COLOURS["clean"], linewidth=1)
    step = 0.7 / max(1, len(targets))
    for number, target in enumerate(targets):
        shift = (number - (len(targets) - 1) / 2) * step
        for name, setting, _ in WAYS[1:]:
            if not (last["setting"] == setting).any():
                continue
            axes.plot(
                [k + shift for k in range(len(datasets))],
                [float(medians.get((d, target, setting), torch.nan)) for d in datasets],
                color=COLOURS[name],
                marker=_MARKS[number % len(_MARKS)],
                markersize=5,
                linestyle="none",
                label=f"{name}, {target}",
            )
    axes.set(yscale="log", ylabel="message scale / clean scale")
    names = [dataset_title(name, marked).replace(" (", "\n(") for name in datasets]
    axes.set_xticks(range(len(datasets)), names, fontsize=TICK_SIZE)
    place: dict[str, Any] = {"loc": "lower center", "bbox_to_anchor": (0.5, 1.08)}
    axes.legend(frameon=False, fontsize=TICK_SIZE, ncols=len(targets), **place)


def _legend(axes: Axes, handles: dict[str, Any]) -> None:
    axes.legend(list(handles.values()), list(handles), frameon=False, fontsize=TICK_SIZE)
