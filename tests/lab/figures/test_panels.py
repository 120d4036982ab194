"""What all figures share: styles, captions and files."""

from __future__ import annotations

from pathlib import Path

from nicegnn_lab.figures.panels import (
    caption_of,
    figure_svg,
    method_style,
    panels,
    read_caption,
    save,
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


def test_caption_lies_inside_the_png_and_a_pdf_comes_on_request(tmp_path: Path) -> None:
    figure, _ = panels(1)
    set_caption(figure, "Message scale ρ, 10 %.", "", "Mean over graphs.")
    assert caption_of(figure) == "Message scale ρ, 10 %. Mean over graphs."
    assert [path.name for path in save(figure, tmp_path, "a")] == ["a.png"]
    assert read_caption(tmp_path / "a.png") == caption_of(figure)
    assert [path.name for path in save(figure, tmp_path, "b", pdf=True)] == ["b.png", "b.pdf"]
    assert (tmp_path / "b.pdf").read_bytes().startswith(b"%PDF")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.png", "b.pdf", "b.png"]
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


def test_pictures_without_a_caption_have_none(tmp_path: Path) -> None:
    figure, _ = panels(1)
    save(figure, tmp_path, "a")
    assert read_caption(tmp_path / "a.png") == ""
    (tmp_path / "b.png").write_bytes(b"no picture")
    assert read_caption(tmp_path / "b.png") == ""


def test_empty_places_of_a_grid_are_switched_off() -> None:
    figure, places = panels(5, columns=4)
    assert len(places) == 5
    assert [axes.axison for axes in figure.axes] == [True] * 5 + [False] * 3
    assert figure_svg(figure).startswith("<svg")
