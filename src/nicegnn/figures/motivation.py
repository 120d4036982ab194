"""The motivation figure: Scale Drift in embeddings, message norms, layers and across datasets."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from nicegnn.figures.drawing import COLOURS, new_figure
from nicegnn.figures.layer_scale import WAYS, draw_layers
from nicegnn.figures.style import LABEL_SIZE, TICK_SIZE, TITLE_SIZE, plain, set_caption
from nicegnn.studies.scale import States, read_scales, read_states, targets_in
from nicegnn.tables.methods import dataset_title, datasets_in, stand_in_note, stand_ins

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MARKS = ("o", "s", "^", "D", "v", "P")
_NUM_BINS = 40


def motivation_figure(
    out: str | Path,
    *,
    dataset: str = "benzene",
    first: str = "gcn",
    second: str = "gin",
    seed: int = 0,
    marked: Collection[str] | None = None,
) -> Figure:
    """Returns the five panels of the paper's motivation from stored parts of ``scale_study``.

    (a) t-SNE of graph embeddings, clean, under EM and NC, for target `second`; (b), (c) message
    norms of both targets; (d) mean scale per layer of `second`; (e) scale of the last layer over
    its clean value, all datasets and targets.

    Args:
        out: folder of experiments.
        dataset: of panels (a) to (d).
    """
    states = {target: read_states(out, dataset, target, seed) for target in (first, second)}
    scales = read_scales(out)
    datasets = datasets_in(scales)
    marked = stand_ins(datasets) if marked is None else marked
    figure = new_figure(13.0, 6.4)
    halves: Any = figure.subfigures(2, 1)
    top, bottom = halves
    a, b, c = top.subplots(1, 3)
    d, e = bottom.subplots(1, 2, width_ratios=[1, 2])
    for place in (a, b, c, d, e):
        plain(place)
    draw_embeddings(a, states[second], seed)
    for place, target in ((b, first), (c, second)):
        draw_norms(place, states[target])
    here = scales[(scales["dataset"] == dataset) & (scales["target"] == second)]
    _legend(d, draw_layers(d, here))
    d.set_xlabel("message-passing layer", fontsize=LABEL_SIZE)
    d.set_ylabel("mean squared message norm", fontsize=LABEL_SIZE)
    ratios = read_scales(out, "ratio")
    draw_summary(e, ratios, marked)
    nums = [states[second], states[first], states[second], states[second]]
    titles = (
        f"(a) embeddings, {second}",
        f"(b) message norms, {first}",
        f"(c) message norms, {second}",
        f"(d) scale per layer, {second}",
    )
    for place, title, state in zip((a, b, c, d), titles, nums, strict=True):
        place.set_title(f"{title}, {dataset}, n = {state.num_graphs}", fontsize=TITLE_SIZE)
    e.set_title("(e) last layer, all datasets and targets", fontsize=TITLE_SIZE)
    per_part = ratios.groupby(["dataset", "target"])["graph"].nunique()
    set_caption(
        figure,
        "The target's computation with gates open on the true bonds only, under element-wise "
        "masking (EM) and noise corruption (NC), beside the clean one.",
        f"(a) t-SNE of graph embeddings of {second} on {dataset}. (b), (c) Norms of all messages "
        "of all layers; the last bin holds those beyond the 99th percentile. (d) Mean squared "
        "message norm per layer, log axis, bands from the 10th to the 90th percentile of graphs. "
        "(e) Mean squared message norm of the last layer over its clean value, median over graphs, "
        "log axis; 1 is no drift.",
        f"n correctly classified test graphs of label 1; {per_part.min()} to {per_part.max()} per "
        "dataset and target in (e). NC is one noise draw in (a) to (c), a mean over draws in (d) "
        "and (e).",
        *stand_in_note(datasets, marked),
    )
    return figure


def draw_embeddings(axes: Axes, states: States, seed: int = 0) -> None:
    """Draws graph embeddings of all three computations in one plane of t-SNE."""
    joined = torch.cat([states.embedding[setting] for _, setting, _ in WAYS])  # [3 B, F]
    plane = tsne(joined, seed).view(len(WAYS), -1, 2)
    handles = {}
    for (name, _, mark), points in zip(WAYS, plane, strict=True):
        (handles[name],) = axes.plot(
            points[:, 0],
            points[:, 1],
            color=COLOURS[name],
            marker=mark,
            markersize=3.5,
            linestyle="none",
            alpha=0.6,
        )
    axes.set_xticks([])
    axes.set_yticks([])
    axes.set_xlabel("t-SNE 1", fontsize=LABEL_SIZE)
    axes.set_ylabel("t-SNE 2", fontsize=LABEL_SIZE)
    _legend(axes, handles)


def tsne(points: Tensor, seed: int = 0) -> Tensor:
    """Returns points of a plane whose neighbours are those of the given ones, ``[n, 2]``.

    Features are brought to unit variance first, for single large ones would hide the others.
    """
    from sklearn.manifold import TSNE

    scaled = (points - points.mean(0)) / points.std(0).clamp(min=1e-6)
    perplexity = max(1.0, min(30.0, (points.size(0) - 1) / 3))
    model = TSNE(perplexity=perplexity, init="pca", random_state=seed % 2**32)
    return torch.from_numpy(model.fit_transform(scaled.double().numpy()))


def draw_norms(axes: Axes, states: States) -> None:
    """Draws the distribution of message norms of all layers; says how many are zero."""
    norms = {name: states.norm[setting].flatten() for name, setting, _ in WAYS}
    high = max(float(norm.quantile(0.99)) for norm in norms.values()) or 1.0
    edges = torch.linspace(0, high, _NUM_BINS + 1).tolist()
    for name, norm in norms.items():
        share = float((norm == 0).double().mean())
        axes.hist(
            norm.clamp(max=high).numpy(),
            bins=edges,
            weights=torch.full_like(norm, 100 / norm.numel()).numpy(),
            histtype="stepfilled" if name == "clean" else "step",
            color="#cccccc" if name == "clean" else COLOURS[name],
            linestyle="--" if name == "EM" else "-",
            linewidth=1.6,
            label=f"{name}, mean {float(norm.mean()):.2g}"
            + (f", {100 * share:.0f}% are 0" if share > 0 else ""),
        )
    axes.set_yscale("log")
    axes.set_xlabel("message norm", fontsize=LABEL_SIZE)
    axes.set_ylabel("messages, %", fontsize=LABEL_SIZE)
    axes.legend(frameon=False, fontsize=TICK_SIZE)


def draw_summary(axes: Axes, ratios: pd.DataFrame, marked: Collection[str]) -> None:
    """Draws the last layer's scale over its clean value, a mark per dataset, target, mechanism."""
    datasets, targets = datasets_in(ratios), targets_in(ratios)
    last = ratios[ratios["layer"] == ratios["layer"].max()]
    medians = last.groupby(["dataset", "target", "setting"])["value"].median()
    axes.axhline(1.0, color=COLOURS["clean"], linewidth=1)
    step = 0.7 / max(1, len(targets))
    for number, target in enumerate(targets):
        for name, setting, _ in WAYS[1:]:
            values = [float(medians.get((d, target, setting), torch.nan)) for d in datasets]
            axes.plot(
                [k + (number - (len(targets) - 1) / 2) * step for k in range(len(datasets))],
                values,
                color=COLOURS[name],
                marker=_MARKS[number % len(_MARKS)],
                markersize=5,
                linestyle="none",
                label=f"{name}, {target}",
            )
    axes.set_yscale("log")
    names = [dataset_title(name, marked).replace(" (", "\n(") for name in datasets]
    axes.set_xticks(range(len(datasets)), names, fontsize=TICK_SIZE)
    axes.set_ylabel("message scale / clean scale", fontsize=LABEL_SIZE)
    axes.legend(
        frameon=False,
        fontsize=TICK_SIZE,
        ncols=len(targets),
        loc="lower center",
        bbox_to_anchor=(0.5, 1.08),
    )


def _legend(axes: Axes, handles: dict[str, Any]) -> None:
    axes.legend(list(handles.values()), list(handles), frameon=False, fontsize=TICK_SIZE)
