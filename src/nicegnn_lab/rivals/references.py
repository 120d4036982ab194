"""References: random scores, which every method must beat, and the truth, which none can."""

import torch
from torch import Tensor
from torch_geometric.data import Batch

from nicegnn.errors import GraphError
from nicegnn.explain.explainer import ScoreExplainer
from nicegnn.graph.case import Case
from nicegnn.intervention.query import Query
from nicegnn.seeding import mix

_BLOCK = 1024  # slots whose numbers are drawn together
_FACTORS = (6364136223846793005, 2685821657736338717)  # odd, known to mix 64 bits well


class Random(ScoreExplainer):
    r"""Gives every bond a random number.

    .. math:: s_b \sim \mathrm{Unif}(0, 1) \quad \text{independently for each bond}

    Symbols: :math:`s_b` -> the returned score, ``[E]``, equal on both directions of a bond. It is a
    hash of the seed, the graph (edges, degrees and node features, in any order) and the bond's
    slot, so a graph gets the same scores in any batch. PyG's DummyExplainer draws a number per
    directed edge from the global generator. This class is the simplest example of an explainer.
    """

    name = "random"
    mechanisms = ()  # damages nothing

    def _edge_score(self, query: Query, seed: int) -> Tensor:
        case = query.case
        graph = _graph_keys(case.batch)[case.bonds.batch]  # [M]
        bits = _scramble(graph + _scramble(bond_slots(case) + mix(seed, "random")))
        return ((bits & (2**53 - 1)).double() / 2**53)[case.bonds.edge_bond]


def _graph_keys(batch: Batch) -> Tensor:
    """Returns a hash of degrees, node features and edges of each graph in any order, ``[B]``."""
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


def bond_slots(case: Case) -> Tensor:
    """Returns the noise coordinate of each bond, the lowest of its edges, ``[M]``."""
    slot = torch.full_like(case.bonds.batch, torch.iinfo(torch.long).max)
    return slot.scatter_reduce(0, case.bonds.edge_bond, case.slot, "amin")


def slot_numbers(seed: int, slot: Tensor, *, kind: str) -> Tensor:
    """Returns one random number per slot, the same for the same slot in every batch, float32.

    A slot is an item's position in its own graph, ``[M]``; the kind is ``uniform`` or ``normal``.
    """
    if slot.numel() == 0:
        return torch.zeros(0, device=slot.device)
    blocks = []
    for number in range(int(slot.max()) // _BLOCK + 1):
        generator = torch.Generator().manual_seed(mix(seed, kind, number))
        if kind == "uniform":  # never 0 or 1, whose logit is infinite
            block = torch.rand(_BLOCK, generator=generator).clamp(1e-6, 1 - 1e-6)
        else:
            block = torch.randn(_BLOCK, generator=generator)
        blocks.append(block)
    return torch.cat(blocks).to(slot.device)[slot]


class GroundTruth(ScoreExplainer):
    r"""Scores true edges 1 and all others 0.

    .. math:: s_e = [e \in S^*]

    Symbols: :math:`S^*` -> ``batch.edge_truth``, bool ``[E]``, the union of all alternatives where
    a graph has several; :math:`s_e` -> the returned score, ``[E]``.

    Its precision is below 1 where more bonds are selected than are true. Its fidelity shows whether
    the model uses the motif.
    """

    name = "ground-truth"
    mechanisms = ()  # damages nothing

    def _edge_score(self, query: Query, seed: int) -> Tensor:
        return true_edges(query)


def true_edges(query: Query) -> Tensor:
    """Returns 1 for each true directed edge and 0 for all others, ``[E]``."""
    truth = query.case.batch.get("edge_truth")
    if not isinstance(truth, Tensor) or truth.numel() != query.case.num_edges:
        got = f"shape {tuple(truth.shape)}" if isinstance(truth, Tensor) else "none"
        raise GraphError(
            f"All graphs must have `edge_truth`, one value for each of the {query.case.num_edges} "
            f"directed edges (got {got}). Set it on each Data, or use graphs of "
            "nicegnn_lab.datasets, which have it."
        )
    return truth.view(-1).to(query.clean.dtype)
