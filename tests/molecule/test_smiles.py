"""SMILES and tables to graphs, against graphs written down by hand and the published tables."""

import csv
import gzip
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from nicegnn.errors import ConfigError
from nicegnn.molecule.featurizers import Elements
from nicegnn.molecule.smiles import (
    ATOMS_BXAIC,
    ATOMS_GRAPHXAI,
    ATOMS_MUTAGENICITY,
    MoleculeError,
    graph_from_tables,
    parse_smiles,
)

rdkit = pytest.importorskip("rdkit", reason="needs RDKit: pip install 'nicegnn[molecules]'")


ELEMENTS = Elements(unknown="error")


def test_graphs_by_hand():
    data = ELEMENTS("C=O")
    assert data.edge_index.tolist() == [[0, 1], [1, 0]]
    assert data.edge_attr.tolist() == [[0, 1, 0, 0], [0, 1, 0, 0]]
    assert data.x.argmax(1).tolist() == [ATOMS_GRAPHXAI.index("C"), ATOMS_GRAPHXAI.index("O")]
    toluene = ELEMENTS("Cc1ccccc1")
    ring = [(1, 2), (2, 3), (3, 4), (4, 5), (5, 6), (6, 1)]
    expected = [pair for u, v in [(0, 1), *ring] for pair in ((u, v), (v, u))]
    assert list(map(tuple, toluene.edge_index.t().tolist())) == expected
    assert toluene.edge_attr.argmax(1).tolist() == [0, 0] + [3] * 12
    assert ELEMENTS("C#N").edge_attr.argmax(1).tolist() == [2, 2]
    alone = ELEMENTS("C")
    assert [tuple(alone[key].shape) for key in ("x", "edge_index", "edge_attr")] == [
        *((1, 14), (2, 0), (0, 4))
    ]


def test_unknown_elements_are_named_or_go_to_a_last_column():
    with pytest.raises(MoleculeError, match=r"Atom 1 must .*got 'Si'.*unknown='last'"):
        ELEMENTS("C[Si](C)C")
    assert Elements(ATOMS_BXAIC)("C[Si](C)C").x.argmax(1).tolist() == [0, 10, 0, 0]
    with pytest.raises(ConfigError, match="got 'Ca'"):
        Elements(ATOMS_MUTAGENICITY)("C[Si](C)C")
    with pytest.raises(
        ConfigError, match=r"`unknown` must be one of \('error', 'last'\) \(got 'drop'"
    ):
        Elements(unknown="drop")("C")


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
def test_bad_tables_are_refused(atoms, bonds, message):
    with pytest.raises(MoleculeError, match=message):
        graph_from_tables(atoms, bonds)


@pytest.mark.parametrize(
    ("smiles", "reason"),
    [
        ("c1ccccc", "unclosed ring"),
        ("CC)C", r"extra close parentheses.*position 3"),
        ("CX", "syntax error"),
        ("C[N](C)(C)(C)C", "valence for atom # 1 N, 5"),
        ("c1cccc1", "kekulize"),
        ("", "at least one atom"),
        ("  ", "without spaces"),
        ("CCO ethanol", "without spaces"),
        ("\udcff", "of ASCII signs"),
        ("CÖ", "of ASCII signs"),
    ],
)
def test_bad_smiles_names_the_string_and_rdkits_reason(smiles, reason, capfd):
    with pytest.raises(MoleculeError, match=reason) as caught:
        parse_smiles(smiles)
    assert repr(smiles) in str(caught.value)
    assert capfd.readouterr() == ("", "")


def test_rdkit_stays_quiet_and_is_left_as_it_was(capfd):
    from rdkit import Chem, rdBase

    before = rdBase.LogStatus()
    with pytest.raises(MoleculeError):
        parse_smiles("C(")
    parse_smiles("CC.[H]")  # RDKit warns about the lone hydrogen
    assert rdBase.LogStatus() == before
    assert capfd.readouterr().err == ""
    assert Chem.MolFromSmiles("C(") is None
    assert "C(" in capfd.readouterr().err


def test_only_strings_are_parsed():
    with pytest.raises(MoleculeError, match="got Mol"):
        parse_smiles(parse_smiles("C"))


def test_unusual_bonds_are_refused():
    with pytest.raises(MoleculeError, match="DATIVE"):
        ELEMENTS("N->B")


def test_import_does_not_load_rdkit_or_plotting():
    code = (
        "import sys, nicegnn_lab.datasets, nicegnn.molecule.drawing\n"
        "print([m for m in ('rdkit', 'matplotlib', 'networkx') if m in sys.modules])\n"
        "from nicegnn.molecule.smiles import graph_from_tables\n"
        "graph_from_tables(['C'], [])\n"
        "print('rdkit' in sys.modules)"
    )
    blocked = (
        "import torch_geometric.data, sys; [sys.modules.pop(m, None) for m in list(sys.modules) "
    )
    blocked += "if m.split('.')[0] in ('rdkit', 'matplotlib', 'networkx')]\n"
    done = subprocess.run(
        [sys.executable, "-c", blocked + code], capture_output=True, text=True, check=True
    )
    assert done.stdout.split("\n")[:2] == ["[]", "False"]


def test_missing_rdkit_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "rdkit.Chem", None)
    with pytest.raises(ImportError, match=r"nicegnn\[molecules\]"):
        parse_smiles("C")


@pytest.mark.parametrize(
    "name", ["graphxai_benzene", "graphxai_alkane_carbonyl", "graphxai_fluoride_carbonyl"]
)
def test_published_tables_equal_the_parsed_smiles(name):
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
        parsed = ELEMENTS(row["smiles"])
        for key in ("x", "edge_index", "edge_attr"):
            assert torch.equal(table[key], parsed[key]), row["smiles"]
