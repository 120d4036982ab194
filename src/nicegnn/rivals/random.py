"""Random scores: the floor that every explainer has to clear, and the simplest example of one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch_geometric.data import Batch

from nicegnn.graph.case import Case
from nicegnn.intervention.query import Query
from nicegnn.rivals.base import Baseline, BaselineConfig
from nicegnn.seeding import mix

_FACTORS = (6364136223846793005, 2685821657736338717)  # odd, known to mix 64 bits well


@dataclass(frozen=True)
class RandomConfig(BaselineConfig):
    """Settings of random scores: none of its own."""


class Random(Baseline):
    r"""Gives every bond a random number.

    .. math:: s_b \sim \mathrm{Unif}(0, 1) \quad \text{independently for each bond}

    Symbols: :math:`s_b` -> the returned score, ``[E]``, equal on both directions of a bond.

    A number is a hash of the seed, the graph (its edges, degrees and node features, whatever their
    order) and the bond's slot. Different seeds and different graphs get independent numbers, and a
    graph gets the same ones in any batch.

    ==========  =====  =====================================  =======================
    ..          paper  released code                          here
    ==========  =====  =====================================  =======================
    unit        \-     directed edge (PyG, DummyExplainer)    bond
    randomness  \-     global generator, differs by batch     hash, same in any batch
    ==========  =====  =====================================  =======================
    """

    name = "random"
    config_type = RandomConfig
    mechanisms: ClassVar[tuple[str, ...]] = ()  # perturbs nothing

    def _edge_score(self, query: Query, seed: int) -> Tensor:
        case = query.case
        graph = graph_keys(case.batch)[case.bonds.batch]  # [M]
        bits = _scramble(graph + _scramble(bond_slots(case) + mix(seed, "random")))
        score = (bits & (2**53 - 1)).double() / 2**53  # [M]
        return score[case.bonds.edge_bond]


def bond_slots(case: Case) -> Tensor:
    """Returns the noise coordinate of each bond, the lowest of its edges, ``[M]``."""
    slot = torch.full_like(case.bonds.batch, torch.iinfo(torch.long).max)
    return slot.scatter_reduce(0, case.bonds.edge_bond, case.slot, "amin")


def graph_keys(batch: Batch) -> Tensor:
    """Returns a hash of each graph that does not depend on the order of nodes and edges, ``[B]``.

    It reads degrees, node features and the pairs of them that edges join.
    """
    sender, receiver = batch.edge_index
    colour = _scramble(torch.bincount(sender, minlength=batch.num_nodes) + 1)  # [V]
    x = batch.get("x")
    if isinstance(x, Tensor) and x.numel():
        bits = x.reshape(x.size(0), -1).float().contiguous().view(torch.int32).long()  # [V, F]
        column = _scramble(torch.arange(1, bits.size(1) + 1, device=x.device))
        colour = _scramble(colour + _scramble(bits + column).sum(1))
    pair = _scramble(colour[receiver] + _scramble(colour[sender]))  # [E]
    size = batch.ptr.diff()
    return _scramble(size.index_add(0, batch.batch[sender], pair))


def _scramble(value: Tensor) -> Tensor:
    """Mixes the bits of 64-bit integers, the same way on every device."""
    for factor in _FACTORS:
        value = (value ^ (value >> 32)) * factor
    return value ^ (value >> 32)
