"""What bonds and parts of molecules are called: labelled bonds, the most specific name first."""

from __future__ import annotations

import re

import pytest

from nicegnn.errors import ConfigError
from nicegnn.molecule.smiles import parse_smiles
from nicegnn.screening.fragments import bond_groups, find_patterns

pytest.importorskip("rdkit", reason="needs RDKit")

#: A SMILES and the names of its bonds, in RDKit's order, given by hand.
LABELLED = """
O=[N+]([O-])c1ccc(N)cc1  3 nitro group; 3 benzene ring; aromatic amine; 3 benzene ring
O=Nc1ccccc1  2 nitroso group; 6 benzene ring
CN(C)N=O  2 chain on nitrosamine; 2 nitrosamine
CN(C)c1ccccc1  3 aromatic amine; 6 benzene ring
CN(C)CC  3 aliphatic amine; carbon chain
C[N+](C)(C)C  4 ammonium group
C[NH3+]  ammonium group
c1ccccc1N=Nc1ccccc1  5 benzene ring; 3 azo group; 7 benzene ring
[N-]=[N+]=NC  3 azide
N#[N+]c1ccccc1  2 diazonium group; 6 benzene ring
c1ccccc1NN  5 benzene ring; link between benzene ring and hydrazine; hydrazine; benzene ring
CC(=O)OC(C)=O  6 acid anhydride
CC(=O)Cl  3 acid chloride
O=C(O)c1ccccc1  3 carboxylic acid; 6 benzene ring
CCOC(=O)c1ccccc1  carbon chain; 4 ester; 6 benzene ring
NC(=O)OC  4 carbamate
O=C1CCCO1  2 lactone; 2 tetrahydrofuran ring; 2 lactone
O=C1CCCN1  2 lactam; 3 pyrrolidine ring; lactam
CS(=O)(=O)Nc1ccccc1  4 sulfonamide; link between benzene ring and sulfonamide; 6 benzene ring
C[S+]([O-])C  3 sulfoxide
C1CO1  3 epoxide
C1CN1  3 aziridine
CC#N  2 nitrile
CN=C=O  3 isocyanate
N=C(N)N  3 guanidine
CC(=N)N  3 amidine
CSSC  chain on disulfide; disulfide; chain on disulfide
COOC  chain on peroxide; peroxide; chain on peroxide
CSC  2 thioether
COc1ccccc1  2 aromatic ether; 6 benzene ring
COC  2 ether
OCC  alcohol; carbon chain
CC=O  2 aldehyde
CC(C)=O  3 ketone
c1ccccc1C(F)(F)F  5 benzene ring; 4 trifluoromethyl; benzene ring
Clc1ccccc1  aromatic halide; 6 benzene ring
ClCC  aliphatic halide; carbon chain
ClC=C  vinyl halide; alkene
c1ccc2ncccc2c1  10 quinoline ring; fusion bond of quinoline ring
CCCC  3 carbon chain
N[Pt](N)(Cl)Cl  2 N-Pt bond; 2 Cl-Pt bond
CC(=O)Oc1ccccc1C(=O)O  4 ester; 5 benzene ring; 3 carboxylic acid; benzene ring
C=CCOc1ccccc1C#N  alkene; carbon chain; 2 aromatic ether; 5 benzene ring; 2 nitrile; benzene ring
O=C(NO)c1ccccc1  4 hydroxamic acid; 6 benzene ring
CN(N=O)C(=O)NC  chain on nitrosamine; 2 nitrosamine; 3 urea; chain on urea
COc1ccc(S(=O)(=O)OC)cc1  2 aromatic ether; 3 benzene ring; 5 sulfonate ester; 3 benzene ring
FC(F)(F)c1ccc(N=C=S)cc1  4 trifluoromethyl; 3 benzene ring; 3 isothiocyanate; 3 benzene ring
OB(O)c1ccccc1  3 boronic acid; 6 benzene ring
CS(=O)(=O)c1ccccc1  4 sulfone; 6 benzene ring
[O-][n+]1ccccc1  N-oxide; 6 pyridine ring
N#CC(=C)C(=O)OC  2 nitrile; alkene; 4 ester
CC(=O)SC  4 thioester
C1=CCC=C1  5 cyclopentadiene ring
CC(=O)n1ccnc1  3 amide; 5 imidazole ring
Nc1ncnc2[nH]cnc12  aromatic amine; 9 purine ring; fusion bond of purine ring
O=c1cc[nH]c(=O)[nH]1  ring carbonyl; 4 pyrimidine ring; ring carbonyl; 2 pyrimidine ring
CNc1ccccc1  2 aromatic amine; 6 benzene ring
COc1ccc(OC(C)=O)cc1  2 aromatic ether; 3 benzene ring; 4 ester; 3 benzene ring
O=c1ccc2ccccc2o1  ring carbonyl; 10 coumarin ring; fusion bond of coumarin ring
O=c1ccoc2ccccc12  ring carbonyl; 10 chromone ring; fusion bond of chromone ring
COP(=O)(OC)C  chain on phosphonate; 3 phosphonate; chain on phosphonate; phosphonate
O=c1cc[nH]c2ccccc12  ring carbonyl; 10 4-quinolone ring; fusion bond of 4-quinolone ring
"""


@pytest.mark.parametrize("line", LABELLED.strip().splitlines())
def test_bonds_have_their_most_specific_names(line: str) -> None:
    smiles, _, told = line.partition("  ")
    names: list[str] = []
    for run in told.split("; "):
        times, name = re.fullmatch(r"(?:(\d+) )?(.+)", run).groups()  # type: ignore[union-attr]
        names += [name] * int(times or 1)
    assert bond_groups(parse_smiles(smiles)) == names


def test_patterns_are_names_or_smarts() -> None:
    assert set(find_patterns(("amide", "halogen=[F,Cl]"))) == {"amide", "halogen"}
    for word in ("nope", "x=[C"):
        with pytest.raises(ConfigError, match="substructure"):
            find_patterns((word,))
