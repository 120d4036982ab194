"""What bonds and parts of molecules are called: labelled bonds, the most specific name first."""

from __future__ import annotations

import pytest

from nicegnn.errors import ConfigError
from nicegnn.molecule.smiles import parse_smiles
from nicegnn.screening.fragments import bond_groups, find_patterns, fragments_of, ring_systems

pytest.importorskip("rdkit", reason="needs RDKit")

#: A SMILES, the two atoms of a bond, its name.
LABELLED = """
O=[N+]([O-])c1ccc(N)cc1           1  3   nitro group
O=[N+]([O-])c1ccc(N)cc1           0  1   nitro group
O=[N+]([O-])c1ccc(N)cc1           6  7   aromatic amine
O=Nc1ccccc1                       1  2   nitroso group
CN(C)N=O                          1  3   nitrosamine
CN(C)N=O                          0  1   chain on nitrosamine
CN(C)c1ccccc1                     1  3   aromatic amine
CN(C)CC                           0  1   aliphatic amine
C[N+](C)(C)C                      0  1   ammonium group
C[NH3+]                           0  1   ammonium group
CC(=O)Nc1ccc(O)cc1                1  3   amide
CC(=O)Nc1ccc(O)cc1                3  4   link between amide and benzene ring
CC(=O)Nc1ccc(O)cc1                7  8   phenol
CC(=O)Nc1ccc(O)cc1                4  5   benzene ring
c1ccccc1N=Nc1ccccc1               6  7   azo group
[N-]=[N+]=NC                      0  1   azide
N#[N+]c1ccccc1                    1  2   diazonium group
c1ccccc1NN                        6  7   hydrazine
c1ccccc1NO                        6  7   hydroxylamine
CC(=O)OC(C)=O                     1  3   acid anhydride
CC(=O)Cl                          1  3   acid chloride
O=C(O)c1ccccc1                    1  2   carboxylic acid
CCOC(=O)c1ccccc1                  2  3   ester
NC(=O)OC                          1  3   carbamate
O=C1CCCO1                         0  1   lactone
O=C1CCCN1                         1  5   lactam
O=C(Nc1ccccc1)Nc1ccccc1           1  2   urea
CS(=O)(=O)Nc1ccccc1               1  4   sulfonamide
C[S+]([O-])C                      1  2   sulfoxide
C1CO1                             1  2   epoxide
C1CN1                             1  2   aziridine
CC#N                              1  2   nitrile
CN=C=O                            1  2   isocyanate
N=C(N)N                           0  1   guanidine
CC(=N)N                           1  2   amidine
CSSC                              1  2   disulfide
COOC                              1  2   peroxide
CSC                               0  1   thioether
COc1ccccc1                        1  2   aromatic ether
COC                               0  1   ether
OCC                               0  1   alcohol
CC=O                              1  2   aldehyde
CC(C)=O                           1  3   ketone
c1ccccc1C(F)(F)F                  6  7   trifluoromethyl
Clc1ccccc1                        0  1   aromatic halide
ClCC                              0  1   aliphatic halide
ClC=C                             0  1   vinyl halide
c1ccc2ncccc2c1                    3  4   quinoline ring
c1ccc2ncccc2c1                    3  8   fusion bond of quinoline ring
c1ccccc1-c1ccccc1                 5  6   link between benzene ring and benzene ring
CCCC                              1  2   carbon chain
N[Pt](N)(Cl)Cl                    0  1   N-Pt bond
"""


@pytest.mark.parametrize("line", LABELLED.strip().splitlines())
def test_a_bond_has_its_most_specific_name(line: str) -> None:
    smiles, first, second, name = line.split(maxsplit=3)
    mol = parse_smiles(smiles)
    bond = mol.GetBondBetweenAtoms(int(first), int(second))
    assert bond_groups(mol)[bond.GetIdx()] == name


def parts(smiles: str) -> dict[tuple[str, str], set[frozenset[int]]]:
    found: dict[tuple[str, str], set[frozenset[int]]] = {}
    for one in fragments_of(parse_smiles(smiles)):
        found.setdefault((one.kind, one.name), set()).add(one.bonds)
    return found


def test_paracetamol_has_its_groups_rings_and_pieces() -> None:
    found = parts("CC(=O)Nc1ccc(O)cc1")
    assert found["group", "amide"] == {frozenset({0, 1, 2})}
    assert found["group", "phenol"] == {frozenset({7})}
    assert found["ring system", "c1ccccc1"] == {frozenset({4, 5, 6, 8, 9, 10})}
    assert ("BRICS", "CC=O") in found
    assert bond_groups(parse_smiles("CC(=O)Nc1ccc(O)cc1"))[0] == "amide"


def test_rings_that_share_atoms_are_one_system() -> None:
    spiro, biphenyl = "C1CCC2(C1)CC2", "c1ccccc1-c1ccccc1"
    assert [len(system) for system in ring_systems(parse_smiles(spiro))] == [7]
    assert [len(system) for system in ring_systems(parse_smiles(biphenyl))] == [6, 6]
    assert bond_groups(parse_smiles(biphenyl))[5] == "link between benzene ring and benzene ring"


def test_patterns_are_names_or_smarts() -> None:
    assert set(find_patterns(("amide", "halogen=[F,Cl]"))) == {"amide", "halogen"}
    for word in ("nope", "x=[C"):
        with pytest.raises(ConfigError, match="substructure"):
            find_patterns((word,))
