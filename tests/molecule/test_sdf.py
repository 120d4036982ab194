"""SDF entries: RDKit reads names, fields and lists of numbers back."""

from __future__ import annotations

import math

import pytest

from nicegnn.molecule.sdf import sdf_entry
from nicegnn.molecule.smiles import MoleculeError, parse_smiles

Chem = pytest.importorskip("rdkit.Chem", reason="needs RDKit")


def test_long_lists_and_odd_words_are_read_back() -> None:
    mol = parse_smiles("C" * 90)
    atoms = [number / 7 for number in range(90)]
    bonds = [math.nan, None, *(-number / 3 for number in range(87))]
    fields = {"a <b>": "two\nlines", "empty": ""}
    text = sdf_entry(mol, "a\n$$$$\nname", fields, {"score": atoms}, {"loss": bonds})
    assert max(map(len, text.splitlines())) <= 200
    supplier = Chem.SDMolSupplier()
    supplier.SetData(text)
    (found,) = supplier
    assert found.GetProp("_Name") == "a $$$$ name"
    assert found.GetProp("a (b)") == "two lines"
    assert found.GetAtomWithIdx(80).GetDoubleProp("score") == pytest.approx(80 / 7, rel=1e-5)
    assert not found.GetBondWithIdx(0).HasProp("loss")
    assert found.GetBondWithIdx(88).GetDoubleProp("loss") == pytest.approx(-86 / 3, rel=1e-5)


def test_words_cannot_end_an_entry() -> None:
    supplier = Chem.SDMolSupplier()
    supplier.SetData(sdf_entry(parse_smiles("CO"), "$$$$", {"a": "$$$$", "b": "> <a>"}) * 2)
    assert [mol.GetProp("b") for mol in supplier] == ["> <a>"] * 2


def test_numbers_of_another_molecule_are_refused() -> None:
    with pytest.raises(MoleculeError, match=r"`bonds\['score'\]` .* 1 in all \(got 3\)"):
        sdf_entry(parse_smiles("CO"), bonds={"score": [1.0, 2.0, 3.0]})
