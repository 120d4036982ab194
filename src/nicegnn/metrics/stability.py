"""Stability: do scores agree over seeds, and over copies of a graph with atoms in other orders."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations

import torch
from torch import Tensor
from torch_geometric.data import Batch

from nicegnn.graph.case import Bonds, find_bonds
from nicegnn.metrics.errors import MetricError
from nicegnn.metrics.ranking import (
    check_scores,
    graph_keys,
    graph_sum,
    mean_ranks,
    random_rank,
    random_ties,
    select_top,
)
from nicegnn.seeding import mix


@dataclass(frozen=True)
class Agreement:
    """How well several scorings of the same graphs agree, mean over pairs, ``[B]`` each.

    Attributes:
        spearman: rank correlation; nan where no pair of scorings has two different scores each.
        jaccard: common over all selected bonds; nan without bonds.
    """

    spearman: Tensor
    jaccard: Tensor


def agreement(
    scores: Tensor, bonds: Bonds, num_graphs: int, *, top: float = 0.3, seed: int = 0
) -> Agreement:
    r"""Returns how well scorings agree on each graph, averaged over all pairs of scorings.

    .. math:: \frac{2}{K (K - 1)} \sum_{i < j} \mathrm{corr}(r_i, r_j), \qquad
        \frac{2}{K (K - 1)} \sum_{i < j} \frac{|S_i \cap S_j|}{|S_i \cup S_j|}

    Symbols: :math:`K` -> number of scorings (seeds, say); :math:`r_i` -> mean ranks of a graph's
    bonds in scoring i; :math:`S_i` -> its best share ``top`` of them, equals at random by `seed` in
    the same order for all scorings.

    Args:
        scores: one row per scoring, ``[K, M]``.
    """
    if scores.dim() != 2 or scores.size(0) < 2:
        raise MetricError(
            f"`scores` must have one row per scoring, at least two (got {tuple(scores.shape)})."
        )
    batch = bonds.batch
    for row in scores:
        check_scores(row, "scores", batch.numel())
    tie = random_ties(batch, num_graphs, seed, graph_keys(bonds, num_graphs))
    selected = [select_top(row, batch, num_graphs, top, tie=tie) for row in scores]
    pairs = list(combinations(range(scores.size(0)), 2))
    ranks = [mean_ranks(row, batch, num_graphs) for row in scores]
    correlation = [_correlation(ranks[i], ranks[j], batch, num_graphs) for i, j in pairs]
    overlap = [_jaccard(selected[i], selected[j], batch, num_graphs) for i, j in pairs]
    return Agreement(torch.stack(correlation).nanmean(0), torch.stack(overlap).mean(0))


def spearman(first: Tensor, second: Tensor, batch: Tensor, num_graphs: int) -> Tensor:
    r"""Returns the rank correlation of two scorings of each graph, ``[B]``; nan if one is constant.

    .. math:: \frac{\sum_i (r_i - \bar r)(s_i - \bar s)}
        {\sqrt{\sum_i (r_i - \bar r)^2 \sum_i (s_i - \bar s)^2}}

    Symbols: :math:`r_i, s_i` -> mean ranks of ``first`` and ``second``, ``[M]``.
    """
    r, s = (mean_ranks(score, batch, num_graphs) for score in (first, second))
    return _correlation(r, s, batch, num_graphs)


def permutation_agreement(
    explain: Callable[[Batch], Tensor],
    batch: Batch,
    *,
    num_copies: int = 3,
    top: float = 0.3,
    seed: int = 0,
) -> Agreement:
    """Returns how well an explainer agrees with itself when atoms and edges change their order.

    Args:
        explain: returns one score per directed edge of a batch, ``[E]``.
        num_copies: copies in random orders that are compared with each other and the original.
    """
    edge_batch = batch.batch[batch.edge_index[0]]
    bonds = find_bonds(batch.edge_index, edge_batch)
    rows = [explain(batch)]
    for number in range(num_copies):
        permuted = permute_batch(batch, mix(seed, "copy", number))
        rows.append(permuted.edge_back(explain(permuted.batch)))
    return agreement(
        bonds.mean(torch.stack(rows)), bonds, int(batch.num_graphs), top=top, seed=seed
    )


@dataclass(frozen=True)
class PermutedBatch:
    """A batch of the same graphs with nodes and edges of each in another order.

    Attributes:
        batch: the graphs in their new order.
        node: new number of each old node, ``[V]``.
        edge: new position of each old directed edge, ``[E]``.
    """

    batch: Batch
    node: Tensor
    edge: Tensor

    def edge_back(self, edge_value: Tensor) -> Tensor:
        """Puts values of the new edges back on the old ones, ``[..., E]``."""
        return edge_value[..., self.edge]

    def bond_back(self, bond_value: Tensor, new: Bonds, old: Bonds) -> Tensor:
        """Puts values of the new batch's bonds back on the old ones, ``[M]``."""
        out = torch.empty_like(bond_value)
        out[old.edge_bond] = bond_value[new.edge_bond[self.edge]]
        return out


