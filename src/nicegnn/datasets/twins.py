r"""Which graphs are the same molecule: a Weisfeiler-Lehman hash over atoms and bonds.

.. math:: c_v^{(0)} = h(a_v), \qquad
          c_v^{(t+1)} = h\Big(c_v^{(t)}, \sum_{u \sim v} h(c_u^{(t)}, b_{uv})\Big), \qquad
          H(G) = h\Big(|V|, \sum_v h(c_v^{(T)})\Big)

Symbols: :math:`a_v` -> ``atoms``, :math:`b_{uv}` -> ``types``, :math:`h` -> ``_mix``, a 64-bit
hash; sums are taken modulo :math:`2^{64}`, so they do not depend on the order of neighbours.

Equal molecules have equal graphs and so equal hashes: molecules with the same canonical SMILES are
always twins, also stereoisomers, which have the same graph. The reverse is not sure: a few
different molecules share a hash (bicyclopentyl and decalin). Both suit a split that must not leak:
graphs that no message-passing network can tell apart stay together. The hash also serves
Mutagenicity, which has no SMILES, and needs no RDKit.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from nicegnn.datasets.tensors import Tensors

#: Rounds of refinement; more only matter for molecules that differ beyond this distance.
ROUNDS = 16

_Hash = npt.NDArray[np.uint64]


def twin_groups(tensors: Tensors) -> Tensor:
    """Returns for each graph the first graph with the same hash, ``[N]``."""
    hashes = graph_hashes(tensors)
    _, first, inverse = np.unique(hashes, return_index=True, return_inverse=True)
    return torch.from_numpy(first[inverse].astype(np.int64))


def graph_hashes(tensors: Tensors) -> _Hash:
    """Returns one 64-bit hash per graph, ``[N]``, the same on every platform."""
    atom_ptr, bond_ptr = tensors["atom_ptr"].numpy(), tensors["bond_ptr"].numpy()
    offset = np.repeat(atom_ptr[:-1], np.diff(bond_ptr))  # [M]
    u, v = (tensors["bonds"].numpy().astype(np.int64) + offset[:, None]).T
    bond = _mix(tensors["types"].numpy().astype(np.uint64) + np.uint64(1))  # [M]
    colour = _mix(tensors["atoms"].numpy().astype(np.uint64))  # [V]
    for _ in range(ROUNDS):
        gathered = np.zeros_like(colour)
        for here, there in ((u, v), (v, u)):
            np.add.at(gathered, here, _mix(colour[there] ^ bond))
        colour = _mix(colour + _mix(gathered))
    total = np.concatenate([np.zeros(1, np.uint64), np.cumsum(_mix(colour), dtype=np.uint64)])
    sums = total[atom_ptr[1:]] - total[atom_ptr[:-1]]
    return _mix(sums ^ _mix(np.diff(atom_ptr).astype(np.uint64)))


def _mix(value: _Hash) -> _Hash:
    """The finaliser of splitmix64, which spreads every bit over all others."""
    value = value + np.uint64(0x9E3779B97F4A7C15)
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))
