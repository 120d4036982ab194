"""Twins, graphs that no model can tell apart: a split must not separate them."""

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from nicegnn.molecule.splits import TRAIN, members

_ROUNDS = 16  # of refinement: atoms at a larger distance are not compared
_Hash = npt.NDArray[np.uint64]


def published_split(part: Tensor, molecule: Sequence[object]) -> tuple[Tensor, int]:
    """Returns the split with duplicates of different parts moved to train, and the number moved."""
    result, parts = part.clone(), part.tolist()
    for group in members(molecule):
        if len({parts[index] for index in group}) > 1:
            result[group] = TRAIN
    return result, int((result != part).sum())


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

    Stereoisomers and a few other molecules (bicyclopentyl and decalin) have equal hashes: no
    message-passing network can distinguish them, so a split must keep them together.
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
