"""Pictures: colours and notes per bond and atom, and that they sit where they belong."""

import re
from io import BytesIO
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from torch_geometric.utils.smiles import from_rdmol

from nicegnn.errors import ConfigError
from nicegnn.molecule.drawing import (
    PALETTES,
    Palette,
    Panel,
    Picture,
    Ramp,
    draw_panels,
    shortened,
)
from nicegnn.molecule.smiles import MoleculeError, bond_ends, parse_smiles
from tests.molecule.seen import NS, fills, root_of, texts

Chem = pytest.importorskip("rdkit.Chem", reason="needs RDKit: pip install 'nicegnn[molecules]'")

TOLUENE = "Cc1ccccc1"
SCORE = PALETTES["score"]


def ends_of(smiles: str) -> torch.Tensor:
    """The two atoms of each bond in RDKit's order, ``[2, M]``."""
    return torch.tensor(bond_ends(parse_smiles(smiles))).view(-1, 2).t()


def draw(smiles: str, score=None, *, size=(320, 240), shown=None, **options) -> Picture:
    panel = Panel(ends_of(smiles), score, smiles=smiles, **(shown or {}))
    return draw_panels([panel], size=size, **options)


def luminance(colour: str) -> float:
    parts = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    linear = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return sum(weight * c for weight, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


@pytest.mark.parametrize("smiles", [TOLUENE, "CC(=O)Nc1ccc(O)cc1", "C1CC1.O=C=O"])
def test_bonds_of_any_order_keep_their_colours(smiles):
    """PyG sorts its edges by node, RDKit's bonds come as they were read."""
    read = ends_of(smiles)
    score = {frozenset(pair): 0.1 + k / 100 for k, pair in enumerate(read.t().tolist())}
    graph = from_rdmol(parse_smiles(smiles))
    one_way = graph.edge_index[:, graph.edge_index[0] > graph.edge_index[1]]
    ramp = Ramp(SCORE, 0.5)
    for ends in (read, one_way, read.flip(1), read.flip(0)):
        values = [score[frozenset(pair)] for pair in ends.t().tolist()]
        found = fills(draw_panels([Panel(ends, values, smiles=smiles)], limit=0.5))
        assert len(found) == len(score)
        for note, colour in found.items():
            u, v, told = re.match(r"[A-Z](\d+)-[A-Z](\d+), \w+, score ([\d.]+)", note).groups()
            own = score[frozenset((int(u), int(v)))]
            assert float(told) == pytest.approx(own, rel=1e-3)
            assert colour == ramp.colour(own)


def test_colours_lie_on_their_bonds_and_points_on_their_atoms():
    picture = draw("CCC(C)CC", [1.0, 2.0, 3.0, 4.0, 5.0])
    checked = 0
    for shape in root_of(picture).iter(f"{NS}path"):
        found = re.match(r"bond-(\d+) atom-(\d+) atom-(\d+)", shape.get("class", ""))
        if found and "fill:#" in shape.get("style"):
            numbers = [float(one) for one in re.findall(r"-?[\d.]+", shape.get("d"))]
            middle = [sum(own) / len(own) for own in (numbers[::2], numbers[1::2])]
            ends = [picture.points[int(atom)] for atom in found.groups()[1:]]
            wanted = [a + b for a, b in zip(*ends, strict=True)]  # drawn twice as large
            assert middle == pytest.approx(wanted, abs=12)
            checked += 1
    assert checked == 5


def test_signs_have_hues_and_nothing_stays_blank():
    shown = {"atom_score": torch.tensor([0.0, -4.0, 2.0])}
    found = fills(draw("CCO", [0.0, -2.0], shown=shown))
    assert found.keys() == {"C1-O2, single, score -2", "C1, score -4", "O2, score 2"}
    assert found["C1, score -4"] == SCORE.negative
    assert found["O2, score 2"] == Ramp(SCORE, 4.0, True).colour(2.0)  # one scale for both
    assert fills(draw("CCO", [-1.0, 1.0], signed=False)) == {
        "C1-O2, single, score 1": SCORE.positive
    }
    assert fills(draw(TOLUENE, [0.0] * 7)) == fills(draw(TOLUENE)) == {}
    assert len(fills(draw("CCC", [float("nan"), -1.0]))) == 1


def test_scores_are_relative_to_the_largest_or_to_a_limit():
    small, large = draw("CCO", [0.1, 0.2]), draw("CCO", [100.0, 200.0])
    assert [*fills(small).values()] == [*fills(large).values()]
    half = fills(draw("CCO", [0.5, 0.7], limit=1.4))
    assert half["C1-O2, single, score 0.7"] == Ramp(SCORE, 1.0).colour(0.5)


@pytest.mark.parametrize("palette", PALETTES.values())
def test_ramps_leave_the_ground_steadily(palette):
    ground = luminance(palette.ground)
    for sign, strong in ((1, palette.positive), (-1, palette.negative)):
        ramp = Ramp(palette, 20.0, signed=True)
        shades = [abs(luminance(ramp.colour(sign * k)) - ground) for k in range(1, 21)]
        assert all(a < b for a, b in pairwise(shades))
        assert ramp.colour(sign * 20.0) == strong


def test_title_legend_and_outlines_are_told():
    shown = {"truth": [False, True], "top": torch.tensor([True, False]), "title": "<b> & co"}
    picture = draw("CCC", [1.0, -0.5], legend="score", shown=shown)
    assert texts(picture) == ["<b> & co", "0", "1", "2", "score", "−1", "1"]
    assert picture.size == (320, 278)
    root = root_of(picture)
    assert root.get("viewBox") == "0 0 320 278"
    assert root.get("aria-label") == "<b> & co"
    assert not any("id" in element.attrib for element in root.iter())
    assert not list(root.iter(f"{NS}style"))
    strokes = [path.get("style", "") for path in root.iter(f"{NS}path")]
    assert sum(f"stroke:{SCORE.truth.upper()}" in style for style in strokes) == 1
    assert shortened("a" * 50 + "b" * 50, 100, 10) == "aaaaaaaaaaaa…bbbbb"


def test_atoms_are_numbered_as_words_number_them():
    picture = draw("CC(=O)O")
    assert texts(picture) == ["0", "1", "2", "3"]
    for text, (x, y) in zip(root_of(picture).iter(f"{NS}text"), picture.points, strict=True):
        away = abs(float(text.get("x")) - x) + abs(float(text.get("y")) - y)
        assert 5 < away < 35


def test_png_shows_the_same_colours(tmp_path: Path):
    image = pytest.importorskip("PIL.Image")
    picture = draw(TOLUENE, [0, 1, 0, 0, 0, 0, 0], size=(200, 150))
    seen = image.open(BytesIO(picture.png(scale=1))).convert("RGB")
    assert seen.size == (200, 150)
    assert seen.getpixel((0, 0)) == (255, 255, 255)
    assert sum(pixel == (0xD5, 0x5E, 0x00) for pixel in seen.get_flattened_data()) > 40
    bare = draw(TOLUENE, palette=Palette(ground=None)).png()
    assert image.open(BytesIO(bare)).convert("RGBA").getpixel((0, 0))[3] == 0
    for kind in ("svg", "png"):
        assert picture.save(tmp_path / f"a.{kind}").read_bytes()
    with pytest.raises(ConfigError, match=r"must end with .svg or .png"):
        picture.save(tmp_path / "a.pdf")
    with pytest.raises(ConfigError, match="`scale`"):
        picture.png(scale=0)


def test_hydrogens_that_are_nodes_are_drawn():
    graph = from_rdmol(Chem.AddHs(parse_smiles("CO")))
    one_way = graph.edge_index[:, graph.edge_index[0] < graph.edge_index[1]]
    found = fills(draw_panels([Panel(one_way, [1.0] * 5, smiles="CO", num_nodes=6)]))
    assert {note.split(",")[0] for note in found} == {"C0-O1", "C0-H2", "C0-H3", "C0-H4", "O1-H5"}


def test_plain_graphs_are_laid_out_the_same_every_time():
    pytest.importorskip("networkx")
    ends = torch.tensor([[0, 1, 2, 3, 0, 5, 6], [1, 2, 3, 0, 4, 6, 6]])  # two parts and a loop
    panel = Panel(ends, torch.arange(1.0, 8.0), root=2)
    picture = draw_panels([panel], size=(300, 200))
    assert picture.svg == draw_panels([panel], size=(300, 200)).svg
    told = enumerate(ends.t().tolist()[:6], start=1)
    assert {*fills(picture)} == {f"{u}-{v}, score {k}" for k, (u, v) in told}
    assert all(0 < x < 300 and 0 < y < 200 for x, y in picture.points)
    far = Panel(torch.tensor([[0, 70], [70, 99]]), [1.0, 2.0], num_nodes=100)
    assert len(draw_panels([far]).points) == 3  # lonely nodes of a large graph are left out
    chain = Panel(torch.stack([torch.arange(99), torch.arange(1, 100)]))
    assert "class='atom-" not in draw_panels([chain]).svg  # and no node has a letter
    none = Panel(torch.zeros(2, 0, dtype=torch.long), num_nodes=1)
    assert len(draw_panels([none]).points) == 1


def test_what_does_not_fit_is_named():
    star, twice = torch.tensor([[0, 0, 0], [1, 2, 3]]), torch.tensor([[0, 1], [1, 0]])
    odd, white = "(got ", Palette(ground="white")
    for panel, words, told in (
        (Panel(star, smiles="CCCC"), {}, "2 bond(s) such as 0-2 are only in the graph; 2 bond"),
        (Panel(star, smiles="CCCC", num_nodes=5), {}, "it has 4 atoms, the graph 5 nodes"),
        (Panel(twice, smiles="CC"), {}, "undirected=True"),
        (Panel(star), {"palette": "rainbow"}, "or a Palette (got 'rainbow')"),
        (Panel(star), {"palette": white}, "'#rrggbb' (got 'white')"),
        (Panel(star), {"limit": -1.0}, "`limit` must be a positive number (got -1.0)"),
        *((Panel(star), {"size": size}, odd) for size in [(-5, 10), (10.5, 10), (10,), 7]),
    ):
        with pytest.raises((ConfigError, MoleculeError), match=re.escape(told)):
            _ = draw_panels([panel], **words).svg
