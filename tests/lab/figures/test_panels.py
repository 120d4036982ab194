"""What all figures share: captions and files."""

from __future__ import annotations

from pathlib import Path

import pytest

from nicegnn.errors import ConfigError
from nicegnn_lab.figures.panels import new_figure, read_caption, save_figure, set_caption


def test_caption_lies_inside_the_png(tmp_path: Path) -> None:
    figure = new_figure(3, 2)
    save_figure(figure, tmp_path / "bare.png")
    assert read_caption(tmp_path / "bare.png") == ""
    set_caption(figure, "Message scale ρ, 10 %.", "Mean over graphs.")
    assert figure.get_label() == "Message scale ρ, 10 %. Mean over graphs."
    save_figure(figure, tmp_path / "a.png")
    assert read_caption(tmp_path / "a.png") == figure.get_label()
    with pytest.raises(ConfigError, match="ending"):
        save_figure(figure, tmp_path / "a.txt")
    (tmp_path / "b.png").write_bytes(b"no picture")
    assert read_caption(tmp_path / "b.png") == ""
