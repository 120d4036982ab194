"""The wide bench in one figure: agreement of damages, and chances foretold and seen."""

from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from nicegnn_lab.figures import panels
from nicegnn_lab.tables.table import read_study
from nicegnn_lab.tables.wide import HALVES, PARTS, judged_molecules, told_and_seen, with_halves

#: Damages that are drawn, by their setting in rows.
SHOWN = {name: name for name in ("zero", "deletion", "noise", "mean", "exchange")}
SHOWN["mean"] = "mean message"
_COLOURS = panels.COLOURS | {"zero": panels.COLOURS["em"], "noise": panels.COLOURS["nc"]}


def wide_figure(studies: str | Path) -> Figure:
    """Returns two panels: AUC of each target under each damage, and how chances came true."""
    rows = with_halves(read_study(studies, "wide"))
    figure = panels.new_figure(9.6, 3.8)
    left, right = figure.subplots(1, 2)
    panels.plain(left)
    panels.plain(right)
    _draw_agreement(left, rows[rows["half"] == "put aside"])
    _draw_chances(right, judged_molecules(rows))
    panels.set_caption(
        figure,
        "Left: ROC-AUC of true bonds on the half that was put aside, a dot for each target, the "
        "mean as a line.",
        f"Right: molecules in {PARTS} equally large parts by the foretold chance that the best "
        "bond is a true one, against the share in which it is.",
    )
    return figure


def _draw_agreement(place: Axes, rows: pd.DataFrame) -> None:
    auc = rows[rows["metric"] == "roc_auc"]
    mean = 100 * auc.groupby(["setting", "dataset", "target"])["value"].mean()
    for column, setting in enumerate(SHOWN):
        value = mean.loc[setting].to_numpy()
        across = column + np.linspace(-0.3, 0.3, value.size)  # side by side, in order of names
        colour = _COLOURS.get(setting, "#888888")
        place.scatter(across, value, s=7, color=colour, alpha=0.6, linewidths=0)
        place.plot([column - 0.35, column + 0.35], [value.mean()] * 2, color="black", linewidth=1.5)
    place.set_xticks(range(len(SHOWN)), list(SHOWN.values()))
    place.set_ylabel("ROC-AUC of true bonds, %", fontsize=panels.LABEL_SIZE)
    place.set_title("What replaces a message", fontsize=panels.TITLE_SIZE)


def _draw_chances(place: Axes, molecules: pd.DataFrame) -> None:
    place.plot([0, 100], [0, 100], color="#cccccc", linewidth=1)
    for half, mark in zip(HALVES, "os^D", strict=True):
        told, seen = told_and_seen(molecules[molecules["half"] == half])
        place.plot(told, seen, marker=mark, markersize=5, linewidth=1, label=half)
    place.set(xlim=(60, 101), ylim=(60, 101))
    place.set_xlabel("foretold: best bond is a true one, %", fontsize=panels.LABEL_SIZE)
    place.set_ylabel("seen, %", fontsize=panels.LABEL_SIZE)
    place.set_title("The verdict's chance", fontsize=panels.TITLE_SIZE)
    place.legend(frameon=False, fontsize=panels.LABEL_SIZE)
