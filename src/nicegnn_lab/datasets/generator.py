"""Generated molecules: ring systems in a chain, with labels and true bonds.

They need no download. The same seed and RDKit version give the same molecules on every platform.
"""

import random
from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import TypeVar

import torch
from torch_geometric.data import Data

from nicegnn.config import check_choice
from nicegnn.errors import ConfigError, NicegnnError
from nicegnn.molecule.featurizers import FEATURIZERS
from nicegnn.molecule.smiles import parse_smiles, require_rdkit
from nicegnn_lab.datasets.rules import MoleculeTruth, truth_of

#: Tasks with enough molecules of both labels among a few thousand.
GENERATED_TASKS = ("benzene", "fluoride-carbonyl")

SIZE_STEP = 3  # positives and negatives are paired within this many atoms
MIN_ATOMS, MAX_ATOMS = 8, 45  # heavy atoms of a generated molecule
MAX_DRAWS_PER_MOLECULE = 60  # draws before generation gives up

T = TypeVar("T")

# fmt: off
# Ring systems and how often each is drawn. A ring is bonded by its first atom, and by `{}`, all of
# them carbon and none of them saturated beside a heteroatom. About one in four holds a benzene
# ring, so that half of the molecules have none; every rule also meets its near misses (azaindole
# for indole, pyridine for benzene, pyridone, whose C=O is aromatic, for carbonyl).
_RINGS: dict[str, int] = {
    # benzene, naphthalene, quinoline, indole, carbazole (holds two indoles)
    "c1cc({})cc({})c1": 20, "c1ccc2cc({})c({})cc2c1": 4, "c1cc2cc({})cnc2cc1{}": 4,
    "c1cc({})c2[nH]cc({})c2c1": 13, "c1ccc2c(c1)[nH]c1cc({})ccc12": 2,
    # benzimidazole, benzofuran, indoline, benzazepine
    "c1cc({})c2[nH]c({})nc2c1": 4, "c1cc({})c2oc({})cc2c1": 3, "c1cc({})c2NCCc2c1": 4,
    "c1cc({})c2NCCCCc2c1": 2,
    # 7-azaindole, naphthyridine, thienothiophene, pyridine, pyrimidine, pyridone
    "c1cnc2[nH]cc({})c2c1": 8, "c1cnc2ncc({})cc2c1": 4, "c1cc2cc({})sc2s1": 4,
    "c1cnc({})c({})c1": 14, "c1cnc({})nc1": 10, "c1cc({})c(=O)[nH]c1": 5,
    # pyrrole, furan, thiophene, pyrazole, thiazole
    "c1cc({})[nH]c1": 8, "c1coc({})c1": 8, "c1csc({})c1": 8, "c1cn[nH]c1{}": 8, "c1csc({})n1": 7,
    # cyclohexane, cyclopentane, decalin, decahydroquinoline
    "C1CC({})CC({})C1": 10, "C1CCC({})C1": 8, "C1CCC2CC({})CCC2C1": 4, "C1CCC2NCC({})CC2C1": 5,
    # piperidine, oxane, pyrrolidine, cycloheptane, cyclooctane, azepane, diazepane
    "C1CNCC({})C1": 14, "C1COCC({})C1": 9, "C1CCNC1": 7,
    "C1CCC({})CCC1": 5, "C1CCCC({})CCC1": 4, "C1CCNCC({})C1": 5, "C1CNCCNC1": 3,
}
_LINKERS: dict[str, int] = {
    "": 20, "C": 12, "CC": 8, "CCC": 4, "CCCCC": 3, "O": 6, "CO": 3, "OC": 3, "CCOCC": 3, "S": 3,
    "N": 6, "CN": 4, "NC": 5, "C(=O)": 5, "C(=O)O": 2, "OC(=O)": 2, "C(=O)N": 6, "NC(=O)": 6,
    "CC(=O)N": 5, "NC(=O)N": 4, "S(=O)(=O)": 3, "S(=O)(=O)N": 8,
}
_SUBSTITUENTS: dict[str, int] = {
    "": 90, "F": 24, "Cl": 9, "Br": 4, "C(F)(F)F": 10, "OC(F)(F)F": 2,
    "C": 12, "CC": 5, "C(C)C": 5, "C(C)(C)C": 3, "CCCC": 4, "CCCCCC": 2,
    "O": 7, "OC": 9, "OCC": 4, "COC": 3, "N": 5, "N(C)C": 4, "CN(C)C": 3,
    "[N+](=O)[O-]": 4, "C#N": 5, "S(C)(=O)=O": 4, "SC": 2,
    "C(C)=O": 6, "C(=O)O": 5, "C(=O)OCC": 3, "C(N)=O": 5, "NC(C)=O": 5,
}
_NUM_SYSTEMS = {1: 12, 2: 28, 3: 30, 4: 20, 5: 10}  # ring systems of a molecule
# fmt: on


