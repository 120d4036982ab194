"""What all figures share: captions and files."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from nicegnn.errors import ConfigError
from nicegnn_lab.figures.panels import new_figure, save_figure, set_caption


def described(path: Path) -> str | None:
    with Image.open(path) as picture:
        return picture.info.get("Description")


def test_caption_lies_inside_the_png(tmp_path: Path) -> None:
    figure = new_figure(3, 2)
    save_figure(figure, tmp_path / "bare.png")
    assert described(tmp_path / "bare.png") is None
    set_caption(figure, "Message scale ρ, 10 %.", "Mean over graphs.")
    assert figure.get_label() == "Message scale ρ, 10 %. Mean over graphs."
    save_figure(figure, tmp_path / "a.png")
    assert described(tmp_path / "a.png") == figure.get_label()
    with pytest.raises(ConfigError, match="ending"):
        save_figure(figure, tmp_path / "a.txt")
