"""Training, validation and test parts of molecules: at random, or by scaffold."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from nicegnn.molecule.smiles import parse_smiles, require_rdkit
from nicegnn.seeding import mix

#: Parts of a split, in the order of their codes.
PARTS = ("train", "valid", "test")
TRAIN, VALID, TEST = range(len(PARTS))


def part_sizes(num_graphs: int) -> tuple[int, int, int]:
    """Returns how many graphs go to train, valid and test: as in the paper, a tenth to the latter.

    >>> part_sizes(8671)
    (6935, 868, 868)
    """
    held_out = min(-(-num_graphs // 10), num_graphs // 2)
    return num_graphs - 2 * held_out, held_out, held_out


def random_split(twins: Iterable[object], seed: int) -> Tensor:
    """Returns the part of each graph, int8 ``[N]``, by a seed; equal ``twins`` stay together."""
    groups = members(twins)
    random.Random(mix("split", seed)).shuffle(groups)
    return _fill(groups, (TEST, VALID, TRAIN))


def scaffold_split(scaffolds: Iterable[str]) -> Tensor:
    """Returns the part of each graph, int8 ``[N]``, by scaffold; valid and test hold rare ones."""
    groups = sorted(members(scaffolds), key=lambda group: (-len(group), group[0]))
    return _fill(groups, (TRAIN, VALID, TEST))


def members(labels: Iterable[object]) -> list[list[int]]:
    groups: dict[object, list[int]] = defaultdict(list)
    for index, label in enumerate(labels):
        groups[label].append(index)
    return list(groups.values())


def _fill(groups: Sequence[Sequence[int]], order: Sequence[int]) -> Tensor:
    """Puts each group into the first part of ``order`` that has room for it, else into train."""
    room = [*part_sizes(sum(map(len, groups)))]
    part = torch.full((sum(room),), TRAIN, dtype=torch.int8)
    for group in groups:
        chosen = next((p for p in order if room[p] >= len(group)), TRAIN)
        room[chosen] -= len(group)
        part[group] = chosen
    return part


def scaffold_of(smiles: str) -> str:
    """Returns the Bemis-Murcko scaffold, ring systems and linkers, as SMILES; empty without rings.

    >>> scaffold_of("CCc1ccccc1O")
    'c1ccccc1'
    """
    murcko = require_rdkit("rdkit.Chem.Scaffolds.MurckoScaffold")
    return str(murcko.MurckoScaffoldSmiles(mol=parse_smiles(smiles)))
