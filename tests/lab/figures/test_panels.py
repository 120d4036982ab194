"""What all figures share: styles, captions and files."""

from __future__ import annotations

from pathlib import Path

import pytest

from nicegnn.errors import ConfigError
from nicegnn_lab.figures.panels import (
    caption_of,
    method_style,
    panels,
    read_caption,
    save_figure,
    set_caption,
)
from nicegnn_lab.paper.methods import Method
from nicegnn_lab.rivals import EXPLAINERS


def test_styles_tell_methods_apart() -> None:
    styles = [
        method_style(Method(name, mechanism))
        for name, entry in EXPLAINERS.items()
        for mechanism in entry.mechanisms or ("",)
    ]
    seen = {(s["color"], s["marker"], s["markerfacecolor"], s["linestyle"]) for s in styles}
    assert len(seen) == len(styles)


def test_caption_lies_inside_the_png(tmp_path: Path) -> None:
    figure, _ = panels(1)
    save_figure(figure, tmp_path / "bare.png")
    assert read_caption(tmp_path / "bare.png") == ""
    set_caption(figure, "Message scale ρ, 10 %.", "", "Mean over graphs.")
    assert caption_of(figure) == "Message scale ρ, 10 %. Mean over graphs."
    save_figure(figure, tmp_path / "a.png")
    assert read_caption(tmp_path / "a.png") == caption_of(figure)
    with pytest.raises(ConfigError, match="ending"):
        save_figure(figure, tmp_path / "a.txt")
    (tmp_path / "b.png").write_bytes(b"no picture")
    assert read_caption(tmp_path / "b.png") == ""
