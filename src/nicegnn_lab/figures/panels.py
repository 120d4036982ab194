"""What all figures share: panels, marks of methods, legends, captions, files. Needs matplotlib."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from nicegnn.config import check_choice
from nicegnn.store import write_whole
from nicegnn_lab.metrics.metric import Metric
from nicegnn_lab.paper.methods import Method
from nicegnn_lab.rivals import EXPLAINERS
from nicegnn_lab.tables.table import dataset_title, stand_in_note, stand_ins

COLOURS = {"clean": "#444444", "EM": "#d55e00", "NC": "#0072b2", "exchange": "#009e73"}
TITLE_SIZE, LABEL_SIZE, TICK_SIZE = 10, 9, 8

#: Paul Tol's muted scheme, told apart with any colour vision, a brown, an orange and a blue.
_RIVALS = (
    *("#cc6677", "#332288", "#ddaa33", "#117733", "#88ccee", "#882255"),
    *("#44aa99", "#999933", "#aa4499", "#8c510a", "#e66100", "#1a85ff"),
)
_MARKS = ("o", "s", "^", "v", "D", "P", "X", "<", ">", "p", "h", "d")
_OURS = {"nice": ("*", "-"), "nice-paper": ("d", "--")}  # mark and line; others take the next mark
_GREYS = ("#aaaaaa", "#666666", "#888888", "#bbbbbb")

_LEAST_WIDTH = 4.5  # inches of a figure
_ENTRY_WIDTH, _ENTRY_HEIGHT = 1.9, 0.2  # inches of one name in a legend


def new_figure(width: float, height: float) -> Figure:
    """Returns an empty figure that belongs to no window."""
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def panels(
    num: int, *, width: float = 3.0, height: float = 2.5, columns: int = 4
) -> tuple[Figure, list[Axes]]:
    """Returns a figure with so many panels in rows, plain spines, nothing in empty places.

    Width and height are of one panel in inches; at most so many columns stand side by side.
    """
    wide = max(1, min(columns, num))
    high = -(-max(1, num) // wide)
    figure = new_figure(max(_LEAST_WIDTH, width * wide + 0.4), height * high + 0.4)
    places = list(figure.subplots(high, wide, squeeze=False).flat)
    for place in places[num:]:
        place.set_axis_off()
    for place in places[:num]:
        plain(place)
    return figure, places[:num]


class DatasetPanels:
    """A figure with one panel per dataset; `rows` tell which datasets are stand-ins.

    Iterating yields axes and dataset, panel by panel; `finish` sets what all panels share.
    """

    def __init__(
        self,
        rows: pd.DataFrame,
        datasets: Sequence[str],
        height: float = 2.5,  # of one panel, inches
    ) -> None:
        self._figure, self._places = panels(len(datasets), height=height)
        self._datasets, self._marked = datasets, stand_ins(rows)
        self.handles: dict[str, Any] = {}  # line or mark of each name, filled by the caller

    def __iter__(self) -> Iterator[tuple[Axes, str]]:
        return zip(self._places, self._datasets, strict=True)

    def set_title(self, axes: Axes, dataset: str, num: int) -> None:
        """Names a panel's dataset and the number of its graphs."""
        axes.set_title(f"{dataset_title(dataset, self._marked)}, n = {num}", fontsize=TITLE_SIZE)

    def finish(
        self, xlabel: str, ylabel: str, *caption: str, names: Collection[str] | None = None
    ) -> Figure:
        """Sets labels, caption and legend, in the order of `names` or as drawn; returns all."""
        for place in self._places:
            place.set_xlabel(xlabel)
        for place in self._places[::4]:
            place.set_ylabel(ylabel)
        order = self.handles if names is None else [name for name in names if name in self.handles]
        legend_below(self._figure, {name: self.handles[name] for name in order})
        set_caption(self._figure, *caption, *stand_in_note(self._datasets, self._marked))
        return self._figure