class GenerationError(NicegnnError, RuntimeError):
    """Too few molecules were found within the allowed number of draws."""


def generate_smiles(num: int, *, seed: int = 0) -> list[str]:
    """Returns ``num`` distinct canonical SMILES of 8 to 45 heavy atoms.

    A smaller ``num`` with the same seed gives the beginning of the same list.
    """
    _check_num(num)
    smiles = list(islice(_distinct_smiles(random.Random(seed), num), num))
    return _enough(smiles, num, f"seed {seed}")


def _check_num(num: int) -> None:
    if num < 0:
        raise ConfigError(f"`num` must be at least 0 (got {num}).")


def _enough(found: list[T], num: int, what: str) -> list[T]:
    if len(found) < num:
        raise GenerationError(
            f"`num` must be at most {len(found)} for {what} (got {num}). Generate fewer molecules, "
            "or join several seeds."
        )
    return found


def generate_dataset(task: str, num: int, *, seed: int = 0) -> list[Data]:
    """Returns ``num`` labelled molecule graphs with their true bonds.

    Half of the labels are 1. Every positive has a negative whose size differs by less than
    `SIZE_STEP` atoms, so that the size does not tell the label.

    Each graph has ``x``, ``edge_index``, ``edge_attr`` and ``smiles`` as "elements" makes them, and

    * ``y``: label, long ``[1]``;
    * ``edge_truth``: bool ``[E]``, edges of the union of all alternatives, all false for label 0;
    * ``edge_alternatives``: a list of lists of edge numbers of this graph, one list per
      alternative, ``[]`` for label 0; in a PyG ``Batch`` a list with one such entry per graph.
    """
    check_choice("task", task, GENERATED_TASKS)
    _check_num(num)
    rng = random.Random(seed)
    labelled = ((smiles, truth_of(smiles, task)) for smiles in _distinct_smiles(rng, num))
    chosen = _paired(labelled, num)
    rng.shuffle(chosen)  # pairs would otherwise stand next to each other
    return [_graph(*item) for item in _enough(chosen, num, f"{task!r} and seed {seed}")]


def _paired(
    labelled: Iterator[tuple[str, MoleculeTruth]], num: int
) -> list[tuple[str, MoleculeTruth]]:
    """Returns ``num`` molecules in pairs of a positive and a negative of similar size."""
    waiting: dict[tuple[int, int], list[tuple[str, MoleculeTruth]]] = defaultdict(list)
    chosen: list[tuple[str, MoleculeTruth]] = []
    for smiles, truth in labelled:
        size_class = parse_smiles(smiles).GetNumAtoms() // SIZE_STEP
        partners = waiting[size_class, 1 - truth.label]
        if partners:
            chosen += [partners.pop(0), (smiles, truth)]
        else:
            waiting[size_class, truth.label].append((smiles, truth))
        if len(chosen) >= num:
            break
    return chosen[:num]


def _graph(smiles: str, truth: MoleculeTruth) -> Data:
    data = FEATURIZERS["elements"](smiles)
    data.y = torch.tensor([truth.label])
    data.edge_alternatives = [
        [edge for bond in sorted(bonds) for edge in (2 * bond, 2 * bond + 1)]
        for bonds in truth.alternatives
    ]
    data.edge_truth = torch.zeros(data.num_edges, dtype=torch.bool)  # [E]
    for edges in data.edge_alternatives:
        data.edge_truth[edges] = True
    return data


def _distinct_smiles(rng: random.Random, num: int) -> Iterator[str]:
    """Yields distinct molecules until the draws allowed for ``num`` of them are used up."""
    seen: set[str] = set()
    for _ in range(MAX_DRAWS_PER_MOLECULE * (num + 100)):
        mol = parse_smiles(_chain(rng))
        smiles = str(require_rdkit().MolToSmiles(mol))
        if smiles not in seen and MIN_ATOMS <= mol.GetNumAtoms() <= MAX_ATOMS:
            seen.add(smiles)
            yield smiles


def _chain(rng: random.Random) -> str:
    """Returns the SMILES of one molecule, written from the far end of its chain of rings."""
    chain = ""
    for number in range(_draw(rng, _NUM_SYSTEMS)):
        closures = str.maketrans({"1": f"%{10 + 2 * number}", "2": f"%{11 + 2 * number}"})
        ring = _draw(rng, _RINGS).replace("({})", "{}").translate(closures)
        bonded = [_draw(rng, _SUBSTITUENTS) for _ in range(ring.count("{}"))]
        if bonded and chain:
            bonded[rng.randrange(len(bonded))] = _draw(rng, _LINKERS) + chain
        elif chain:  # the ring has no place for another one
            continue
        chain = ring.format(*(f"({part})" if part else "" for part in bonded))
    return chain


def _draw(rng: random.Random, weights: Mapping[T, int]) -> T:
    return rng.choices(list(weights), list(weights.values()))[0]
