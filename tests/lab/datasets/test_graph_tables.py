"""Tables of atoms and bonds: what is refused, and graphs against those of the parsed SMILES."""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch

from nicegnn.molecule.featurizers import FEATURIZERS
from nicegnn.molecule.smiles import ATOMS, MoleculeError
from nicegnn_lab import load_dataset
from nicegnn_lab.datasets.graph_tables import (
    ATOMS_BXAIC,
    ATOMS_MUTAGENICITY,
    atom_columns,
    check_bonds,
)


def test_unknown_elements_are_named_or_go_to_a_last_column() -> None:
    with pytest.raises(MoleculeError, match=r"must be among C O .*got 'Si'.*append 'Unk'"):
        atom_columns(["C", "Si"], ATOMS_MUTAGENICITY)
    assert atom_columns(["C", "Si"], ATOMS_BXAIC) == [0, 10]
    assert atom_columns(["C", "Si"], ATOMS) == [0, 13]
    with pytest.raises(MoleculeError, match="at least one atom"):
        atom_columns([], ATOMS)


@pytest.mark.parametrize(
    ("bonds", "message"),
    [
        ([(0, 2, 1)], r"two of the atoms 0 to 1, once.*\(got 0-2:1\)"),
        ([(0, 1, 5)], r"with the type 1, 2, 3 or 4 .*\(got 0-1:5\)"),
        ([(0, 1, 1), (1, 0, 1)], r"got 1-0:1"),
        ([(1, 1, 1)], r"got 1-1:1"),
    ],
)
def test_bad_bonds_are_refused(bonds: Any, message: str) -> None:
    with pytest.raises(MoleculeError, match=message):
        check_bonds(bonds, 2)


@pytest.mark.skipif("NICEGNN_DATA" not in os.environ, reason="NICEGNN_DATA names no folder")
def test_published_tables_equal_the_parsed_smiles() -> None:
    for data in load_dataset("alkane-carbonyl"):
        parsed = FEATURIZERS["elements"](data.smiles)
        for key in ("x", "edge_index", "edge_attr"):
            assert torch.equal(data[key], parsed[key]), data.smiles