def plain(axes: Axes) -> None:
    """Leaves out the upper and right spine and sets small ticks and labels."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=TICK_SIZE)
    for axis in (axes.xaxis, axes.yaxis):
        axis.label.set_fontsize(LABEL_SIZE)


def share_histogram(axes: Axes, name: str, values: Any, edges: Sequence[float], label: str) -> None:
    """Draws how values spread in percent: the clean computation filled, damaged ones as lines."""
    axes.hist(
        values,
        bins=edges,
        weights=[100 / len(values)] * len(values),
        histtype="stepfilled" if name == "clean" else "step",
        color="#cccccc" if name == "clean" else COLOURS[name],
        linestyle="--" if name == "EM" else "-",
        linewidth=1.8,
        label=label,
    )


def damaged(is_clean: bool, rows: pd.DataFrame) -> str:
    """Returns how messages were damaged in rows of a study, for a caption."""
    messages = "clean" if is_clean else "propagated"
    has_exchange = rows["setting"].astype("str").str.startswith("exchange").any()
    ways = ", noise corruption (NC) and exchange" if has_exchange else " and noise corruption (NC)"
    return f"under element-wise masking (EM){ways} of {messages} messages"


def legend_below(figure: Figure, handles: dict[str, Any]) -> None:
    """Puts one legend for all panels under them; the figure grows by its height."""
    if not handles:
        return
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


def method_style(method: Method) -> dict[str, Any]:
    """Returns colour, mark and line of a method, the same in every figure.

    Ours are black and thick, references grey and dotted; a mechanism that is not the explainer's
    own has a hollow mark and a dashed line, one that is its second other one a dash-dotted line.
    """
    place = _place(method.explainer, method.group)
    line: Any = "-"
    width, colour = 1.3, _RIVALS[place % len(_RIVALS)]
    mark = _MARKS[place % len(_MARKS)]
    if method.group == "ours":
        colour, width = "#000000", 2.4
        mark, line = _OURS.get(method.explainer, (mark, "-"))
    elif method.group == "variant":  # of ours: brown, which no rival and no reference has
        colour, line = "#7a4419", (0, (1, 1))
    elif method.group != "rival":
        colour, line = _GREYS[place % len(_GREYS)], ":"
    if method.group == "supervised":  # in the colour of the same method without supervision
        place = _place(method.explainer.removesuffix("-supervised"), "rival")
        colour, mark = _RIVALS[place % len(_RIVALS)], "H"
    is_hollow = not method.is_as_published  # so the explainer is a registered one
    if is_hollow:
        is_second = method.mechanism in EXPLAINERS[method.explainer].mechanisms[2:]
        line = "-." if is_second else "--"
    return {
        "color": colour,
        "marker": mark,
        "linestyle": line,
        "linewidth": width,
        "markersize": 9 if mark == "*" else 5,
        "markerfacecolor": "white" if is_hollow else colour,
        "zorder": 5 if method.group == "ours" else 3,
    }


def _place(explainer: str, group: str) -> int:
    """Returns an explainer's place among those of a group."""
    same = [name for name, entry in EXPLAINERS.items() if entry.group == group]
    return same.index(explainer) if explainer in same else len(same)


def axis_label(metric: Metric, unit: str = "%") -> str:
    """Returns a metric's title with its unit and an arrow toward the better end."""
    arrow = {True: " ↑", False: " ↓", None: ""}[metric.higher_is_better]
    return f"{metric.title}, {unit}{arrow}"


def set_caption(figure: Figure, *sentences: str) -> None:
    """Keeps the text that belongs under a figure with it; `save_figure` writes it into the file."""
    figure.set_label(" ".join(sentence for sentence in sentences if sentence))


def caption_of(figure: Figure) -> str:
    """Returns the text that belongs under a figure."""
    return str(figure.get_label())


def save_figure(figure: Figure, path: str | Path) -> None:
    """Writes a figure; the ending of the name says the format. A PNG holds the caption."""
    kind = Path(path).suffix.removeprefix(".")
    check_choice("ending of a figure's name", kind, figure.canvas.get_supported_filetypes())
    about: dict[str, Any] = {"format": kind, "dpi": 110, "facecolor": "white"}
    if kind == "png":
        about["metadata"] = {"Software": None, "Description": caption_of(figure) or None}
    write_whole(path, lambda temporary: figure.savefig(temporary, **about))


def read_caption(path: str | Path) -> str:
    """Returns the caption inside a PNG that `save_figure` wrote, empty if it holds none."""
    from PIL import Image

    try:
        with Image.open(path) as picture:
            return str(picture.info.get("Description", ""))
    except OSError:  # not a PNG that can be read
        return ""
