"""Toxic groups of small graphs, and the bonds that they explain, by hand."""

import pytest

from nicegnn.datasets.rules.toxicophores import toxicophore_matches, toxicophore_truth


@pytest.mark.parametrize(
    ("atoms", "bonds", "expected"),
    [
        ("C N H H", [(0, 1), (1, 2), (1, 3)], [("NH2", {1, 2, 3})]),
        ("C N O O", [(0, 1), (1, 2), (1, 3)], [("NO2", {1, 2, 3})]),
        ("C N N C", [(0, 1), (1, 2), (2, 3)], [("azo", {1, 2})]),
        ("C Cl", [(0, 1)], []),  # not on a ring
        ("C C C C Cl", [(0, 1), (1, 2), (2, 3), (3, 0), (0, 4)], []),  # the ring is small
        ("C C C C C Cl", [(0, 1), (1, 2), (2, 3), (3, 4), (4, 0), (0, 5)], [("ring_halide", {5})]),
        ("C N N O", [(0, 1), (1, 2), (2, 3)], [("nitroso", {2, 3}), ("azo", {1, 2})]),
    ],
)  # fmt: skip
def test_toxic_groups_by_hand(atoms, bonds, expected):
    found = toxicophore_matches(atoms.split(), [(u, v, 1) for u, v in bonds])
    assert [(kind, set(members)) for kind, members in found] == expected


def test_every_bond_at_a_match_is_true():
    bonds = [(0, 1, 1), (1, 2, 1), (2, 3, 1), (3, 4, 1)]
    truth = toxicophore_truth(1, [frozenset({0}), frozenset({4})], bonds)
    assert truth.alternatives == ({0}, {3}, {0, 3})
    assert truth.atoms == {0, 4}
    assert toxicophore_truth(0, [frozenset({0})], bonds).alternatives == ()
