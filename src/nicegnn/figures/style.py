"""What all figures of results share: panels, marks of methods, legends, captions, files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nicegnn.figures.drawing import new_figure, save_figure
from nicegnn.metrics import Metric
from nicegnn.rivals.registry import EXPLAINERS
from nicegnn.store import write_text
from nicegnn.tables.methods import Method

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Paul Tol's muted scheme, told apart with any colour vision, a brown, an orange and a blue.
_RIVALS = (
    "#cc6677",
    "#332288",
    "#ddaa33",
    "#117733",
    "#88ccee",
    "#882255",
    "#44aa99",
    "#999933",
    "#aa4499",
    "#8c510a",
    "#e66100",
    "#1a85ff",
)
_MARKS = ("o", "s", "^", "v", "D", "P", "X", "<", ">", "p", "h", "d")
_GREYS = ("#aaaaaa", "#666666", "#888888", "#bbbbbb")

_LEAST_WIDTH = 4.5  # inches of a figure
_ENTRY_WIDTH, _ENTRY_HEIGHT = 1.9, 0.2  # inches of one name in a legend
TITLE_SIZE, LABEL_SIZE, TICK_SIZE = 10, 9, 8


def method_style(method: Method) -> dict[str, Any]:
    """Returns colour, mark and line of a method, the same in every figure.

    Ours are black and thick, references grey and dotted; a mechanism that is not the explainer's
    own has a hollow mark and a dashed line, one that is its second other one a dash-dotted line.
    """
    same = [name for name, entry in EXPLAINERS.items() if entry.group == method.group]
    place = same.index(method.explainer) if method.explainer in same else len(same)
    line, width, colour = "-", 1.3, _RIVALS[place % len(_RIVALS)]
    mark = _MARKS[place % len(_MARKS)]
    if method.group == "ours":
        colour, width, mark = "#000000", 2.4, ("*", "d")[place % 2]
        line = ("-", "--")[place % 2]
    elif method.group != "rival":
        colour, line = _GREYS[place % len(_GREYS)], ":"
    if method.group == "supervised":  # in the colour of the same method without supervision
        plain_name = method.explainer.removesuffix("-supervised")
        rivals = [name for name, entry in EXPLAINERS.items() if entry.group == "rival"]
        place = rivals.index(plain_name) if plain_name in rivals else len(rivals)
        colour, mark = _RIVALS[place % len(_RIVALS)], "H"
    is_hollow = not method.is_as_published
    if is_hollow:
        entry = EXPLAINERS.get(method.explainer)
        known = () if entry is None else entry.mechanisms[2:]
        line = "-." if method.mechanism in known else "--"
    return {
        "color": colour,
        "marker": mark,
        "linestyle": line,
        "linewidth": width,
        "markersize": 9 if mark == "*" else 5,
        "markerfacecolor": "white" if is_hollow else colour,
        "zorder": 5 if method.group == "ours" else 3,
    }


def panels(
    num: int, *, width: float = 3.0, height: float = 2.5, columns: int = 4, sharey: bool = False
) -> tuple[Figure, list[Axes]]:
    """Returns a figure with so many panels in rows, plain spines, nothing in empty places.

    Args:
        width, height: of one panel in inches.
        columns: most panels side by side.
    """
    wide = max(1, min(columns, num))
    high = -(-max(1, num) // wide)
    figure = new_figure(max(_LEAST_WIDTH, width * wide + 0.4), height * high + 0.4)
    places = list(figure.subplots(high, wide, squeeze=False, sharey=sharey).flat)
    for place in places[num:]:
        place.set_axis_off()
    for place in places[:num]:
        plain(place)
    return figure, places[:num]


def plain(axes: Axes) -> None:
    """Leaves out the upper and right spine and sets small ticks."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=TICK_SIZE)


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


def axis_label(metric: Metric, unit: str = "%") -> str:
    """Returns a metric's title with its unit and an arrow toward the better end."""
    arrow = {True: " ↑", False: " ↓", None: ""}[metric.higher_is_better]
    return f"{metric.title}, {unit}{arrow}"


def set_caption(figure: Figure, *sentences: str) -> None:
    """Keeps the text that belongs under a figure with it; `save` writes it."""
    figure.set_label(" ".join(sentence for sentence in sentences if sentence))


def caption_of(figure: Figure) -> str:
    """Returns the text that belongs under a figure."""
    return str(figure.get_label())


def save(
    figure: Figure, folder: str | Path, name: str, endings: Sequence[str] = ("png", "pdf")
) -> list[Path]:
    """Writes a figure in each format, and its caption as ``name.txt``; returns the paths."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{name}.{ending}" for ending in endings]
    for path in paths:
        save_figure(figure, path)
    text = folder / f"{name}.txt"
    write_text(text, caption_of(figure) + "\n")
    return [*paths, text]
