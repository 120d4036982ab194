"""Pictures as such: colours, files, places of parts, and words that fit."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from io import BytesIO

import pytest

from nicegnn.errors import ConfigError
from nicegnn.molecule.picture import (
    PALETTES,
    Palette,
    Picture,
    Shape,
    Words,
    circle,
    colour_bars,
    grid,
    key_line,
    make_ramp,
    rectangle,
    shortened,
    stack,
    text_width,
    title_line,
)

NS = "{http://www.w3.org/2000/svg}"
SQUARE = Picture((40, 20), (Shape(rectangle(0, 0, 40, 20), fill="#d55e00"),), "square")


def test_ramp_is_signed_where_a_number_is_negative_and_full_at_the_largest() -> None:
    palette = Palette(positive="#ff0000", negative="#0000ff", weak="#ffffff")
    plain = make_ramp([0.0, 1.0, 4.0], palette)
    assert [plain.colour(v) for v in (0, 2, 4, 9, -1)] == [
        *("#ffffff", "#ff8080", "#ff0000", "#ff0000", "#ffffff")
    ]
    both = make_ramp([-4.0, 1.0], palette)
    assert both.signed
    assert [both.colour(v) for v in (-4, -2, 0, 4)] == ["#0000ff", "#8080ff", "#ffffff", "#ff0000"]
    assert make_ramp([-4.0, 1.0], palette, signed=False).limit == 1
    assert make_ramp([1.0], palette, limit=10).level(5) == 0.5
    assert make_ramp([], palette).level(3) == 0
    for wrong in (0, -1.0, float("nan"), "1"):
        with pytest.raises(ConfigError, match="`limit` must be a number above 0"):
            make_ramp([1.0], palette, limit=wrong)


def test_bar_names_its_two_ends() -> None:
    ramps = [("bond score", make_ramp([-0.5, 0.25], PALETTES["score"]))]
    ramps.append(("atom score", make_ramp([3.0], PALETTES["score"])))
    bar = colour_bars(ramps, 300)
    words = [(part.text, part.anchor) for part in bar.parts if isinstance(part, Words)]
    assert words == [
        *(("bond score", "end"), ("−0.5", "end"), ("0.5", "start")),
        *(("atom score", "end"), ("0", "end"), ("3", "start")),
    ]
    shades = [part.fill for part in bar.parts if isinstance(part, Shape) and part.fill != "none"]
    assert len(shades) == 64
    assert len(set(shades)) > 60
    assert key_line([("#000000", "best")], 100).label == "best"


def test_files_are_told_by_their_names(tmp_path) -> None:
    assert ElementTree.fromstring(SQUARE.save(tmp_path / "a.svg").read_text()).tag == f"{NS}svg"
    assert SQUARE.save(str(tmp_path / "new" / "a.PNG")).read_bytes().startswith(b"\x89PNG")
    assert SQUARE.save(tmp_path / "a.pdf").read_bytes().startswith(b"%PDF")
    with pytest.raises(ConfigError, match=r"must end with one of .*got '.*a.gif'"):
        SQUARE.save(tmp_path / "a.gif")
    with pytest.raises(ConfigError, match="`scale`"):
        SQUARE.png(scale=0)
    assert SQUARE._repr_svg_() == SQUARE.svg
    assert repr(SQUARE) == "Picture('square', 40 x 20 pixels)"


def test_png_has_the_shapes_in_their_places() -> None:
    image = pytest.importorskip("PIL.Image")
    dot = Picture((40, 20), (Shape(circle(20, 10, 8), fill="#0072b2"),), "dot")
    both = grid([SQUARE, dot, SQUARE], 2, label="three", gap=10)
    assert both.size == (90, 50)
    picture = image.open(BytesIO(both.png(scale=2))).convert("RGBA")
    assert picture.size == (180, 100)
    orange, blue, nothing = (0xD5, 0x5E, 0x00, 255), (0x00, 0x72, 0xB2, 255), 0
    assert picture.getpixel((40, 20)) == orange
    assert picture.getpixel((140, 20)) == blue  # the middle of the second cell
    assert picture.getpixel((140, 20 - 18))[3] == nothing  # above the circle
    assert picture.getpixel((40, 80)) == orange
    assert picture.getpixel((140, 80))[3] == nothing  # an empty cell


def test_stack_is_as_wide_as_the_widest_and_has_one_background() -> None:
    both = stack([title_line("A title", 100), SQUARE], label="both", background="#ffffff")
    assert both.size == (100, 46)
    places = [group.get("transform") for group in ElementTree.fromstring(both.svg).iter(f"{NS}g")]
    assert places == ["translate(0,0)", "translate(30,26)"]
    backdrop = next(ElementTree.fromstring(both.svg).iter(f"{NS}path"))
    assert backdrop.get("class") == "background"
    with pytest.raises(ConfigError, match=r"'#rrggbb' \(got 'white'\)"):
        stack([SQUARE], label="", background="white")


def test_long_words_lose_their_middle() -> None:
    assert shortened("C" * 10, 1000, 12) == "C" * 10
    short = shortened("start" + "C" * 300 + "end", 200, 12)
    assert short.startswith("start")
    assert short.endswith("end")
    assert "…" in short
    assert text_width(short, 12) <= 200
    assert text_width("C=O", 10) > text_width("c-o", 10)
    assert text_width("abc", 10, is_bold=True) > text_width("abc", 10)
    assert shortened("CCC", 1, 12) == "C…"


def test_text_is_escaped() -> None:
    svg = Picture((9, 9), (Words(0, 0, "<b> & co"), Shape("M 0,0", note="a<b")), "'\"<").svg
    root = ElementTree.fromstring(svg)
    assert root.get("aria-label") == "'\"<"
    assert root.findtext(f"{NS}text") == "<b> & co"
    assert root.find(f"{NS}path").findtext(f"{NS}title") == "a<b"


def test_bad_grids_are_refused() -> None:
    with pytest.raises(ConfigError, match="`columns`"):
        grid([SQUARE], 0, label="")
    with pytest.raises(ConfigError, match="`pictures`"):
        grid([], 2, label="")
