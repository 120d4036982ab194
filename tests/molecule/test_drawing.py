"""Pictures: colours, widths and notes per bond, and that they sit on the bonds they speak of."""

import re
import xml.etree.ElementTree as ElementTree
from io import BytesIO
from itertools import pairwise

import pytest
import torch
from torch_geometric.utils.smiles import from_rdmol

from nicegnn.errors import ConfigError
from nicegnn.molecule.canvas import unchecked_molecule
from nicegnn.molecule.drawing import DrawError, draw_graph
from nicegnn.molecule.picture import PALETTES, Palette, Picture
from nicegnn.molecule.smiles import MoleculeError, molecule_tables, parse_smiles

Chem = pytest.importorskip("rdkit.Chem", reason="needs RDKit: pip install 'nicegnn[molecules]'")

NS = "{http://www.w3.org/2000/svg}"
TOLUENE = "Cc1ccccc1"
SCORE = PALETTES["score"]


def ends_of(smiles: str) -> torch.Tensor:
    """The two atoms of each bond in RDKit's order, ``[2, M]``."""
    bonds = molecule_tables(parse_smiles(smiles))[1]
    return torch.tensor([bond[:2] for bond in bonds], dtype=torch.long).view(-1, 2).t()


def draw(smiles: str, score=None, **options) -> Picture:
    return draw_graph(ends_of(smiles), score, smiles=smiles, **({"legend": False} | options))


def strokes(picture: Picture) -> list[tuple[str, str, float]]:
    """Note, colour and width of each coloured band, from back to front."""
    return [
        (band.findtext(f"{NS}title"), band.get("stroke"), float(band.get("stroke-width")))
        for band in bands(ElementTree.fromstring(picture.svg))
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


@pytest.mark.parametrize("smiles", [TOLUENE, "CC(=O)Nc1ccc(O)cc1", "C1CC1.O=C=O"])
def test_bonds_of_any_order_keep_their_scores(smiles):
    """PyG sorts its edges by node, RDKit's bonds come as they were read."""
    read = ends_of(smiles)
    score = {frozenset(pair): 0.1 + k / 100 for k, pair in enumerate(read.t().tolist())}
    graph = from_rdmol(parse_smiles(smiles))
    one_way = graph.edge_index[:, graph.edge_index[0] > graph.edge_index[1]]
    assert one_way.shape == read.shape
    for ends in (read, one_way, read.flip(1), read.flip(0)):
        values = [score[frozenset(pair)] for pair in ends.t().tolist()]
        lines = strokes(draw_graph(ends, values, smiles=smiles, legend=False))
        assert len(lines) == len(score)
        for note, _, _ in lines:
            pair = frozenset(map(int, re.match(r"[A-Z]+(\d+)-[A-Z]+(\d+),", note).groups()))
            assert f"score {score[pair]:.4g}" in note


def test_a_band_of_any_order_lies_between_its_atoms():
    score = torch.arange(1.0, 8.0)
    plain = {note: colour for note, colour, _ in strokes(draw(TOLUENE, score))}
    order = torch.tensor([3, 0, 6, 1, 5, 2, 4])
    turned = draw_graph(ends_of(TOLUENE)[:, order], score[order], smiles=TOLUENE, legend=False)
    root = ElementTree.fromstring(turned.svg)
    assert {note: colour for note, colour, _ in strokes(turned)} == plain
    where = {b.findtext(f"{NS}title"): points(b) for b in bands(root)}
    first = ElementTree.fromstring(draw(TOLUENE, score).svg)
    assert where == {b.findtext(f"{NS}title"): points(b) for b in bands(first)}


def test_a_smiles_of_another_graph_is_refused():
    star = torch.tensor([[0, 0, 0], [1, 2, 3]])
    with pytest.raises(MoleculeError, match=r"2 bond.* such as 0-2 are only in the graph; 2 bond"):
        draw_graph(star, [1.0, 2.0, 3.0], smiles="CCCC")
    with pytest.raises(MoleculeError, match=r"1 bond.* such as 2-3 are only in the molecule"):
        draw_graph(torch.tensor([[0, 1], [1, 2]]), [1.0, 2.0], smiles="CCCC")
    with pytest.raises(MoleculeError, match="it has 4 atoms, the graph 5 nodes"):
        draw_graph(ends_of("CCCC"), [1.0, 2.0, 3.0], smiles="CCCC", num_nodes=5)
    with pytest.raises(MoleculeError, match="0-0 are only in the graph"):  # a self-loop
        draw_graph(torch.tensor([[0, 0], [1, 0]]), [1.0, 2.0], smiles="CC")


def test_hydrogens_that_are_nodes_are_drawn():
    graph = from_rdmol(Chem.AddHs(parse_smiles("CO")))
    one_way = graph.edge_index[:, graph.edge_index[0] < graph.edge_index[1]]
    lines = strokes(draw_graph(one_way, [1.0] * 5, smiles="CO", num_nodes=6, legend=False))
    assert {note.split(",")[0] for note, _, _ in lines} == {
        *("C0-O1", "C0-H2", "C0-H3", "C0-H4", "O1-H5")
    }
    written = strokes(draw_graph(torch.tensor([[0, 1], [1, 2]]), [1.0, 2.0], smiles="[H]O[H]"))
    assert [note for note, _, _ in written] == ["H0-O1, single, score 1", "O1-H2, single, score 2"]


def test_svg_can_be_put_into_a_page():
    svg = draw(TOLUENE, [0.5] * 7, title="<b> & co", legend=True).svg
    root = ElementTree.fromstring(svg)
    assert svg.startswith("<svg")
    assert root.tag == f"{NS}svg"
    assert root.get("viewBox") == "0 0 320 240"
    assert not any("id" in element.attrib for element in root.iter())
    assert not list(root.iter(f"{NS}style"))
    assert "<b>" not in svg
    assert root.get("aria-label") == "<b> & co"
    words = [text.text for text in root.iter(f"{NS}text")]
    assert words == ["<b> & co", "bond score", "0", "0.5"]


def test_background_is_white_unless_told_otherwise():
    def behind(picture: Picture) -> list[str]:
        paths = ElementTree.fromstring(picture.svg).iter(f"{NS}path")
        return [path.get("fill") for path in paths if path.get("class") == "background"]

    assert behind(draw("CC")) == ["#ffffff"]
    assert behind(draw("CC", background="#eeeeee")) == ["#eeeeee"]
    assert behind(draw("CC", background=None)) == []


def test_colour_and_width_rise_with_the_score():
    score = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 10.0]
    lines = strokes(draw(TOLUENE, score))
    assert len(lines) == 6  # zero is left blank
    widths = [width for _, _, width in lines]
    assert widths == sorted(widths)
    assert len(set(widths)) == 6
    assert lines[-1][1] == SCORE.positive
    shades = [luminance(colour) for _, colour, _ in lines]
    assert shades == sorted(shades, reverse=True)


