"""What a figure says."""

from __future__ import annotations

from matplotlib.figure import Figure


def titles(figure: Figure) -> list[str]:
    """Titles of its panels."""
    return [axes.get_title() for axes in figure.axes if axes.get_title()]


def names(figure: Figure) -> list[str]:
    """Names in its legend."""
    return [text.get_text() for legend in figure.legends for text in legend.get_texts()]
