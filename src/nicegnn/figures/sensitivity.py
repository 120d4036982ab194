"""Figure: quality, stability, compactness and time of NICE along each of its settings."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from nicegnn.figures.drawing import LABEL_SIZE, TICK_SIZE, new_figure, plain, set_caption
from nicegnn.tables.cells import by_subject, read_study, subject_titles
from nicegnn.tables.studies import swept

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Colour and mark of each base.
STYLES = {
    "paper": ("#d55e00", "o", "as the paper writes it"),
    "nice": ("#0072b2", "s", "our defaults"),
    "nice-joint": ("#009e73", "^", "our boundary, joint path"),
}
#: Metrics with their protocols from top to bottom, and their labels.
PANELS = (
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
    found = list(swept(rows))  # in the order of `SWEEPS`
    names = list(dict.fromkeys(name for _, name, _, _ in found))
    drawn = new_figure(3.0 * len(names), 2.1 * len(PANELS))
    grid = drawn.subplots(len(PANELS), len(names), sharey="row", sharex="col", squeeze=False)
    for base, name, title, levels in found:
        column = names.index(name)
        for axes, (metric, protocol, label) in zip(grid[:, column], PANELS, strict=True):
            by_level = [(level, by_subject(some, metric, protocol)) for level, some in levels]
            _draw(axes, base, by_level)
            if column == 0:
                axes.set_ylabel(label, fontsize=TICK_SIZE)
        grid[0, column].set_title(title, fontsize=LABEL_SIZE)
        _set_scale(grid[-1, column], [level for level, _ in levels])
    for axes in grid[-1]:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter("{x:g}")
        axes.tick_params(axis="y", which="both", labelsize=6)
    drawn.legend(
        *_legend(grid), loc="outside lower center", ncols=3, frameon=False, fontsize=TICK_SIZE
    )
    set_caption(
        drawn,
        f"NICE along each of its settings, the others at their values; {subject_titles(rows)}.",
        "Columns are settings, rows what they do: AUC by protocol `paper`, the rank correlation of "
        "two explanations with other noise, the standard deviation of the lost log-probability "
        "over draws at the boundary, the restored share of edges, milliseconds per graph.",
    )
    return drawn


def _draw(axes: Axes, base: str, by_level: list[tuple[float, Any]]) -> None:
    colour, mark, label = STYLES.get(base, ("#444444", "x", base))
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


def _legend(grid: Any) -> tuple[list[Any], list[str]]:
    found: dict[str, Any] = {}
    for axes in grid.flat:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    return list(found.values()), list(found)
