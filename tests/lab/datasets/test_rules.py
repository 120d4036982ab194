"""Labels and true bonds of the rules: hand-made molecules, then every published row."""

import csv
import gzip
import json
import os
from pathlib import Path

import pytest

pytest.importorskip("rdkit", reason="needs RDKit: pip install 'nicegnn[molecules]'")

from nicegnn_lab.datasets.rules import (
    MAX_ALTERNATIVES,
    MoleculeTruth,
    toxicophore_truth,
    truth_of,
    unions,
)
from scripts.published_data import toxicophore_matches


def sizes(truth: MoleculeTruth) -> list[int]:
    return [len(bonds) for bonds in truth.alternatives]


def test_toluene_is_explained_by_its_six_ring_bonds():
    truth = truth_of("Cc1ccccc1", "benzene")
    assert truth.label == 1
    assert truth.alternatives == (frozenset({1, 2, 3, 4, 5, 6}),)
    assert truth.union == {1, 2, 3, 4, 5, 6}
    assert truth.atoms == {1, 2, 3, 4, 5, 6}


@pytest.mark.parametrize(
    ("smiles", "expected"),
    [
        ("c1ccccc1-c1ccccc1", [6, 6, 13]),  # biphenyl: both rings hold the linking bond
        ("c1ccccc1Cc1ccccc1", [6, 6, 12]),  # diphenylmethane: the linker is outside
        ("c1ccc2ccccc2c1", [6, 6, 11]),  # naphthalene: one bond is shared
    ],
)
def test_two_benzene_rings_give_three_alternatives(smiles, expected):
    assert sizes(truth_of(smiles, "benzene")) == expected


def test_fluoride_carbonyl_by_hand():
    truth = truth_of("FCC(C)=O", "fluoride-carbonyl")  # bond 3 is C=O
    assert truth.alternatives == (frozenset({3}),)
    assert truth.atoms == {0, 2, 4}
    acyl = truth_of("CC(=O)F", "fluoride-carbonyl")  # here C-F has both ends in the set
    assert acyl.alternatives == (frozenset({1, 2}),)


def test_alkane_carbonyl_by_hand():
    truth = truth_of("CCOC(C)=O", "alkane-carbonyl")  # ethyl acetate: C-C-O and C=O
    assert truth.atoms == {0, 1, 2, 3, 5}
    assert truth.alternatives == (frozenset({0, 1, 2, 4}),)
    assert truth_of("CC(C)C=O", "alkane-carbonyl").label == 0  # every chain is branched
    assert truth_of("CCC1CC1C(C)=O", "alkane-carbonyl").label == 0  # the third atom is in a ring
    assert truth_of("CCCC", "alkane-carbonyl").label == 0


def test_many_combinations_are_cut_to_the_smallest_and_the_largest():
    thirteen = [frozenset({number}) for number in range(13)]  # 8191 combinations
    assert MAX_ALTERNATIVES < 2**13 - 1
    assert [len(union) for union in unions([thirteen])] == [1] * 13 + [13]
    assert len(unions([thirteen[:12]])) == 2**12 - 1
    perfluoro = "FC(F)(F)" + 5 * "C(F)(F)" + "C(C)=O"
    truth = truth_of(perfluoro, "fluoride-carbonyl")
    assert sizes(truth) == [1]
    assert len(truth.atoms) == 15


def published(name: str) -> list[dict[str, str]]:
    folder = os.environ.get("NICEGNN_DATA")
    path = Path(folder or ".") / f"{name}.csv.gz"
    if folder is None or not path.exists():
        pytest.skip("set NICEGNN_DATA to a folder with the published data files")
    with gzip.open(path, "rt") as file:
        return list(csv.DictReader(file))


def bond_ends(row: dict[str, str]) -> list[tuple[int, int]]:
    pairs = [bond.partition(":")[0].split("-") for bond in row["bonds"].split()]
    return [(int(u), int(v)) for u, v in pairs]


@pytest.mark.parametrize(
    ("name", "task"),  # the two carbonyl sets carry each other's name
    [
        ("benzene", "benzene"),
        ("alkane_carbonyl", "fluoride-carbonyl"),
        ("fluoride_carbonyl", "alkane-carbonyl"),
    ],
)
def test_every_graphxai_row_agrees(name, task):
    for row in published(f"graphxai_{name}"):
        truth = truth_of(row["smiles"], task)
        masks = [frozenset(mask) for mask in json.loads(row["masks"])]
        assert truth.label == int(row["label"]), row["smiles"]
        assert truth.atoms == frozenset().union(*masks), row["smiles"]
        ends = bond_ends(row)
        bonds = [
            frozenset(b for b, (u, v) in enumerate(ends) if u in mask and v in mask)
            for mask in masks
        ]
        assert set(truth.alternatives) == set(bonds), row["smiles"]
        assert truth.alternatives[:1] == tuple(bonds[:1]) or len(set(bonds)) == 1, row["smiles"]
        assert truth.union == (bonds[-1] if bonds else frozenset()), row["smiles"]


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
