"""Pictures of a folder, with their captions."""

from __future__ import annotations

import base64
from pathlib import Path

from nicegnn.figures.drawing import panels, save, set_caption
from nicegnn.report.pictures import read_pictures

PNG = bytes.fromhex("89504e470d0a1a0a")


def test_pictures_are_the_smaller_files_of_each_name(tmp_path: Path) -> None:
    (tmp_path / "scale-gin.png").write_bytes(PNG + b"0" * 100)
    (tmp_path / "scale-gin.svg").write_text('<svg xmlns="http://www.w3.org/2000/svg"/>')
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "a.png").write_bytes(PNG)
    (tmp_path / "notes.txt").write_text("no picture")
    first, second = read_pictures(tmp_path)
    assert (first.name, second.name) == ("more-a", "scale-gin")
    assert second.uri.startswith("data:image/svg+xml;base64,")
    assert base64.b64decode(first.uri.partition(",")[2]) == PNG
    assert first.caption == ""
    assert read_pictures(None) == []


def test_caption_comes_out_of_the_file(tmp_path: Path) -> None:
    figure, _ = panels(1)
    set_caption(figure, "What it shows.")
    save(figure, tmp_path, "scale")
    (picture,) = read_pictures(tmp_path)
    assert picture.caption == "What it shows."
