"""Generated molecules of ring systems, linkers and substituents, with labels and true bonds.

They need no download. The same seed and RDKit version give the same molecules on every platform.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import islice
from typing import Any, NamedTuple, TypeVar

import torch
from torch_geometric.data import Data

from nicegnn.config import check_choice
from nicegnn.errors import ConfigError, NicegnnError
from nicegnn.molecule.smiles import (
    graph_from_tables,
    molecule_tables,
    parse_smiles,
    require_rdkit,
)
from nicegnn_lab.datasets.rules import MoleculeTruth, truth_of

#: Tasks with enough molecules of both labels among a few thousand.
GENERATED_TASKS = ("benzene", "indole", "rings-count", "rings-max", "fluoride-carbonyl")

SIZE_STEP = 3  # positives and negatives are paired within this many atoms

MIN_ATOMS, MAX_ATOMS = 8, 45  # heavy atoms of a generated molecule
MAX_DRAWS_PER_MOLECULE = 60  # draws before generation gives up

T = TypeVar("T")

# fmt: off
# Ring systems and how often each is drawn. About one in four holds a benzene ring, so that half
# of the molecules have none; every rule also meets its near misses (azaindole for indole,
# pyridine for benzene, pyridone, whose C=O is aromatic, for carbonyl).
_RINGS: dict[str, int] = {
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
_LINKERS: dict[tuple[str, int, int], int] = {
    ("", 0, 0): 20, ("C", 0, 0): 12, ("CC", 0, 1): 8, ("CCC", 0, 2): 4, ("CCCCC", 0, 4): 3,
    ("O", 0, 0): 6, ("CO", 0, 1): 6, ("CCOCC", 0, 4): 3, ("S", 0, 0): 3,
    ("N", 0, 0): 6, ("CN", 0, 1): 6, ("CCN", 0, 2): 3,
    ("C(=O)", 0, 0): 5, ("C(=O)O", 0, 2): 4, ("C(=O)N", 0, 2): 12, ("CC(=O)N", 0, 3): 5,
    ("NC(=O)N", 0, 3): 4, ("S(=O)(=O)", 0, 0): 3, ("S(=O)(=O)N", 0, 3): 8,
}

# Substituents, attached by their first atom.
_SUBSTITUENTS: dict[str, int] = {
    "F": 24, "Cl": 9, "Br": 4, "C(F)(F)F": 10, "OC(F)(F)F": 2,
    "C": 12, "CC": 5, "C(C)C": 5, "C(C)(C)C": 3, "CCCC": 4, "CCCCCC": 2,
    "O": 7, "OC": 9, "OCC": 4, "COC": 3, "N": 5, "N(C)C": 4, "CN(C)C": 3,
    "[N+](=O)[O-]": 4, "C#N": 5, "S(C)(=O)=O": 4, "SC": 2,
    "C(C)=O": 6, "C(=O)O": 5, "C(=O)OCC": 3, "C(N)=O": 5, "NC(C)=O": 5,
}
_ON_CARBON = ("C#N", "C(=O)O")  # not stable, or not usual, on nitrogen
_NUM_SYSTEMS = {1: 12, 2: 28, 3: 30, 4: 20, 5: 10}  # ring systems of a molecule
# fmt: on


class GenerationError(NicegnnError, RuntimeError):
    """Too few molecules were found within the allowed number of draws."""


class _Fragment(NamedTuple):
    mol: Any  # RDKit molecule
    sites: tuple[int, ...]  # atoms with a hydrogen


class _Labelled(NamedTuple):
    smiles: str
    mol: Any  # RDKit molecule
    truth: MoleculeTruth


def generate_smiles(num: int, *, seed: int = 0) -> list[str]:
    """Returns ``num`` distinct canonical SMILES of 8 to 45 heavy atoms.

    A smaller ``num`` with the same seed gives the beginning of the same list. Raises
    `GenerationError` if too few are found.

    >>> generate_smiles(2) == generate_smiles(3)[:2]
    True
    """
    _check_num(num)
    smiles = list(islice(_distinct_smiles(random.Random(seed), num), num))
    if len(smiles) < num:
        raise GenerationError(
            f"`num` must be at most {len(smiles)} for seed {seed} (got {num}). Generate fewer "
            "molecules, or join several seeds."
        )
    return smiles


def _check_num(num: int) -> None:
    if num < 0:
        raise ConfigError(f"`num` must be at least 0 (got {num}).")


def generate_dataset(task: str, num: int, *, seed: int = 0) -> list[Data]:
    """Returns ``num`` labelled molecule graphs with their true bonds.

    Half of the labels are 1. Every positive has a negative whose size differs by less than
    `SIZE_STEP` atoms, so that the size does not tell the label.

    Each graph has ``x``, ``edge_index``, ``edge_attr`` and ``smiles`` as of `Elements`, and

    * ``y``: label, long ``[1]``;
    * ``edge_truth``: bool ``[E]``, edges of the union of all alternatives, all false for label 0;
    * ``edge_alternatives``: a list of lists of edge numbers of this graph, one list per
      alternative, ``[]`` for label 0. In a PyG ``Batch`` it becomes a list with one such entry per
      graph.

    Raises `GenerationError` if too few molecules are found.
    """
    check_choice("task", task, GENERATED_TASKS)
    _check_num(num)
    rng = random.Random(seed)
    parsed = ((smiles, parse_smiles(smiles)) for smiles in _distinct_smiles(rng, num))
    labelled = (_Labelled(smiles, mol, truth_of(mol, task)) for smiles, mol in parsed)
    chosen = _paired(labelled, num)
    rng.shuffle(chosen)  # pairs would otherwise stand next to each other
    if len(chosen) < num:
        raise GenerationError(
            f"`num` must be at most {len(chosen)} for {task!r} and seed {seed} (got {num}). "
            "Generate fewer graphs, or join several seeds."
        )
    return [_graph(item) for item in chosen]


def _paired(labelled: Iterator[_Labelled], num: int) -> list[_Labelled]:
    """Returns ``num`` molecules in pairs of a positive and a negative of similar size."""
    waiting: dict[tuple[int, int], list[_Labelled]] = defaultdict(list)  # (size class, label)
    chosen: list[_Labelled] = []
    for item in labelled:
        size_class, label = item.mol.GetNumAtoms() // SIZE_STEP, item.truth.label
        partners = waiting[size_class, 1 - label]
        if partners:
            chosen += [partners.pop(0), item]
        else:
            waiting[size_class, label].append(item)
        if len(chosen) >= num:
            break
    return chosen[:num]


def _graph(item: _Labelled) -> Data:
    data = graph_from_tables(*molecule_tables(item.mol), smiles=item.smiles)
    data.y = torch.tensor([item.truth.label])
    edges = [
        [edge for bond in sorted(bonds) for edge in (2 * bond, 2 * bond + 1)]
        for bonds in item.truth.alternatives
    ]
    data.edge_truth = torch.zeros(data.num_edges, dtype=torch.bool)  # [E]
    for alternative in edges:
        data.edge_truth[alternative] = True
    data.edge_alternatives = edges
    return data


def _distinct_smiles(rng: random.Random, num: int) -> Iterator[str]:
    """Yields distinct molecules until the draws allowed for ``num`` of them are used up."""
    seen: set[str] = set()
    for _ in range(MAX_DRAWS_PER_MOLECULE * (num + 100)):
        smiles = _assemble(rng)
        if smiles is not None and smiles not in seen:
            seen.add(smiles)
            yield smiles


def _assemble(rng: random.Random) -> str | None:
    """One molecule: ring systems joined by linkers, then substituents up to a drawn size."""
    chem = require_rdkit()
    mol = chem.RWMol()
    sites: list[int] = []
    _add(mol, sites, _fragment(_draw(rng, _RINGS)))
    num_systems = _draw(rng, _NUM_SYSTEMS)
    target = rng.randint(6 + 4 * num_systems, 12 + 8 * num_systems)
    for _ in range(num_systems - 1):
        _add_ring(mol, sites, rng)
    for _ in range(20):
        if mol.GetNumAtoms() >= target:
            break
        text = _draw(rng, _SUBSTITUENTS)
        part = _fragment(text)
        site = _site(mol, sites, part.mol.GetAtomWithIdx(0), rng)
        if site is None or (text in _ON_CARBON and mol.GetAtomWithIdx(site).GetAtomicNum() != 6):
            continue
        if mol.GetNumAtoms() + part.mol.GetNumAtoms() <= MAX_ATOMS:
            _add(mol, None, part, 0, site)
            sites.remove(site)
    if not MIN_ATOMS <= mol.GetNumAtoms() <= MAX_ATOMS:
        return None
    chem.SanitizeMol(mol)
    # Reading the string again fixes aromaticity and hydrogens as a user will see them.
    return str(chem.MolToSmiles(parse_smiles(chem.MolToSmiles(mol))))


def _add_ring(mol: Any, sites: list[int], rng: random.Random) -> None:
    """Adds a drawn ring system through a drawn linker, if their ends may be bonded."""
    ring = _fragment(_draw(rng, _RINGS))
    text, head, tail = _draw(rng, _LINKERS)
    if rng.random() < 0.5:
        head, tail = tail, head
    if text:
        linker = _fragment(text)
        start = _site(mol, sites, linker.mol.GetAtomWithIdx(head), rng)
        end = _site(ring.mol, ring.sites, linker.mol.GetAtomWithIdx(tail), rng)
    else:
        start = rng.choice(sites) if sites else None
        end = None if start is None else _site(ring.mol, ring.sites, mol.GetAtomWithIdx(start), rng)
    if start is None or end is None:
        return
    sites.remove(start)
    if text:
        start = _add(mol, None, linker, head, start) + tail
        if not _may_bond(mol.GetAtomWithIdx(start), ring.mol.GetAtomWithIdx(end)):
            return  # only the linker is added: with the ring it would be an aminal
    offset = _add(mol, sites, ring, end, start)
    sites.remove(offset + end)


def _add(
    mol: Any, sites: list[int] | None, part: _Fragment, head: int = 0, site: int | None = None
) -> int:
    """Copies a fragment into ``mol``, bonds its atom ``head`` to ``site``; returns its offset."""
    offset = int(mol.GetNumAtoms())
    mol.InsertMol(part.mol)
    if sites is not None:
        sites.extend(offset + atom for atom in part.sites)
    if site is not None:
        mol.AddBond(site, offset + head, require_rdkit().BondType.SINGLE)
        for index in (site, offset + head):
            mol.GetAtomWithIdx(index).SetNumExplicitHs(0)  # written out on aromatic nitrogen only
    return offset


def _site(mol: Any, sites: Sequence[int], other: Any, rng: random.Random) -> int | None:
    """Returns a random site that may be bonded to the atom ``other``."""
    shuffled = rng.sample(sites, len(sites))
    return next((s for s in shuffled if _may_bond(mol.GetAtomWithIdx(s), other)), None)


def _may_bond(a: Any, b: Any) -> bool:
    """Forbids bonds between heteroatoms except sulfonyl S-N, and aminals such as N-CH2-O."""
    light, heavy = sorted((a, b), key=lambda atom: int(atom.GetAtomicNum()))
    if light.GetAtomicNum() == 6:
        has_carbons_only = all(atom.GetAtomicNum() == 6 for atom in light.GetNeighbors())
        return heavy.GetAtomicNum() == 6 or has_carbons_only or _is_unsaturated(light)
    return light.GetAtomicNum() == 7 and heavy.GetAtomicNum() == 16 and _is_unsaturated(heavy)


def _is_unsaturated(atom: Any) -> bool:
    return any(bond.GetBondTypeAsDouble() > 1 for bond in atom.GetBonds())


def _draw(rng: random.Random, weights: dict[T, int]) -> T:
    return rng.choices(list(weights), list(weights.values()))[0]


@cache
def _fragment(smiles: str) -> _Fragment:
    mol = parse_smiles(smiles)
    sites = tuple(atom.GetIdx() for atom in mol.GetAtoms() if atom.GetTotalNumHs())
    return _Fragment(mol, sites)
