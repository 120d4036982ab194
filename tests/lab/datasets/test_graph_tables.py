"""Tables of atoms and bonds to graphs, against those of the parsed SMILES."""

from __future__ import annotations

import csv
import gzip
import os
from pathlib import Path
from typing import Any

import pytest
import torch

from nicegnn.errors import ConfigError
from nicegnn.molecule.featurizers import FEATURIZERS
from nicegnn.molecule.smiles import MoleculeError
from nicegnn_lab.datasets.graph_tables import ATOMS_BXAIC, ATOMS_MUTAGENICITY, graph_from_tables


def test_unknown_elements_are_named_or_go_to_a_last_column() -> None:
    atoms, bonds = ["C", "Si"], [(0, 1, 1)]
    with pytest.raises(MoleculeError, match=r"Atom 1 must .*got 'Si'.*unknown='last'"):
        graph_from_tables(atoms, bonds)
    found = graph_from_tables(atoms, bonds, vocabulary=ATOMS_BXAIC, unknown="last")
    assert found.x.argmax(1).tolist() == [0, 10]
    for words, match in (
        ({"vocabulary": ATOMS_MUTAGENICITY, "unknown": "last"}, "got 'Ca'"),
        ({"unknown": "drop"}, r"`unknown` must be one of .* \(got 'drop'"),
    ):
        with pytest.raises(ConfigError, match=match):
            graph_from_tables(atoms, bonds, **words)


@pytest.mark.parametrize(
    ("atoms", "bonds", "message"),
    [
        ([], [], "at least one atom"),
        (["C", "C"], [(0, 2, 1)], r"`bonds\[0\]` must join atoms from 0 to 1 \(got 0 and 2"),
        (["C", "C"], [(0, 1, 5)], r"`bonds\[0\]` must have the type 1, 2, 3 or 4"),
        (["C", "C"], [(0, 1, 1), (1, 0, 1)], r"`bonds\[1\]`.*got 1 and 0 again"),
        (["C", "C"], [(1, 1, 1)], r"`bonds\[0\]`.*got 1 and 1"),
    ],
)
def test_bad_tables_are_refused(atoms: Any, bonds: Any, message: str) -> None:
    with pytest.raises(MoleculeError, match=message):
        graph_from_tables(atoms, bonds)


@pytest.mark.parametrize(
    "name", ["graphxai_benzene", "graphxai_alkane_carbonyl", "graphxai_fluoride_carbonyl"]
)
def test_published_tables_equal_the_parsed_smiles(name: str) -> None:
    folder = os.environ.get("NICEGNN_DATA")
    path = Path(folder or ".") / f"{name}.csv.gz"
    if folder is None or not path.exists():
        pytest.skip("set NICEGNN_DATA to a folder with the published data files")
    with gzip.open(path, "rt") as file:
        rows = list(csv.DictReader(file))[::10]
    for row in rows:
        ends = [bond.replace(":", "-").split("-") for bond in row["bonds"].split()]
        bonds = [(int(u), int(v), int(t)) for u, v, t in ends]
        table = graph_from_tables(row["atoms"].split(), bonds)
        parsed = FEATURIZERS["elements"](row["smiles"])
        for key in ("x", "edge_index", "edge_attr"):
            assert torch.equal(table[key], parsed[key]), row["smiles"]
