"""SMILES to molecules and graphs, by hand; what RDKit refuses is named."""

import subprocess
import sys

import pytest

from nicegnn.molecule.featurizers import FEATURIZERS
from nicegnn.molecule.smiles import ATOMS, MoleculeError, parse_smiles

rdkit = pytest.importorskip("rdkit", reason="needs RDKit: pip install 'nicegnn[molecules]'")


def test_graphs_by_hand():
    data = FEATURIZERS["elements"]("C=O")
    assert data.edge_index.tolist() == [[0, 1], [1, 0]]
    assert data.edge_attr.tolist() == [[0, 1, 0, 0], [0, 1, 0, 0]]
    assert data.x.argmax(1).tolist() == [ATOMS.index("C"), ATOMS.index("O")]
    toluene = FEATURIZERS["elements"]("Cc1ccccc1")
    ring = [(1, 2), (2, 3), (3, 4), (4, 5), (5, 6), (6, 1)]
    expected = [pair for u, v in [(0, 1), *ring] for pair in ((u, v), (v, u))]
    assert list(map(tuple, toluene.edge_index.t().tolist())) == expected
    assert toluene.edge_attr.argmax(1).tolist() == [0, 0] + [3] * 12
    assert FEATURIZERS["elements"]("C#N").edge_attr.argmax(1).tolist() == [2, 2]
    assert FEATURIZERS["elements"]("C[Si]").x.argmax(1).tolist() == [0, len(ATOMS) - 1]
    alone = FEATURIZERS["elements"]("C")
    assert [tuple(alone[key].shape) for key in ("x", "edge_index", "edge_attr")] == [
        *((1, 14), (2, 0), (0, 4))
    ]
    with pytest.raises(MoleculeError, match="DATIVE"):
        FEATURIZERS["elements"]("N->B")


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
        (3, "got int 3"),
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


def test_import_does_not_load_rdkit_or_plotting():
    code = (
        "import torch_geometric.data, sys\n"
        "names = ('rdkit', 'matplotlib', 'networkx')\n"
        "[sys.modules.pop(m, None) for m in list(sys.modules) if m.split('.')[0] in names]\n"
        "import nicegnn_lab.datasets, nicegnn.molecule.drawing\n"
        "print([m for m in names if m in sys.modules])\n"
    )
    words = [sys.executable, "-c", code]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_missing_rdkit_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "rdkit.Chem", None)
    with pytest.raises(ImportError, match=r"nicegnn\[molecules\]"):
        parse_smiles("C")