def permute_batch(batch: Batch, seed: int = 0) -> PermutedBatch:
    """Shuffles the nodes and the edges of each graph, the same way whatever batch it is in.

    Attributes per node or edge move along, and node numbers are renumbered; lists of edge numbers
    (``edge_alternatives``) are left out.
    """
    num_graphs, num_nodes, num_edges = int(batch.num_graphs), batch.num_nodes, batch.num_edges
    edge_batch = batch.batch[batch.edge_index[0]]
    old_node = _shuffled(batch.batch, num_graphs, mix(seed, "nodes"))  # at each new place
    old_edge = _shuffled(edge_batch, num_graphs, mix(seed, "edges"))
    node, edge = torch.empty_like(old_node), torch.empty_like(old_edge)
    node[old_node] = torch.arange(num_nodes, device=node.device)
    edge[old_edge] = torch.arange(num_edges, device=edge.device)
    out = copy.copy(batch)
    for key, value in batch.to_dict().items():
        if not isinstance(value, Tensor):
            if key.startswith("edge_"):
                del out[key]
            continue
        if key in ("batch", "ptr") or value.dim() == 0:
            continue
        if key == "edge_index":
            out[key] = node[value][:, old_edge]
            continue
        new = node[value] if _holds_nodes(batch, key, value) else value
        if value.size(0) == num_edges and (key.startswith("edge_") or batch.is_edge_attr(key)):
            new = new[old_edge]
        elif batch.is_node_attr(key):
            new = new[old_node]
        out[key] = new
    return PermutedBatch(out, node, edge)


def _shuffled(batch: Tensor, num_graphs: int, seed: int) -> Tensor:
    """Returns the items graph by graph, those of each graph in random order, ``[M]``."""
    tie = random_ties(batch, num_graphs, seed)
    rank = random_rank(torch.zeros_like(batch), batch, num_graphs, tie)
    number = torch.bincount(batch, minlength=num_graphs)
    place = (number.cumsum(0) - number)[batch] + rank
    items = torch.empty_like(place)
    items[place] = torch.arange(batch.numel(), device=batch.device)
    return items


def _holds_nodes(batch: Batch, key: str, value: Tensor) -> bool:
    if value.dtype != torch.long:
        return False
    step = batch.__inc__(key, value)
    return isinstance(step, int) and step == batch.num_nodes


def _correlation(first: Tensor, second: Tensor, batch: Tensor, num_graphs: int) -> Tensor:
    """Returns the correlation of two sets of ranks in each graph, ``[B]``."""
    number = torch.bincount(batch, minlength=num_graphs)
    middle = ((number + 1).double() / 2)[batch]  # mean of all ranks of a graph
    r, s = first - middle, second - middle
    shared = graph_sum(r * s, batch, num_graphs)
    spread = graph_sum(r * r, batch, num_graphs) * graph_sum(s * s, batch, num_graphs)
    return shared / spread.sqrt()  # 0 / 0 is nan


def _jaccard(first: Tensor, second: Tensor, batch: Tensor, num_graphs: int) -> Tensor:
    both = graph_sum((first & second).double(), batch, num_graphs)
    return both / graph_sum((first | second).double(), batch, num_graphs)  # 0 / 0 is nan
