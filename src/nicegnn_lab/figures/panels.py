"""What all figures share: colours, plain axes, legends, captions, files. Needs matplotlib."""

from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from nicegnn.config import check_choice
from nicegnn.store import write_whole

#: Of the clean computation, and of damages by their names in rows.
COLOURS = {"clean": "#444444", "em": "#d55e00", "nc": "#0072b2", "exchange": "#009e73"}
TITLE_SIZE, LABEL_SIZE, TICK_SIZE = 10, 9, 8

_ENTRY_WIDTH, _ENTRY_HEIGHT = 1.9, 0.2  # inches of one name in a legend


def new_figure(width: float, height: float) -> Figure:
    """Returns an empty figure that belongs to no window; sizes are in inches."""
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def plain(axes: Axes) -> None:
    """Leaves out the upper and right spine and sets small ticks and labels."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=TICK_SIZE)
    for axis in (axes.xaxis, axes.yaxis):
        axis.label.set_fontsize(LABEL_SIZE)


def legend_below(figure: Figure, handles: dict[str, Any]) -> None:
    """Puts one legend for all panels under them; the figure grows by its height."""
    columns = max(1, min(int(figure.get_figwidth() / _ENTRY_WIDTH), len(handles)))
    figure.set_figheight(figure.get_figheight() + _ENTRY_HEIGHT * -(-len(handles) // columns))
    figure.legend(
        list(handles.values()),
        list(handles),
        loc="outside lower center",
        ncols=columns,
        frameon=False,
        fontsize=LABEL_SIZE,
    )


def set_caption(figure: Figure, *sentences: str) -> None:
    """Makes the text that belongs under a figure its label; `save_figure` writes it into a file."""
    figure.set_label(" ".join(sentences))


def save_figure(figure: Figure, path: str | Path) -> None:
    """Writes a figure; the ending of the name says the format. A PNG holds the caption."""
    kind = Path(path).suffix.removeprefix(".")
    check_choice("ending of a figure's name", kind, figure.canvas.get_supported_filetypes())
    about: dict[str, Any] = {"format": kind, "dpi": 110, "facecolor": "white"}
    if kind == "png":
        about["metadata"] = {"Software": None, "Description": str(figure.get_label()) or None}
    write_whole(path, lambda temporary: figure.savefig(temporary, **about))
