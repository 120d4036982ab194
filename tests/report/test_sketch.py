"""Drawings as numbers: points, labels and bonds of molecules known by heart."""

from __future__ import annotations

import math

import pytest

from nicegnn.datasets import molecule_tables, parse_smiles
from nicegnn.report.sketch import UNIT, Sketch, sketch


def drawn(smiles: str) -> Sketch:
    atoms, bonds = molecule_tables(parse_smiles(smiles))
    return sketch(smiles, atoms, bonds)


def test_ring_has_every_second_bond_double_and_all_bonds_of_one_length() -> None:
    found = drawn("c1ccccc1")
    assert [kind for _, _, kind in found.bonds].count(2) == 3
    assert found.labels == []
    for u, v, _ in found.bonds:
        assert math.dist(found.points[u], found.points[v]) == pytest.approx(UNIT, abs=2)


@pytest.mark.parametrize(
    ("smiles", "texts"),
    [
        ("CCN", {"NH₂", "H₂N"}),
        ("CC(=O)[O-]", {"O", "O⁻"}),
        ("C[N+](C)(C)C", {"N⁺"}),
        ("[Ca+2]", {"Ca²⁺"}),
        ("C", {"CH₄", "H₄C"}),
        ("CC", set()),
    ],
)
def test_labels_show_what_is_not_plain_carbon(smiles: str, texts: set[str]) -> None:
    found = {text for _, text, _ in drawn(smiles).labels}
    assert found <= texts
    assert bool(found) == bool(texts)


def test_hydrogens_stand_where_there_is_room() -> None:
    for smiles in ("CCN", "NCC", "OCCCO", "CC(N)C(O)C"):
        found = drawn(smiles)
        for atom, text, side in found.labels:
            (neighbour,) = [v if u == atom else u for u, v, _ in found.bonds if atom in (u, v)]
            if found.points[neighbour][0] > found.points[atom][0]:
                assert side == -1
                assert text.startswith("H")
            elif found.points[neighbour][0] < found.points[atom][0]:
                assert side == 1
                assert not text.startswith("H")


def test_bonds_keep_the_order_of_the_scores() -> None:
    atoms, bonds = molecule_tables(parse_smiles("Cc1ccccc1C(=O)O"))
    for order in (bonds, bonds[::-1], [(v, u, kind) for u, v, kind in bonds]):
        found = sketch("Cc1ccccc1C(=O)O", atoms, order)
        assert found.is_molecule
        assert [bond[:2] for bond in found.bonds] == [bond[:2] for bond in order]


def test_graph_without_smiles_is_nodes_and_links() -> None:
    found = sketch("", ["C", "N", "O", "H"], [(0, 1, 1), (1, 2, 2), (0, 3, 1)])
    assert not found.is_molecule
    assert found.labels == [(1, "N", 0), (2, "O", 0), (3, "H", 0)]
    assert len(set(found.points)) == 4
    assert found.bonds == [(0, 1, 1), (1, 2, 2), (0, 3, 1)]


def test_smiles_of_another_graph_is_not_drawn() -> None:
    bonds = [(0, 1, 1), (0, 2, 1), (0, 3, 1)]
    assert not sketch("CCCC", ["C"] * 4, bonds).is_molecule
    assert not sketch("not a molecule", ["C"] * 4, bonds).is_molecule


def test_strange_graphs_can_be_drawn() -> None:
    assert sketch("", ["Unk"], []).points == [(0, 0)]
    clique = [(u, v, 1) for u in range(6) for v in range(u)]
    assert len(sketch("", ["C"] * 6, clique).points) == 6
    apart = sketch("", ["C"] * 4, [(0, 1, 4), (2, 3, 3)])
    assert len(set(apart.points)) == 4


def test_plain_values_are_flat() -> None:
    found = sketch("", ["C", "N"], [(0, 1, 1)]).to_dict()
    assert len(found["xy"]) == 4
    assert found["atoms"] == "C N"
    assert found["bonds"] == [0, 1, 1]
    assert found["chem"] == 0