def test_scores_are_relative_to_the_largest_or_to_a_limit():
    score = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7]
    small = strokes(draw(TOLUENE, score))
    large = strokes(draw(TOLUENE, [1000 * value for value in score]))
    assert [line[1:] for line in small] == [line[1:] for line in large]
    half = strokes(draw(TOLUENE, score, limit=1.4))[-1]
    assert half[1] == strokes(draw("CC", [0.5], limit=1.0))[0][1]


def test_all_zero_scores_are_blank():
    assert strokes(draw(TOLUENE, [0.0] * 7)) == []
    assert strokes(draw(TOLUENE)) == []


def test_negative_scores_get_the_second_hue_unless_told_otherwise():
    score = [-2.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    signed = strokes(draw(TOLUENE, score))
    assert [note for note, _, _ in signed] == [
        "C1-C2, aromatic, score 1",
        "C0-C1, single, score -2",
    ]
    assert signed[1][1] == SCORE.negative
    plain = strokes(draw(TOLUENE, score, signed=False))
    assert [(note, colour) for note, colour, _ in plain] == [(signed[0][0], SCORE.positive)]


@pytest.mark.parametrize("name", PALETTES)
def test_ramps_darken_steadily_from_near_white(name):
    palette = PALETTES[name]
    assert luminance(palette.weak) > 0.85
    for strong, sign in ((palette.positive, 1), (palette.negative, -1)):
        score = [sign * value / 20 for value in range(1, 21)]
        lines = strokes(draw("C" * 21, score, palette=palette))
        shades = [luminance(colour) for _, colour, _ in lines]
        assert all(a > b for a, b in pairwise(shades))
        assert lines[-1][1] == strong


def test_hues_of_truth_gate_and_score_differ():
    used = {SCORE.positive, SCORE.negative, SCORE.truth, SCORE.top, PALETTES["gate"].positive}
    assert len(used) == 5
    own = strokes(draw("CC", [1.0], palette=Palette(positive="#123456")))
    assert own[0][1] == "#123456"


def test_true_bonds_alone_are_full_lines():
    truth = [False, True, True, False, False, False, True]
    lines = strokes(draw(TOLUENE, bond_truth=truth))
    assert [note for note, _, _ in lines] == [
        "C1-C2, aromatic, true",
        "C2-C3, aromatic, true",
        "C6-C1, aromatic, true",
    ]
    assert {colour for _, colour, _ in lines} == {SCORE.truth}


def test_true_and_best_bonds_with_scores_are_outlines_behind_them():
    marks = {"bond_truth": torch.tensor([False, True]), "bond_top": [True, False]}
    picture = draw("CCC", [1.0, 0.5], legend=True, **marks)
    lines = strokes(picture)
    assert [colour for _, colour, _ in lines][:4] == [
        *(SCORE.truth, SCORE.weak, SCORE.top, SCORE.weak)
    ]
    assert lines[0][2] > lines[1][2] > lines[2][2] > lines[3][2] > lines[4][2]
    assert lines[0][0] == "C1-C2, single, score 0.5, true"
    assert lines[2][0] == "C0-C1, single, score 1"
    texts = [text.text for text in ElementTree.fromstring(picture.svg).iter(f"{NS}text")]
    assert texts[-2:] == ["best bonds", "true bonds"]


def test_atoms_are_discs_with_a_scale_of_their_own():
    picture = draw("CCO", [0.2, 0.1], atom_score=torch.tensor([0.0, -4.0, 2.0]), legend=True)
    root = ElementTree.fromstring(picture.svg)
    discs = [p for p in root.iter(f"{NS}path") if p.get("class", "").startswith("disc ")]
    assert [disc.findtext(f"{NS}title") for disc in discs] == ["O2, score 2", "C1, score -4"]
    assert discs[1].get("fill") == SCORE.negative
    texts = [text.text for text in root.iter(f"{NS}text")]
    assert texts == ["bond score", "0", "0.2", "atom score", "−4", "4"]
    with pytest.raises(DrawError, match=r"`atom_score` must have 3 numbers, one per node \(got 2"):
        draw("CCO", [0.2, 0.1], atom_score=[1.0, 2.0], num_nodes=3)
    with pytest.raises(MoleculeError, match="it has 3 atoms, the graph 2 nodes"):
        draw("CCO", [0.2, 0.1], atom_score=[1.0, 2.0])


def test_bands_lie_on_their_bonds():
    root = ElementTree.fromstring(draw("CCC(C)CC", [1.0, 2.0, 3.0, 4.0, 5.0]).svg)
    drawn = {}
    for path in root.iter(f"{NS}path"):
        if re.match(r"bond-(\d+) ", path.get("class", "")):  # RDKit's own line
            drawn[path.findtext(f"{NS}title")] = points(path)
    found = {band.findtext(f"{NS}title"): points(band) for band in bands(root)}
    assert found.keys() == drawn.keys()
    for note, ends in found.items():
        assert sum(ends, ()) == pytest.approx(sum(drawn[note], ()), abs=0.11), note


def test_every_bond_tells_its_atoms_and_score():
    svg = draw("C[C@H](N)C(=O)O", [0.1, 0.2, 0.3, 0.4, 0.5]).svg
    for note in (
        "C0-C1, single, score 0.1",
        "C1-N2, single, score 0.2",
        "C3-O4, double, score 0.4",
    ):
        assert f"<title>{note}</title></path>" in svg


def test_png_shows_the_same_colours():
    image = pytest.importorskip("PIL.Image")
    data = draw(TOLUENE, [0, 1, 0, 0, 0, 0, 0], size=(200, 150)).png(scale=1)
    picture = image.open(BytesIO(data)).convert("RGB")
    assert picture.size == (200, 150)
    assert picture.getpixel((0, 0)) == (255, 255, 255)
    count = sum(pixel == (0xD5, 0x5E, 0x00) for pixel in picture.get_flattened_data())
    assert count > 40
    bare = image.open(BytesIO(draw(TOLUENE, size=(200, 150), background=None).png()))
    assert bare.convert("RGBA").getpixel((0, 0))[3] == 0


def test_scores_that_do_not_fit_are_explained():
    with pytest.raises(DrawError, match=r"must have 7 numbers, one per bond \(got 3\)"):
        draw(TOLUENE, [1.0, 2.0, 3.0])
    with pytest.raises(DrawError, match="Merge the two directed edges"):
        draw(TOLUENE, torch.ones(14))
    with pytest.raises(DrawError, match=r"0-1 again.*undirected=True"):
        draw_graph(torch.tensor([[0, 1], [1, 0]]), [1.0, 2.0], smiles="CC")
    with pytest.raises(DrawError, match=r"`bond_index` must hold node numbers of shape \[2, M\]"):
        draw_graph(torch.tensor([0, 1]), [1.0])
    with pytest.raises(DrawError, match=r"got nan at bond 2, and 1 of 7"):
        draw(TOLUENE, [0, 0, float("nan"), 0, 0, 0, 0])
    with pytest.raises(DrawError, match=r"`bond_truth` must be a mask of 7 booleans"):
        draw(TOLUENE, bond_truth=[0, 3])
    with pytest.raises(DrawError, match=r"`bond_top` must be a mask of 7 .*shape \(3,\)"):
        draw(TOLUENE, bond_top=[True] * 3)
    with pytest.raises(ConfigError, match=r"'gate'\] or a Palette \(got 'rainbow'\)"):
        draw(TOLUENE, palette="rainbow")
    with pytest.raises(ConfigError, match=r"'#rrggbb' \(got 'white'\)"):
        draw(TOLUENE, background="white")
    with pytest.raises(MoleculeError, match="unclosed ring"):
        draw_graph(torch.tensor([[0], [1]]), smiles="c1cc")


def test_single_atom_is_drawn():
    assert draw("C", []).svg.endswith("</svg>")
    alone = draw("[Na+]", atom_score=[1.0])
    assert "disc atom-0" in alone.svg


@pytest.mark.parametrize("size", [(-5, 10), (0, 10), (10.5, 10), (10,), 7])
def test_impossible_sizes_are_refused(size):
    with pytest.raises(ConfigError, match=r"`size` must be width and height .* \(got "):
        draw("CC", size=size)


def test_size_must_leave_room_beside_title_and_legend():
    assert draw("CC", [1.0], size=(30, 30)).size == (30, 30)
    with pytest.raises(ConfigError, match=r"at least 68 pixels high .* \(got \(90, 60\)"):
        draw("CC", [1.0], size=(90, 60), title="ethane", legend=True)


def test_plain_graphs_are_laid_out_the_same_every_time():
    pytest.importorskip("networkx")
    ends = torch.tensor([[0, 1, 2, 3, 0, 5], [1, 2, 3, 0, 4, 6]])  # two parts
    first = draw_graph(ends, torch.arange(6.0), size=(300, 200), root=2)
    assert first.svg == draw_graph(ends, torch.arange(6.0), size=(300, 200), root=2).svg
    root = ElementTree.fromstring(first.svg)
    assert [note for note, _, _ in strokes(first)] == [
        *("1-2, score 1", "2-3, score 2", "3-0, score 3", "0-4, score 4", "5-6, score 5")
    ]
    numbers = [text.text for text in root.iter(f"{NS}text")]
    assert numbers[:7] == [str(node) for node in range(7)]
    assert sum(path.get("class") == "root" for path in root.iter(f"{NS}path")) == 1
    for path in bands(root):
        assert all(0 < x < 300 and 0 < y < 200 for x, y in points(path))
    lonely = draw_graph(torch.zeros(2, 0, dtype=torch.long), num_nodes=1)
    assert lonely.svg.endswith("</svg>")


def test_graph_without_smiles_is_drawn_from_its_atoms_and_bonds():
    bonds = [(0, 1, 1), (1, 2, 2), (0, 3, 1), (0, 4, 4), (0, 5, 1), (0, 6, 1)]
    mol = unchecked_molecule(["C", "N", "O", "H", "C", "F", "Unk"], bonds)  # six bonds at a carbon
    index = torch.tensor([bond[:2] for bond in bonds]).t()
    root = ElementTree.fromstring(draw_graph(index, torch.ones(6), molecule=mol).svg)
    assert len(bands(root)) == 6
