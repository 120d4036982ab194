"""Figures of the paper's studies: message scale layer by layer, and settings at their levels."""

from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from nicegnn_lab.figures import panels
from nicegnn_lab.tables.studies import swept
from nicegnn_lab.tables.table import by_subject, dataset_titles, read_study, targets_in

#: Name and mark of each line of message scale, by its setting in rows.
WAYS = {
    "clean": ("clean", "D"),
    "em": ("EM", "o"),
    "nc": ("NC", "s"),
    "exchange": ("exchange", "^"),
}
BAND = (0.1, 0.9)  # quantiles over graphs
#: Colour and mark of each base of the sweeps.
BASES = {
    "paper": ("#d55e00", "o", "as the paper writes it"),
    "propagated": ("#0072b2", "s", "noise on propagated messages"),
}
#: Metrics of the sweeps with their protocols from top to bottom, and their labels.
SENSITIVITY_PANELS = (
    ("roc_auc", "paper", "AUC"),
    ("agreement_noise", "", "agreement of\ntwo explanations"),
    ("degradation_std", "", "spread of degradation\nat the boundary, nats"),
    ("restored", "", "restored share"),
    ("explain_milliseconds", "", "ms per graph"),
)


def layer_scale_figures(studies: str | Path) -> dict[str, Figure]:
    """Returns the figure of message scale for damaged clean messages, and for propagated ones."""
    rows = read_study(studies, "scale")
    return {
        "layer-scale": _layer_scale_figure(_scales(rows, "ratio_fixed"), "clean"),
        "layer-scale-propagated": _layer_scale_figure(_scales(rows, "ratio"), "propagated"),
    }


def _scales(rows: pd.DataFrame, ratio: str) -> pd.DataFrame:
    """Returns rows of ``scale`` by ``layer`` and setting; `ratio` to clean names the damaged."""
    rows = rows.assign(layer=rows["level"].astype(int))
    place = ["dataset", "target", "stand_in", "seed", "graph", "layer"]
    clean = rows[(rows["metric"] == "scale") & (rows["setting"] == "clean")]
    clean = clean.rename(columns={"value": "scale"})
    damaged = rows[rows["metric"] == ratio].merge(clean[[*place, "scale"]], on=place)
    damaged["scale"] *= damaged["value"].fillna(0.0)
    return pd.concat([clean, damaged], ignore_index=True)


def _layer_scale_figure(scales: pd.DataFrame, messages: str) -> Figure:
    (titles, marks), targets = dataset_titles(scales), targets_in(scales)
    figure = panels.new_figure(2.1 * len(titles) + 0.8, 1.9 * len(targets) + 0.6)
    grid = figure.subplots(len(targets), len(titles), squeeze=False)
    handles: dict[str, Any] = {}
    for line, target in zip(grid, targets, strict=True):
        for place, dataset in zip(line, titles, strict=True):
            panels.plain(place)
            here = scales[(scales["dataset"] == dataset) & (scales["target"] == target)]
            if here.empty:
                place.set_axis_off()
                continue
            handles |= _draw_layers(place, here)
            place.set_title(f"n = {here['graph'].nunique()}", fontsize=panels.LABEL_SIZE)
        line[0].set_axis_on()
        line[0].set_ylabel(f"{target}\nmessage scale")
    for place, title in zip(grid[0], titles.values(), strict=True):
        above = title.replace(" (", "\n(")
        place.set_title(f"{above}\n{place.get_title()}", fontsize=panels.TITLE_SIZE)
    for place in grid[-1]:
        place.set_xlabel("layer")
    panels.legend_below(figure, handles)
    has_exchange = (scales["setting"] == "exchange").any()
    ways = ", noise corruption (NC) and exchange" if has_exchange else " and noise corruption (NC)"
    panels.set_caption(
        figure,
        "Mean squared message norm of each message-passing layer, clean and with gates open on the "
        f"true bonds only, under element-wise masking (EM){ways} of {messages} messages, log axis.",
        "Mean over n correctly classified test graphs of label 1; bands run from the 10th to the "
        "90th percentile of graphs.",
        *marks,
    )
    return figure


def _draw_layers(axes: Axes, scales: pd.DataFrame) -> dict[str, Any]:
    """Draws mean scale and its spread over graphs against the layer; returns the lines by name."""
    handles: dict[str, Any] = {}
    for setting, (name, mark) in WAYS.items():
        grouped = scales[scales["setting"] == setting].groupby("layer")["scale"]
        if grouped.ngroups == 0:
            continue
        mean, colour = grouped.mean(), panels.COLOURS[setting]
        low, high = (grouped.quantile(q) for q in BAND)
        axes.fill_between(mean.index, low, high, color=colour, alpha=0.15, linewidth=0)
        line: dict[str, Any] = {"marker": mark, "markersize": 4, "linewidth": 1.6}
        (handles[name],) = axes.plot(mean.index, mean, color=colour, **line)
    axes.set(yscale="log", xticks=sorted(int(layer) for layer in scales["layer"].unique()))
    return handles


def sensitivity_figure(studies: str | Path) -> Figure:
    """Returns one column per varied setting, one row per metric, one line per base.

    Thick lines are means over datasets and targets, thin ones single pairs of them.
    """
    rows = read_study(studies, "sensitivity")
    sweeps = list(swept(rows))  # in the order of `SWEEPS`
    names = list(dict.fromkeys(name for _, name, _, _ in sweeps))
    size = len(SENSITIVITY_PANELS), len(names)
    drawn = panels.new_figure(3.0 * size[1], 2.1 * size[0])
    grid = drawn.subplots(*size, sharey="row", sharex="col", squeeze=False)
    for base, name, title, levels in sweeps:
        column = names.index(name)
        for axes, panel in zip(grid[:, column], SENSITIVITY_PANELS, strict=True):
            metric, protocol, label = panel
            by_level = [(level, by_subject(rows_at, metric, protocol)) for level, rows_at in levels]
            _draw_sweep(axes, base, by_level)
            if column == 0:
                axes.set_ylabel(label, fontsize=panels.TICK_SIZE)
        grid[0, column].set_title(title, fontsize=panels.LABEL_SIZE)
        _set_scale(grid[-1, column], [level for level, _ in levels])
    for axes in grid[-1]:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter("{x:g}")
        axes.tick_params(axis="y", which="both", labelsize=6)
    handles: dict[str, Any] = {}
    for axes in grid.flat:
        handles |= dict(zip(*axes.get_legend_handles_labels()[::-1], strict=True))
    place: dict[str, Any] = {"loc": "outside lower center", "ncols": 3, "frameon": False}
    drawn.legend(list(handles.values()), list(handles), fontsize=panels.TICK_SIZE, **place)
    pairs = rows[["dataset", "target"]].drop_duplicates().itertuples(index=False)
    subjects = ", ".join(f"{dataset} ({target})" for dataset, target in pairs)
    panels.set_caption(
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
    panels.plain(axes)


def _set_scale(axes: Axes, levels: list[float]) -> None:
    """Makes the axis of a setting logarithmic; a level of 0 has its place left of the others."""
    positive = [level for level in levels if level > 0]
    if len(positive) < len(levels) and positive:
        axes.set_xscale("symlog", linthresh=min(positive))
    elif positive:
        axes.set_xscale("log")
    axes.set_xticks(levels, [f"{level:g}" for level in levels])
    axes.minorticks_off()
