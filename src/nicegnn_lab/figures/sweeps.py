"""NICE along its settings: sweeps of the sensitivity study, and how BIG converges."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from nicegnn_lab.figures.panels import LABEL_SIZE, TICK_SIZE, new_figure, plain, set_caption
from nicegnn_lab.tables.studies import swept
from nicegnn_lab.tables.table import by_subject, read_study, subject_titles

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Colour and mark of each base.
BASES = {
    "paper": ("#d55e00", "o", "as the paper writes it"),
    "nice": ("#0072b2", "s", "our defaults"),
    "nice-joint": ("#009e73", "^", "our boundary, joint path"),
}
#: Metrics with their protocols from top to bottom, and their labels.
SENSITIVITY_PANELS = (
    ("roc_auc", "paper", "AUC"),
    ("agreement_noise", "", "agreement of\ntwo explanations"),
    ("degradation_std", "", "spread of degradation\nat the boundary, nats"),
    ("restored", "", "restored share"),
    ("explain_milliseconds", "", "ms per graph"),
)
WAYS = {"riemann": "#d55e00", "gauss": "#0072b2", "gauss-sine": "#009e73"}
LINES = {"fresh": "-", "shared": "--"}
TITLES = {"paper": "boundary as the paper writes it", "nice": "our boundary"}
#: Panels of each base: metric, protocol, what it is drawn against, label.
CONVERGENCE_PANELS = (
    ("gap", "", "nodes", "completeness gap, relative"),
    ("spearman", "", "nodes", "rank correlation with reference"),
    ("roc_auc", "paper", "nodes", "AUC"),
    ("spearman", "", "draws", "rank correlation with reference"),
)


def sensitivity_figure(studies: str | Path) -> Figure:
    """Returns one column per varied setting, one row per metric, one line per base.

    Thick lines are means over datasets and targets, thin ones single pairs of them.
    """
    rows = read_study(studies, "sensitivity")
    found = list(swept(rows))  # in the order of `SWEEPS`
    names = list(dict.fromkeys(name for _, name, _, _ in found))
    size = len(SENSITIVITY_PANELS), len(names)
    drawn = new_figure(3.0 * size[1], 2.1 * size[0])
    grid = drawn.subplots(*size, sharey="row", sharex="col", squeeze=False)
    for base, name, title, levels in found:
        column = names.index(name)
        for axes, panel in zip(grid[:, column], SENSITIVITY_PANELS, strict=True):
            metric, protocol, label = panel
            by_level = [(level, by_subject(some, metric, protocol)) for level, some in levels]
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
    set_caption(
        drawn,
        f"NICE along each of its settings, the others at their values; {subject_titles(rows)}.",
        "Columns are settings, rows what they do: AUC by protocol `paper`, the rank correlation of "
        "two explanations with other noise, the standard deviation of the lost log-probability "
        "over draws at the boundary, the restored share of edges, milliseconds per graph.",
    )
    return drawn


def _draw_sweep(axes: Axes, base: str, by_level: list[tuple[float, Any]]) -> None:
    colour, mark, label = BASES.get(base, ("#444444", "x", base))
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


def convergence_figure(studies: str | Path) -> Figure:
    """Returns one row of panels per base: against nodes at most draws, then the other way round.

    Colours are quadratures; broken lines share their noise along the path. No line can be expected
    above the dotted one, the agreement of two references with different noise.
    """
    rows = read_study(studies, "convergence")
    parts = rows["setting"].str.split("/")
    rows = rows.assign(base=parts.str[0], way=parts.str[1], noise=parts.str[2])
    rows = rows.assign(nodes=rows["level"], draws=parts.str[3].astype(float))  # nan: reference
    bases = [base for base in ("paper", "nice") if base in set(rows["base"])]
    drawn = new_figure(3.2 * len(CONVERGENCE_PANELS), 2.9 * len(bases))
    grid = drawn.subplots(len(bases), len(CONVERGENCE_PANELS), squeeze=False)
    for base, line in zip(bases, grid, strict=True):
        some = rows[rows["base"] == base]
        for axes, (metric, protocol, along, label) in zip(line, CONVERGENCE_PANELS, strict=True):
            _draw_convergence(axes, some, metric, protocol, along)
            axes.set_ylabel(label, fontsize=TICK_SIZE)
        line[0].set_yscale("log")
        line[0].set_title(TITLES[base], fontsize=LABEL_SIZE, loc="left")
    handles, labels = grid[0, 1].get_legend_handles_labels()
    place: dict[str, Any] = {"loc": "outside lower center", "ncols": 7}
    drawn.legend(handles, labels, frameon=False, fontsize=TICK_SIZE, **place)
    set_caption(
        drawn,
        f"BIG along the joint path against nodes, draws and quadrature; {subject_titles(rows)}.",
        "The gap is what the scores leave unexplained of the fall in risk; the reference has many "
        "nodes and draws, and the dotted line is how well two such references with other noise "
        "agree. Shared noise is the same at all nodes of the path, fresh noise is drawn anew.",
    )
    return drawn


def _draw_convergence(
    axes: Axes, rows: pd.DataFrame, metric: str, protocol: str, along: str
) -> None:
    """Draws a metric along nodes at most draws, or along draws at most nodes."""
    other = "draws" if along == "nodes" else "nodes"
    measured = rows[rows["noise"].notna()]
    most = measured[other].max()
    chosen = measured[measured[other] == most]
    for (way, noise), some in chosen.groupby(["way", "noise"]):
        by_number = some.groupby(along)
        means = [by_subject(part, metric, protocol).mean() for _, part in by_number]
        axes.plot(
            sorted(by_number.groups),
            means,
            color=WAYS.get(way, "#444444"),
            linestyle=LINES.get(noise, ":"),
            marker=".",
            linewidth=1.6,
            label=f"{way}, {noise} noise",
        )
    reference = by_subject(rows[rows["way"] == "reference"], metric, protocol)
    if len(reference) and metric != "gap":
        label = "two references"
        axes.axhline(reference.mean(), color="#999999", linewidth=1, linestyle=":", label=label)
    _set_scale(axes, sorted(set(chosen[along])))
    plain(axes)
    axes.set_xlabel(f"{along} ({most:g} {other})", fontsize=TICK_SIZE)
