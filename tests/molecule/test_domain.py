"""How near a molecule is to training molecules, by hand numbers, and as it is stored."""

from __future__ import annotations

import pytest

from nicegnn.errors import StoreError
from nicegnn.molecule.domain import INSIDE, Domain
from nicegnn.molecule.smiles import parse_smiles

DataStructs = pytest.importorskip("rdkit.DataStructs", reason="needs RDKit")
SMILES = ["CCO", "CCCO", "CCCCO", "CCCCCO", "OCc1ccccc1", "CCc1ccccc1"]


@pytest.fixture
def domain() -> Domain:
    return Domain.of(SMILES)


def test_similarity_is_tanimoto_to_the_nearest_molecule(domain: Domain) -> None:
    from rdkit.Chem.rdFingerprintGenerator import GetMorganGenerator

    prints = GetMorganGenerator(radius=2, fpSize=1024)
    mol = parse_smiles("CCCCCCO")
    own = prints.GetFingerprint(mol)
    others = [prints.GetFingerprint(parse_smiles(one)) for one in SMILES]
    expected = max(DataStructs.TanimotoSimilarity(own, one) for one in others)
    assert domain.nearness(mol).similarity == pytest.approx(expected, abs=1e-3)
    assert domain.nearness(parse_smiles("CCO")).similarity == 1


def test_new_elements_stand_before_new_neighbours(domain: Domain) -> None:
    assert domain.nearness(parse_smiles("CCCO")).words == INSIDE
    found = domain.nearness(parse_smiles("CC(C)[Si]O"))
    assert found.is_far
    assert found.words.startswith("no training molecule holds Si; ")
    assert "its nearest training molecule is far" in found.words
    charged = domain.nearness(parse_smiles("CC[O-]"))
    assert "O-2(-C)" in charged.words


def test_domain_is_stored_and_read_back(domain: Domain) -> None:
    again = Domain.from_tensors(domain.tensors(), domain.facts())
    mol = parse_smiles("CCN")
    assert again.nearness(mol) == domain.nearness(mol)
    with pytest.raises(StoreError, match="1024 bits"):
        Domain.from_tensors({"fingerprints": domain.fingerprints[:, :5]}, domain.facts())
