"""Pictures: colours, widths and notes per bond, and that they sit on the bonds they speak of."""

import re
import xml.etree.ElementTree as ElementTree
from itertools import pairwise

import pytest
import torch

pytest.importorskip("rdkit", reason="needs RDKit: pip install 'nicegnn[molecules]'")

from nicegnn.errors import ConfigError
from nicegnn.molecule.drawing import (
    PALETTES,
    DrawError,
    Palette,
    blank_svg,
    molecule_png,
    molecule_svg,
)
from nicegnn.molecule.smiles import MoleculeError, molecule_tables, parse_smiles

NS = "{http://www.w3.org/2000/svg}"
TOLUENE = "Cc1ccccc1"
SCORE = PALETTES["score"]


def strokes(svg: str) -> list[tuple[str, str, float]]:
    """Note, colour and width of each coloured band, from back to front."""
    return [
        (band.findtext(f"{NS}title"), band.get("stroke"), float(band.get("stroke-width")))
        for band in bands(ElementTree.fromstring(svg))
    ]


def bands(root: ElementTree.Element) -> list[ElementTree.Element]:
    return [p for p in root.iter(f"{NS}path") if p.get("class", "").startswith("band ")]


def points(path: ElementTree.Element) -> list[tuple[float, float]]:
    numbers = [float(number) for number in re.findall(r"-?[\d.]+", path.get("d"))]
    return list(zip(numbers[::2], numbers[1::2], strict=True))


def luminance(colour: str) -> float:
    red, green, blue = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    linear = [
        c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (red, green, blue)
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_svg_can_be_put_into_a_page():
    svg = molecule_svg(TOLUENE, [0.5] * 7, title="<b> & co")
    root = ElementTree.fromstring(svg)
    assert svg.startswith("<svg")
    assert root.tag == f"{NS}svg"
    assert root.get("viewBox") == "0 0 320 240"
    assert not any("id" in element.attrib for element in root.iter())
    assert not list(root.iter(f"{NS}style"))
    assert not list(root.iter(f"{NS}rect"))
    assert "<b>" not in svg
    assert root.get("aria-label") == "<b> & co"


def test_background_only_when_asked():
    rect = ElementTree.fromstring(molecule_svg("CC", background="#ffffff")).find(f"{NS}rect")
    assert rect.get("fill") == "#ffffff"


def test_colour_and_width_rise_with_the_score():
    score = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 10.0]
    lines = strokes(molecule_svg(TOLUENE, score))
    assert len(lines) == 6  # zero is left blank
    widths = [width for _, _, width in lines]
    assert widths == sorted(widths)
    assert len(set(widths)) == 6
    assert lines[-1][1] == SCORE.positive
    shades = [luminance(colour) for _, colour, _ in lines]
    assert shades == sorted(shades, reverse=True)


def test_scores_are_relative_to_the_largest_of_the_molecule():
    score = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7]
    small = strokes(molecule_svg(TOLUENE, score))
    large = strokes(molecule_svg(TOLUENE, [1000 * value for value in score]))
    assert [line[1:] for line in small] == [line[1:] for line in large]


def test_all_zero_scores_are_blank():
    assert strokes(molecule_svg(TOLUENE, [0.0] * 7)) == []
    assert strokes(molecule_svg(TOLUENE)) == []


