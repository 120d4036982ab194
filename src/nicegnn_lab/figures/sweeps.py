"""The paper's NICE along its settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from nicegnn_lab.figures.panels import LABEL_SIZE, TICK_SIZE, new_figure, plain, set_caption
from nicegnn_lab.tables.studies import swept
from nicegnn_lab.tables.table import by_subject, read_study

#: Colour and mark of each base.
BASES = {
    "paper": ("#d55e00", "o", "as the paper writes it"),
    "propagated": ("#0072b2", "s", "noise on propagated messages"),
}
#: Metrics with their protocols from top to bottom, and their labels.
SENSITIVITY_PANELS = (
    ("roc_auc", "paper", "AUC"),
    ("agreement_noise", "", "agreement of\ntwo explanations"),
    ("degradation_std", "", "spread of degradation\nat the boundary, nats"),
    ("restored", "", "restored share"),
    ("explain_milliseconds", "", "ms per graph"),
)


def sensitivity_figure(studies: str | Path) -> Figure:
    """Returns one column per varied setting, one row per metric, one line per base.

    Thick lines are means over datasets and targets, thin ones single pairs of them.
    """
    rows = read_study(studies, "sensitivity")
    sweeps = list(swept(rows))  # in the order of `SWEEPS`
    names = list(dict.fromkeys(name for _, name, _, _ in sweeps))
    size = len(SENSITIVITY_PANELS), len(names)
    drawn = new_figure(3.0 * size[1], 2.1 * size[0])
    grid = drawn.subplots(*size, sharey="row", sharex="col", squeeze=False)
    for base, name, title, levels in sweeps:
        column = names.index(name)
        for axes, panel in zip(grid[:, column], SENSITIVITY_PANELS, strict=True):
            metric, protocol, label = panel
            by_level = [(level, by_subject(rows_at, metric, protocol)) for level, rows_at in levels]
            _draw_sweep(axes, base, by_level)
            if column == 0:
                axes.set_ylabel(label, fontsize=TICK_SIZE)
        grid[0, column].set_title(title, fontsize=LABEL_SIZE)
        _set_scale(grid[-1, column], [level for level, _ in levels])
    for axes in grid[-1]:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter("{x:g}")
        axes.tick_params(axis="y", which="both", labelsize=6)
    handles: dict[str, Any] = {}
    for axes in grid.flat:
        handles |= dict(zip(*axes.get_legend_handles_labels()[::-1], strict=True))
    place: dict[str, Any] = {"loc": "outside lower center", "ncols": 3}
    drawn.legend(list(handles.values()), list(handles), frameon=False, fontsize=TICK_SIZE, **place)
    pairs = rows[["dataset", "target"]].drop_duplicates().itertuples(index=False)
    subjects = ", ".join(f"{dataset} ({target})" for dataset, target in pairs)
    set_caption(
        drawn,
        f"The paper's NICE along its settings, the others at their values; {subjects}, seeds: "
        f"{rows['seed'].nunique()}.",
        "Columns are settings, rows what they do: AUC by protocol `paper`, the rank correlation of "
        "two explanations with other noise, the standard deviation of the lost log-probability "
        "over draws at the boundary, the restored share of edges, milliseconds per graph.",
    )
    return drawn


def _draw_sweep(axes: Axes, base: str, by_level: list[tuple[float, Any]]) -> None:
    colour, mark, label = BASES[base]
    values = {level: value for level, value in by_level if len(value)}
    subjects = dict.fromkeys(key for value in values.values() for key in value.index)
    if len(subjects) > 1:
        for key in subjects:
            line = [(level, value[key]) for level, value in values.items() if key in value.index]
            axes.plot(*zip(*line, strict=True), color=colour, linewidth=0.7, alpha=0.35)
    means = [value.mean() for value in values.values()]
    axes.plot(list(values), means, color=colour, marker=mark, linewidth=2, label=label)
    plain(axes)


def _set_scale(axes: Axes, levels: list[float]) -> None:
    """Makes the axis of a setting logarithmic; a level of 0 has its place left of the others."""
    positive = [level for level in levels if level > 0]
    if len(positive) < len(levels) and positive:
        axes.set_xscale("symlog", linthresh=min(positive))
    elif positive:
        axes.set_xscale("log")
    axes.set_xticks(levels, [f"{level:g}" for level in levels])
    axes.minorticks_off()
