"""Molecules of the ChEMBL pool under a rule: groups, rings and counts, with their true bonds."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch_geometric.data import Data

from nicegnn.molecule.featurizers import FEATURIZERS
from nicegnn.molecule.smiles import bond_ends, parse_smiles, require_rdkit
from nicegnn.seeding import mix
from nicegnn_lab.datasets.data_files import DamagedFileError, data_file
from nicegnn_lab.datasets.readers import shuffled

FILE_NAME = "chembl_pool.csv.gz"
_READ = 120_000  # molecules among which matches are looked for
_MOST_ATOMS = 45  # larger molecules are left out

#: Rules by name: a SMARTS, and how many matches with different atoms a molecule of label 1 has at
#: least. True are the bonds of all matches that the pattern draws.
RULES: dict[str, tuple[str, int]] = {
    "nitrile": ("[CX2]#[NX1]", 1),
    "aldehyde": ("[CX3H1](=O)[#6]", 1),
    "nitro": ("[N+](=O)[O-]", 1),
    "acid": ("[CX3](=O)[OX2H1]", 1),
    "primary-amide": ("[CX3](=O)[NX3H2]", 1),
    "ester": ("[#6][CX3](=O)[OX2;!$([OX2][CX3](=O)[#7,#8])][#6;!$([#6]=O)]", 1),
    "ketone": ("[#6][CX3](=O)[#6]", 1),
    "sulfonamide": ("[SX4](=O)(=O)[NX3]", 1),
    "sulfone": ("[#6][SX4](=O)(=O)[#6]", 1),
    "urea": ("[NX3][CX3](=O)[NX3]", 1),
    "carbamate": ("[OX2][CX3](=O)[NX3]", 1),
    "trifluoromethyl": ("[CX4](F)(F)F", 1),
    "methoxy": ("[#6][OX2][CH3]", 1),
    "phenol": ("c[OX2H]", 1),
    "aniline": ("c[NX3H2]", 1),
    "dimethylamine": ("[CH3][NX3][CH3]", 1),
    "thioether": ("[#6][SX2][#6]", 1),
    "hydrazone": ("[CX3]=[NX2][NX3]", 1),
    "amidine": ("[NX3][CX3]=[NX2]", 1),
    "aryl-chloride": ("cCl", 1),
    "aryl-bromide": ("cBr", 1),
    "alkyne": ("[CX2]#[CX2]", 1),
    "oxime": ("[CX3]=[NX2][OX2]", 1),
    "morpholine": ("C1COCCN1", 1),
    "piperazine": ("C1CNCCN1", 1),
    "pyridine": ("c1ccncc1", 1),
    "thiophene": ("c1ccsc1", 1),
    "furan": ("c1ccoc1", 1),
    "imidazole": ("c1cncn1", 1),
    "thiazole": ("c1cscn1", 1),
    "pyrimidine": ("c1cncnc1", 1),
    "cyclopropane": ("C1CC1", 1),
    "benzodioxole": ("c1ccc2OCOc2c1", 1),
    "tetrazole": ("c1nnnn1", 1),
    "two-amides": ("[#6][CX3](=O)[NX3]", 2),
    "two-fluorines": ("[#6]F", 2),
    "three-hydroxyls": ("[#6][OX2H]", 3),
    "two-aryl-halides": ("c[F,Cl,Br]", 2),
}


def is_put_aside(name: str) -> bool:
    """Whether a rule is looked at once, at the end: written before any rule was looked at.

    >>> sum(is_put_aside(name) for name in RULES), len(RULES)
    (19, 38)
    """
    order = sorted(RULES, key=lambda rule: mix("wide bench", rule))
    return name in order[: len(order) // 2]


def graphs_under(rule: str, most: int, seed: int, root: str | Path | None = None) -> list[Data]:
    """Returns at most `most` molecules of each label of a rule, shuffled by the seed.

    A graph has ``y``; ``edge_truth``, bool ``[E]``; and ``copies``, its number of matches.
    """
    smarts, least = RULES[rule]
    chem = require_rdkit()
    pattern = chem.MolFromSmarts(smarts)
    pool = _pool(data_file(FILE_NAME, root))
    order = shuffled(len(pool), mix(seed, "wide"))[:_READ]  # the same for all rules
    graphs: dict[int, list[Data]] = {0: [], 1: []}
    for place in order:
        if min(len(graphs[0]), len(graphs[1])) >= most:
            break
        mol = parse_smiles(pool[place])
        matches = mol.GetSubstructMatches(pattern)
        label = int(len(matches) >= least)
        if len(graphs[label]) < most:
            graphs[label].append(_graph(pool[place], label, matches, pattern))
    num = min(most, *map(len, graphs.values()))
    drawn = [*graphs[0][:num], *graphs[1][:num]]
    return [drawn[n] for n in shuffled(len(drawn), mix(seed, "wide", rule))]


def _graph(smiles: str, label: int, matches: Sequence[Sequence[int]], pattern: Any) -> Data:
    graph, drawn = FEATURIZERS["elements"](smiles), bond_ends(pattern)
    pairs = {frozenset((match[u], match[v])) for match in matches for u, v in drawn if label}
    ends = graph.edge_index.t().tolist()
    graph.edge_truth = torch.tensor([frozenset(pair) in pairs for pair in ends], dtype=torch.bool)
    graph.y = torch.tensor([label])
    graph.copies = torch.tensor([_apart(matches) if label else 0])
    return graph


def _apart(matches: Sequence[Sequence[int]]) -> int:
    """Returns how many matches share no atom with an earlier one."""
    seen: set[int] = set()
    number = 0
    for match in matches:
        if seen.isdisjoint(match):
            seen.update(match)
            number += 1
    return number


@cache
def _pool(path: Path) -> list[str]:
    try:
        pool = pd.read_csv(path, usecols=["smiles", "n_atoms"], keep_default_na=False)
    except ValueError as error:
        raise DamagedFileError(f"{path} must have the columns smiles and n_atoms.") from error
    return pool["smiles"][pool["n_atoms"] <= _MOST_ATOMS].tolist()