def test_negative_scores_get_the_second_hue_only_when_signed():
    score = [-2.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    signed = strokes(molecule_svg(TOLUENE, score, signed=True))
    assert [note for note, _, _ in signed] == [
        "C1-C2, aromatic, score 1",
        "C0-C1, single, score -2",
    ]
    assert signed[1][1] == SCORE.negative
    plain = strokes(molecule_svg(TOLUENE, score))
    assert [line[1:] for line in plain] == [line[1:] for line in signed[:1]]


@pytest.mark.parametrize("name", PALETTES)
def test_ramps_darken_steadily_from_near_white(name):
    palette = PALETTES[name]
    assert luminance(palette.weak) > 0.85
    for strong, sign in ((palette.positive, 1), (palette.negative, -1)):
        score = [sign * value / 20 for value in range(1, 21)]
        lines = strokes(molecule_svg("C" * 21, score, palette=palette, signed=True))
        shades = [luminance(colour) for _, colour, _ in lines]
        assert all(a > b for a, b in pairwise(shades))
        assert lines[-1][1] == strong


def test_hues_of_truth_gate_and_score_differ():
    used = {SCORE.positive, SCORE.negative, SCORE.truth, PALETTES["gate"].positive}
    assert len(used) == 4
    own = strokes(molecule_svg("CC", [1.0], palette=Palette(positive="#123456")))
    assert own[0][1] == "#123456"


def test_true_bonds_alone_are_full_lines():
    lines = strokes(molecule_svg(TOLUENE, bond_truth={1, 2, 6}))
    assert [note for note, _, _ in lines] == [
        "C1-C2, aromatic, true",
        "C2-C3, aromatic, true",
        "C6-C1, aromatic, true",
    ]
    assert {colour for _, colour, _ in lines} == {SCORE.truth}


def test_true_bonds_with_scores_are_outlines_behind_them():
    lines = strokes(molecule_svg("CCC", [1.0, 0.5], bond_truth=torch.tensor([1])))
    assert [colour for _, colour, _ in lines][:2] == [SCORE.truth, SCORE.weak]
    assert lines[0][2] > lines[1][2] > max(width for _, _, width in lines[2:])
    assert lines[0][0] == "C1-C2, single, score 0.5, true"


def test_bands_lie_on_their_bonds():
    root = ElementTree.fromstring(molecule_svg("CCC(C)CC", [1.0, 2.0, 3.0, 4.0, 5.0]))
    drawn = {}
    for path in root.iter(f"{NS}path"):
        if re.match(r"bond-(\d+) ", path.get("class", "")):  # RDKit's own line
            drawn[path.findtext(f"{NS}title")] = points(path)
    found = {band.findtext(f"{NS}title"): points(band) for band in bands(root)}
    assert found.keys() == drawn.keys()
    for note, ends in found.items():
        assert sum(ends, ()) == pytest.approx(sum(drawn[note], ()), abs=0.11), note


def test_every_bond_tells_its_atoms_and_score():
    svg = molecule_svg("C[C@H](N)C(=O)O", [0.1, 0.2, 0.3, 0.4, 0.5])
    for note in (
        "C0-C1, single, score 0.1",
        "C1-N2, single, score 0.2",
        "C3-O4, double, score 0.4",
    ):
        assert f"<title>{note}</title></path>" in svg


def test_png_shows_the_same_colours():
    image = pytest.importorskip("PIL.Image")
    from io import BytesIO

    data = molecule_png(TOLUENE, [0, 1, 0, 0, 0, 0, 0], size=(200, 150), background="#ffffff")
    assert data.startswith(b"\x89PNG")
    picture = image.open(BytesIO(data)).convert("RGB")
    assert picture.size == (200, 150)
    assert picture.getpixel((0, 0)) == (255, 255, 255)
    count = sum(pixel == (0xD5, 0x5E, 0x00) for pixel in picture.get_flattened_data())
    assert count > 40
    bare = image.open(BytesIO(molecule_png(TOLUENE, size=(200, 150))))
    assert bare.convert("RGBA").getpixel((0, 0))[3] == 0


@pytest.mark.parametrize("draw", [molecule_svg, molecule_png])
def test_scores_that_do_not_fit_are_explained(draw):
    with pytest.raises(DrawError, match=r"must have 7 numbers, one per bond \(got 3\)"):
        draw(TOLUENE, [1.0, 2.0, 3.0])
    with pytest.raises(DrawError, match="Merge the two directed edges"):
        draw(TOLUENE, torch.ones(14))
    with pytest.raises(DrawError, match=r"got nan at bond 2, and 1 of 7"):
        draw(TOLUENE, [0, 0, float("nan"), 0, 0, 0, 0])
    with pytest.raises(DrawError, match=r"from 0 to 6 \(got 7\)"):
        draw(TOLUENE, bond_truth=[7])
    with pytest.raises(DrawError, match=r"got True.*nonzero"):
        draw(TOLUENE, bond_truth=torch.ones(7, dtype=torch.bool))
    with pytest.raises(ConfigError, match=r"'gate'\] or a Palette \(got 'rainbow'\)"):
        draw(TOLUENE, palette="rainbow")
    with pytest.raises(ConfigError, match=r"'#rrggbb' \(got 'white'\)"):
        draw(TOLUENE, background="white")
    with pytest.raises(MoleculeError, match="unclosed ring"):
        draw("c1cc")


def test_single_atom_is_drawn():
    assert molecule_svg("C", []).endswith("</svg>")
    assert molecule_png("[Na+]", bond_truth=()).startswith(b"\x89PNG")


@pytest.mark.parametrize("draw", [molecule_svg, molecule_png])
@pytest.mark.parametrize("size", [(-5, 10), (0, 10), (10.5, 10), (10,)])
def test_impossible_sizes_are_refused(draw, size):
    with pytest.raises(ConfigError, match=r"`size` must be width and height .* \(got "):
        draw("CC", size=size)


def blank(smiles: str, atoms: list[str], bonds: list[tuple[int, int, int]]) -> ElementTree.Element:
    return ElementTree.fromstring(blank_svg(smiles, atoms, bonds, (300, 225)))


def band_numbers(root: ElementTree.Element) -> list[int]:
    return [int(band.get("class").removeprefix("band bond-")) for band in bands(root)]


def test_blank_bands_have_the_numbers_of_the_given_bonds():
    smiles = "Cc1ccccc1C(=O)O"
    atoms, bonds = molecule_tables(parse_smiles(smiles))
    plain = {n: band.get("d") for n, band in enumerate(bands(blank(smiles, atoms, bonds)))}
    turned = [(v, u, kind) for u, v, kind in bonds[::-1]]
    other = blank(smiles, atoms, turned)
    assert band_numbers(other) == list(range(len(bonds)))
    last = len(bonds) - 1
    assert {last - n: band.get("d") for n, band in enumerate(bands(other))} == plain


def test_blank_drawing_has_no_colours_of_its_own():
    atoms, bonds = molecule_tables(parse_smiles("CC(=O)N"))
    root = blank("CC(=O)N", atoms, bonds)
    assert float(root.get("data-unit")) > 10
    lines = [p for p in root.iter(f"{NS}path") if p.get("class", "").startswith("line")]
    assert len(lines) >= len(bonds) + 1  # a double bond has two
    for path in (*lines, *bands(root)):
        assert path.get("style") is None
        assert path.get("stroke") is None


def test_graph_without_smiles_is_drawn_from_its_atoms_and_bonds():
    bonds = [(0, 1, 1), (1, 2, 2), (0, 3, 1), (0, 4, 4)]
    root = blank("", ["C", "N", "O", "H", "C"], bonds)
    assert band_numbers(root) == [0, 1, 2, 3]
    labels = {path.get("class") for path in root.iter(f"{NS}path") if "atom-" in path.get("class")}
    assert labels == {"atom-1", "atom-2", "atom-3"}  # carbon has no label, hydrogens no number
    assert sum(path.get("class") == "line dashed" for path in root.iter(f"{NS}path")) >= 1


def test_smiles_of_another_graph_is_not_drawn():
    star = [(0, 1, 1), (0, 2, 1), (0, 3, 1)]
    assert band_numbers(blank("CCCC", ["C"] * 4, star)) == [0, 1, 2]
    assert band_numbers(blank("not a molecule", ["C"] * 4, star)) == [0, 1, 2]


def test_strange_graphs_can_be_drawn():
    assert band_numbers(blank("", ["Unk"], [])) == []
    clique = [(u, v, 1) for u in range(6) for v in range(u)]
    assert len(band_numbers(blank("", ["C"] * 6, clique))) == 15  # carbon with five bonds
    assert band_numbers(blank("", ["C"] * 4, [(0, 1, 4), (2, 3, 3)])) == [0, 1]
