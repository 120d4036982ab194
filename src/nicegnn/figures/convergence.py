"""Figure: how BIG along the joint path converges with nodes, draws and quadrature."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from nicegnn.figures.drawing import LABEL_SIZE, TICK_SIZE, new_figure, plain, set_caption
from nicegnn.tables.cells import by_subject, read_study, subject_titles

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WAYS = {"riemann": "#d55e00", "gauss": "#0072b2", "gauss-sine": "#009e73"}
LINES = {"fresh": "-", "shared": "--"}
TITLES = {"paper": "boundary as the paper writes it", "nice": "our boundary"}
#: Panels of each base: metric, protocol, what it is drawn against, label.
PANELS = (
    ("gap", "", "nodes", "completeness gap, relative"),
    ("spearman", "", "nodes", "rank correlation with reference"),
    ("roc_auc", "paper", "nodes", "AUC"),
    ("spearman", "", "draws", "rank correlation with reference"),
)


def convergence_figure(studies: str | Path) -> Figure:
    """Returns one row of panels per base: against nodes at most draws, then the other way round.

    Colours are quadratures; broken lines share their noise along the path. No line can be expected
    above the dotted one, the agreement of two references with different noise.
    """
    rows = read_study(studies, "convergence")
    parts = rows["setting"].str.split("/")
    rows = rows.assign(base=parts.str[0], way=parts.str[1], noise=parts.str[2])
    rows = rows.assign(draws=parts.str[3].astype(float))  # nan for the reference
    bases = [base for base in ("paper", "nice") if base in set(rows["base"])]
    drawn = new_figure(3.2 * len(PANELS), 2.9 * len(bases))
    grid = drawn.subplots(len(bases), len(PANELS), squeeze=False)
    for base, line in zip(bases, grid, strict=True):
        some = rows[rows["base"] == base]
        for axes, (metric, protocol, along, label) in zip(line, PANELS, strict=True):
            _draw(axes, some, metric, protocol, along)
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


def _draw(axes: Axes, rows: pd.DataFrame, metric: str, protocol: str, along: str) -> None:
    measured = rows[rows["noise"].notna()]
    reference = by_subject(rows[rows["way"] == "reference"], metric, protocol)
    if along == "nodes":
        fixed, number = measured["draws"], measured["level"]
    else:
        fixed, number = measured["level"], measured["draws"]
    most = fixed.max()
    chosen = measured.assign(number=number)[fixed == most]
    for (way, noise), some in chosen.groupby(["way", "noise"]):
        points: dict[float, Any] = {
            level: by_subject(part, metric, protocol).mean()
            for level, part in some.groupby("number")
        }
        axes.plot(
            list(points),
            list(points.values()),
            color=WAYS.get(way, "#444444"),
            linestyle=LINES.get(noise, ":"),
            marker=".",
            linewidth=1.6,
            label=f"{way}, {noise} noise",
        )
    if len(reference) and metric != "gap":
        label = "two references"
        axes.axhline(reference.mean(), color="#999999", linewidth=1, linestyle=":", label=label)
    levels = sorted(set(chosen["number"]))
    axes.set_xscale("log")
    axes.set_xticks(levels, [f"{level:g}" for level in levels])
    axes.minorticks_off()
    other = "draws" if along == "nodes" else "nodes"
    axes.set_xlabel(f"{along} ({most:g} {other})", fontsize=TICK_SIZE)
    plain(axes)
