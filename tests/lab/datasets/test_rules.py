"""Labels and true bonds of the rules: hand-made molecules, then every published row."""

import csv
import gzip
import json
import os
from pathlib import Path

import pytest

pytest.importorskip("rdkit", reason="needs RDKit: pip install 'nicegnn[molecules]'")

from nicegnn.errors import ConfigError
from nicegnn.molecule.smiles import parse_smiles
from nicegnn_lab.datasets.rules import (
    GROUPS,
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


@pytest.mark.parametrize("smiles", ["C1CCCCC1", "c1ccncc1", "C1=CC=CC1", "C"])
def test_rings_other_than_benzene_are_negative(smiles):
    assert truth_of(smiles, "benzene") == MoleculeTruth(0)
    assert truth_of(smiles, "benzene").union == frozenset()


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


@pytest.mark.parametrize("smiles", ["CC(C)=O", "CCF", "O=c1cccc[nH]1.CF", "FC=S", "CS(C)(=O)=O"])
def test_fluoride_carbonyl_needs_both_groups(smiles):
    assert truth_of(smiles, "fluoride-carbonyl").label == 0


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


@pytest.mark.parametrize("task", sorted(GROUPS))
def test_truth_does_not_depend_on_atom_order(task):
    from rdkit import Chem

    for smiles in (
        "O=C(CF)CCCN1CCCCCC1c1ccc2[nH]c(-c3ccccc3)cc2c1",
        "C1CC2CCCC1CC2C(=O)CCCF",
    ):
        truth = truth_of(smiles, task)
        orders = Chem.MolToRandomSmilesVect(parse_smiles(smiles), 8, randomSeed=1)
        for order in orders:
            other = truth_of(order, task)
            assert other.label == truth.label
            assert sorted(sizes(other)) == sorted(sizes(truth))
            assert len(other.union) == len(truth.union)


def test_unknown_task_lists_the_known_ones():
    with pytest.raises(ConfigError, match=r"benzene.*alkane-carbonyl.*got 'benzen'"):
        truth_of("C", "benzen")


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


def numbers(text: str) -> frozenset[int]:
    return frozenset(map(int, text.split()))


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
