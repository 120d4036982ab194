"""Generated molecules with labels and true bonds: a benchmark without a download.

The same seed and RDKit version give the same molecules on every platform.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator
from itertools import islice
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch_geometric.data import Data

from nicegnn.errors import ConfigError
from nicegnn.molecule.generated import GenerationError, check_num, distinct_smiles
from nicegnn.molecule.smiles import graph_from_tables, molecule_tables, parse_smiles
from nicegnn_lab.datasets.rules import MoleculeTruth, truth_of

#: Tasks with enough molecules of both labels among a few thousand.
GENERATED_TASKS = ("benzene", "indole", "rings-count", "rings-max", "fluoride-carbonyl")

SIZE_STEP = 3  # positives and negatives are paired within this many atoms


class _Labelled(NamedTuple):
    smiles: str
    mol: Any  # RDKit molecule
    truth: MoleculeTruth


def generate_dataset(task: str, num: int, *, seed: int = 0, balance: bool = True) -> list[Data]:
    """Returns ``num`` labelled molecule graphs with their true bonds.

    Each graph has ``x``, ``edge_index``, ``edge_attr`` and ``smiles`` as in `molecule_graph`, and

    * ``y``: label, long ``[1]``;
    * ``edge_truth``: bool ``[E]``, edges of the union of all alternatives, all false for label 0;
    * ``edge_alternatives``: a list of lists of edge numbers of this graph, one list per
      alternative, ``[]`` for label 0. In a PyG ``Batch`` it becomes a list with one such entry per
      graph. `alternatives_mask` turns one entry into a bool tensor ``[A, E]``.

    Args:
        task: one of `GENERATED_TASKS`.
        balance: pair every positive with a negative whose size differs by less than `SIZE_STEP`
            atoms, so that half of the labels are 1 and the size does not tell the label.

    Raises `GenerationError` if too few molecules are found.
    """
    if task not in GENERATED_TASKS:
        raise ConfigError(
            f"`task` must be one of {GENERATED_TASKS} (got {task!r}). For other rules, apply "
            "`truth_of` to the molecules of `generate_smiles`."
        )
    check_num(num)
    rng = random.Random(seed)
    parsed = ((smiles, parse_smiles(smiles)) for smiles in distinct_smiles(rng, num))
    labelled = (_Labelled(smiles, mol, truth_of(mol, task)) for smiles, mol in parsed)
    if balance:
        chosen = _paired(labelled, num)
        rng.shuffle(chosen)  # pairs would otherwise stand next to each other
    else:
        chosen = list(islice(labelled, num))
    if len(chosen) < num:
        raise GenerationError(
            f"`num` must be at most {len(chosen)} for {task!r} and seed {seed} (got {num}). "
            "Generate fewer graphs, pass balance=False, or join several seeds."
        )
    return [_graph(item) for item in chosen]


def alternatives_mask(edge_alternatives: list[list[int]], num_edges: int) -> Tensor:
    """Returns one row per alternative explanation, true at its edges: bool ``[A, E]``.

    >>> alternatives_mask([[0, 1], [2, 3]], 4).tolist()
    [[True, True, False, False], [False, False, True, True]]
    """
    mask = torch.zeros(len(edge_alternatives), num_edges, dtype=torch.bool)
    for row, edges in enumerate(edge_alternatives):
        mask[row, edges] = True
    return mask


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
    data.edge_truth = alternatives_mask(edges, data.num_edges).any(dim=0)  # [E]
    data.edge_alternatives = edges
    return data
