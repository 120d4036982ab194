r"""Training, validation and test parts of a dataset.

Our splits never separate twins, and published splits never separate duplicates. As in the paper:
:math:`\lceil n / 10 \rceil` graphs each for test and validation, the rest for training.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from nicegnn.molecule.smiles import parse_smiles, require_rdkit
from nicegnn.seeding import mix

#: Parts of a split, in the order of their codes.
PARTS = ("train", "valid", "test")
TRAIN, VALID, TEST = range(len(PARTS))

_ROUNDS = 16  # of refinement: atoms at a larger distance are not compared
_Hash = npt.NDArray[np.uint64]


def part_sizes(num_graphs: int) -> tuple[int, int, int]:
    """Returns how many graphs go to train, valid and test.

    >>> part_sizes(8671)
    (6935, 868, 868)
    """
    held_out = min(-(-num_graphs // 10), num_graphs // 2)
    return num_graphs - 2 * held_out, held_out, held_out


def random_split(twin: Tensor, seed: int) -> Tensor:
    """Returns the part of each graph, int8 ``[N]``, by a seed; groups of ``twin`` stay together."""
    groups = _members(twin.tolist())
    random.Random(mix("split", seed)).shuffle(groups)
    return _fill(groups, (TEST, VALID, TRAIN), twin.numel())


def scaffold_split(scaffold: Tensor, twin: Tensor) -> Tensor:
    """Returns the part of each graph, int8 ``[N]``; molecules of one scaffold stay together.

    Frequent scaffolds go to train first, so valid and test hold rare ones. Scaffolds that share
    twins stay together.
    """
    groups = sorted(_joined(scaffold, twin), key=lambda group: (-len(group), group[0]))
    return _fill(groups, (TRAIN, VALID, TEST), twin.numel())


def published_split(part: Tensor, molecule: Sequence[object]) -> tuple[Tensor, int]:
    """Returns the split with duplicates of different parts moved to train, and the number moved."""
    result = part.clone()
    for group in _parted(part, molecule):
        result[group] = TRAIN
    return result, int((result != part).sum())


def num_parted(part: Tensor, twin: Tensor) -> int:
    """Returns how many graphs have a twin in another part.

    >>> num_parted(torch.tensor([0, 2, 0]), torch.tensor([5, 5, 7]))
    2
    """
    return sum(len(group) for group in _parted(part, twin.tolist()))


def _parted(part: Tensor, labels: Iterable[object]) -> list[list[int]]:
    """Groups of equal labels that are not all in one part."""
    parts = part.tolist()
    return [group for group in _members(labels) if len({parts[index] for index in group}) > 1]


def _members(labels: Iterable[object]) -> list[list[int]]:
    groups: dict[object, list[int]] = defaultdict(list)
    for index, label in enumerate(labels):
        groups[label].append(index)
    return list(groups.values())


def _fill(groups: Sequence[Sequence[int]], order: Sequence[int], num_graphs: int) -> Tensor:
    """Puts each group into the first part of ``order`` that has room for it, else into train."""
    room = list(part_sizes(num_graphs))
    part = [TRAIN] * num_graphs
    for group in groups:
        chosen = next((p for p in order if room[p] >= len(group)), TRAIN)
        room[chosen] -= len(group)
        for index in group:
            part[index] = chosen
    return torch.tensor(part, dtype=torch.int8)


def _joined(first: Tensor, second: Tensor) -> list[list[int]]:
    """Returns groups of items that share a label of either kind, directly or through others."""
    from scipy.sparse import coo_array, csgraph  # slow to import

    one, other = (np.unique(labels, return_inverse=True)[1] for labels in (first, second))
    size = len(one)  # a graph of labels: those of the second follow those of the first
    links = coo_array((np.ones(size), (one, other + size)), shape=(2 * size, 2 * size))
    return _members(csgraph.connected_components(links)[1][one].tolist())


def scaffold_of(smiles: str) -> str:
    """Returns the Bemis-Murcko scaffold, ring systems and linkers, as SMILES; empty without rings.

    >>> scaffold_of("CCc1ccccc1O")
    'c1ccccc1'
    """
    murcko = require_rdkit("rdkit.Chem.Scaffolds.MurckoScaffold")
    scaffold = murcko.GetScaffoldForMol(parse_smiles(smiles))
    return str(require_rdkit().MolToSmiles(scaffold, isomericSmiles=False))


def twin_groups(tensors: Mapping[str, Tensor]) -> Tensor:
    """Returns for each graph the first graph with the same `graph_hashes`, ``[N]``."""
    _, first, inverse = np.unique(graph_hashes(tensors), return_index=True, return_inverse=True)
    return torch.from_numpy(first[inverse].astype(np.int64))


def graph_hashes(tensors: Mapping[str, Tensor]) -> _Hash:
    r"""Returns a 64-bit Weisfeiler-Lehman hash of each graph, equal on every platform, ``[N]``.

    .. math:: c_v^{(0)} = h(a_v), \qquad
              c_v^{(t+1)} = h\Big(c_v^{(t)}, \sum_{u \sim v} h(c_u^{(t)}, b_{uv})\Big), \qquad
              H(G) = h\Big(|V|, \sum_v h(c_v^{(T)})\Big)

    Symbols: :math:`a_v` -> ``atoms``, :math:`b_{uv}` -> ``types``, :math:`h` -> ``_spread``, a
    64-bit hash; sums are taken modulo :math:`2^{64}`, so the order of neighbours does not matter.

    Note:
        Stereoisomers and a few other molecules (bicyclopentyl and decalin) have equal hashes. No
        message-passing network can distinguish them, so a split must keep them together. The hash
        needs no RDKit and no SMILES, which Mutagenicity lacks.
    """
    atom_ptr, bond_ptr = tensors["atom_ptr"].numpy(), tensors["bond_ptr"].numpy()
    offset = np.repeat(atom_ptr[:-1], np.diff(bond_ptr))  # [M]
    u, v = (tensors["bonds"].numpy().astype(np.int64) + offset[:, None]).T
    bond = _spread(tensors["types"].numpy().astype(np.uint64) + np.uint64(1))  # [M]
    colour = _spread(tensors["atoms"].numpy().astype(np.uint64))  # [V]
    for _ in range(_ROUNDS):
        gathered = np.zeros_like(colour)
        for here, there in ((u, v), (v, u)):
            np.add.at(gathered, here, _spread(colour[there] ^ bond))
        colour = _spread(colour + _spread(gathered))
    total = np.concatenate([np.zeros(1, np.uint64), np.cumsum(_spread(colour), dtype=np.uint64)])
    sums = total[atom_ptr[1:]] - total[atom_ptr[:-1]]
    return _spread(sums ^ _spread(np.diff(atom_ptr).astype(np.uint64)))


def _spread(value: _Hash) -> _Hash:
    """The finaliser of splitmix64, which spreads every bit over all others."""
    value = value + np.uint64(0x9E3779B97F4A7C15)
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))
