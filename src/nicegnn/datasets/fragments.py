"""Pieces of generated molecules, and how often each is drawn."""

from __future__ import annotations

# fmt: off
# Ring systems and how often each is drawn. About one in four holds a benzene ring, so that half
# of the molecules have none; every rule also meets its near misses (azaindole for indole,
# pyridine for benzene, pyridone, whose C=O is aromatic, for carbonyl).
RINGS: dict[str, int] = {
    # benzene, naphthalene, quinoline, indole, carbazole (holds two indoles)
    "c1ccccc1": 20, "c1ccc2ccccc2c1": 4, "c1ccc2ncccc2c1": 4, "c1ccc2[nH]ccc2c1": 13,
    "c1ccc2c(c1)[nH]c1ccccc12": 2,
    # benzimidazole, benzofuran, indoline, benzazepine
    "c1ccc2[nH]cnc2c1": 4, "c1ccc2occc2c1": 3, "c1ccc2NCCc2c1": 4, "c1ccc2NCCCCc2c1": 2,
    # 7-azaindole, naphthyridine, thienothiophene, pyridine, pyrimidine, pyridone
    "c1cnc2[nH]ccc2c1": 8, "c1cnc2ncccc2c1": 4, "c1cc2ccsc2s1": 4,
    "c1ccncc1": 14, "c1cncnc1": 10, "O=c1cccc[nH]1": 5,
    # pyrrole, furan, thiophene, pyrazole, thiazole
    "c1cc[nH]c1": 8, "c1ccoc1": 8, "c1ccsc1": 8, "c1cn[nH]c1": 8, "c1cscn1": 7,
    # cyclohexane, cyclopentane, decalin, decahydroquinoline
    "C1CCCCC1": 10, "C1CCCC1": 8, "C1CCC2CCCCC2C1": 4, "C1CCC2NCCCC2C1": 5,
    # piperidine, piperazine, morpholine, pyrrolidine
    "C1CCNCC1": 11, "C1CNCCN1": 9, "C1COCCN1": 8, "C1CCNC1": 7,
    # cycloheptane, cyclooctane, azepane, diazepane
    "C1CCCCCC1": 5, "C1CCCCCCC1": 4, "C1CCCNCC1": 5, "C1CNCCNC1": 3,
}

# Linkers as (SMILES, one end, other end), drawn in either direction; "" is a direct bond.
LINKERS: dict[tuple[str, int, int], int] = {
    ("", 0, 0): 20, ("C", 0, 0): 12, ("CC", 0, 1): 8, ("CCC", 0, 2): 4, ("CCCCC", 0, 4): 3,
    ("O", 0, 0): 6, ("CO", 0, 1): 6, ("CCOCC", 0, 4): 3, ("S", 0, 0): 3,
    ("N", 0, 0): 6, ("CN", 0, 1): 6, ("CCN", 0, 2): 3,
    ("C(=O)", 0, 0): 5, ("C(=O)O", 0, 2): 4, ("C(=O)N", 0, 2): 12, ("CC(=O)N", 0, 3): 5,
    ("NC(=O)N", 0, 3): 4, ("S(=O)(=O)", 0, 0): 3, ("S(=O)(=O)N", 0, 3): 8,
}

# Substituents, attached by their first atom.
SUBSTITUENTS: dict[str, int] = {
    "F": 24, "Cl": 9, "Br": 4, "C(F)(F)F": 10, "OC(F)(F)F": 2,
    "C": 12, "CC": 5, "C(C)C": 5, "C(C)(C)C": 3, "CCCC": 4, "CCCCCC": 2,
    "O": 7, "OC": 9, "OCC": 4, "COC": 3, "N": 5, "N(C)C": 4, "CN(C)C": 3,
    "[N+](=O)[O-]": 4, "C#N": 5, "S(C)(=O)=O": 4, "SC": 2,
    "C(C)=O": 6, "C(=O)O": 5, "C(=O)OCC": 3, "C(N)=O": 5, "NC(C)=O": 5,
}
ON_CARBON = ("C#N", "C(=O)O")  # not stable, or not usual, on nitrogen
NUM_SYSTEMS = {1: 12, 2: 28, 3: 30, 4: 20, 5: 10}  # ring systems of a molecule
# fmt: on
