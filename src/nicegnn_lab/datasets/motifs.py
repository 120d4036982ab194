"""Generated graphs with planted motifs, whose bonds are the explanation; they are no molecules.

Motifs are PyG's. Its ``BAGraph`` is not used: a new node may choose itself, so most trees are not
connected, and it uses the global random state.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import cycle, islice

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.datasets.motif_generator import CycleMotif, HouseMotif

from nicegnn.errors import ConfigError
from nicegnn.seeding import mix

FEATURES = 10  # constant ones, as published: only the structure differs


@dataclass(frozen=True)
class MotifGraph:
    """One graph with many motifs, for predictions of nodes."""

    graph: Data  # ``y``: role of each node; ``edge_truth``: edges inside any motif
    motif: Tensor  # motif of each node, -1 in the base graph, [V]

    def truth_of(self, node: int) -> Tensor:
        """Returns the edges inside the node's own motif, bool ``[E]``; none for a base node."""
        inside = (self.motif == self.motif[node]) & (self.motif >= 0)
        return self.graph.edge_truth & inside[self.graph.edge_index].all(0)


def ba_2motifs(num_graphs: int = 1000, seed: int = 0, *, base_nodes: int = 20) -> list[Data]:
    """Returns trees with a five-cycle (class 0) and a house (class 1) by turns.

    A graph is a Barabasi-Albert tree with one motif attached (Luo et al., NeurIPS 2020). Its
    ``edge_truth`` marks the edges inside the motif, for both classes.
    """
    if num_graphs < 1:
        raise ConfigError(f"`num_graphs` must be at least 1 (got {num_graphs}).")
    generator = torch.Generator().manual_seed(mix(seed, "ba-2motifs"))
    motifs = (CycleMotif(5)(), HouseMotif()())
    graphs = []
    for label in islice(cycle((0, 1)), num_graphs):
        graphs.append(_planted(base_nodes, 1, [motifs[label]], generator).graph)
        graphs[-1].y = torch.tensor([label])
    return graphs


def ba_shapes(
    seed: int = 0, *, base_nodes: int = 300, num_motifs: int = 80, noise: float = 0.1
) -> MotifGraph:
    """Returns one graph with houses; nodes have roles (Ying et al., NeurIPS 2019).

    Roles: 0 for the base graph, then 1 for the two nodes under the roof, of which the first is
    attached to the base graph, 2 for the two at the bottom and 3 for the top. ``noise`` is the
    number of random edges between any two nodes as a share of the number of nodes.
    """
    if not 1 <= num_motifs <= base_nodes:
        raise ConfigError(
            f"`num_motifs` must lie between 1 and `base_nodes`, {base_nodes} (got {num_motifs})."
        )
    generator = torch.Generator().manual_seed(mix(seed, "ba-shapes"))
    made = _planted(base_nodes, 5, [HouseMotif()()] * num_motifs, generator)
    graph, num_nodes = made.graph, int(made.graph.num_nodes)
    is_free = torch.ones(num_nodes, num_nodes, dtype=torch.bool)
    is_free[graph.edge_index[0], graph.edge_index[1]] = False
    free = is_free.triu(1).nonzero()  # bonds that are not there yet, each once
    chosen = torch.randperm(free.size(0), generator=generator)[: round(noise * num_nodes)]
    extra = free[chosen].t()
    graph.edge_index = torch.cat([graph.edge_index, extra, extra.flip(0)], dim=1)
    graph.edge_truth = torch.cat([graph.edge_truth, extra.new_zeros(2 * extra.size(1)).bool()])
    return made


def preferential_graph(num_nodes: int, num_edges: int, generator: torch.Generator) -> Tensor:
    """Returns the bonds of a Barabasi-Albert graph, each once, ``[2, M]``.

    Every node after the first `num_edges` is joined to `num_edges` earlier nodes, drawn in
    proportion to their degrees.
    """
    if not 1 <= num_edges < num_nodes:
        raise ConfigError(f"`num_edges` must lie between 1 and {num_nodes - 1} (got {num_edges}).")
    ends = list(range(num_edges))  # a node is listed as often as it has bonds
    bonds: list[tuple[int, int]] = []
    for node in range(num_edges, num_nodes):
        chosen: set[int] = set()
        while len(chosen) < num_edges:
            chosen.add(ends[int(torch.randint(len(ends), (1,), generator=generator))])
        bonds += [(other, node) for other in sorted(chosen)]
        ends += [*sorted(chosen), *[node] * num_edges]
    return torch.tensor(bonds).t()


def _planted(
    base_nodes: int, num_edges: int, motifs: list[Data], generator: torch.Generator
) -> MotifGraph:
    """Returns a base graph with motifs, the first node of each joined to a base node of its own."""
    base = preferential_graph(base_nodes, num_edges, generator)
    edges, truth = [base, base.flip(0)], [torch.zeros(2 * base.size(1), dtype=torch.bool)]
    role, motif = [torch.zeros(base_nodes, dtype=torch.long)], [torch.full((base_nodes,), -1)]
    place = torch.randperm(base_nodes, generator=generator)[: len(motifs)].tolist()
    first = base_nodes
    for number, (shape, node) in enumerate(zip(motifs, place, strict=True)):
        size, inner = int(shape.num_nodes), shape.edge_index
        edges += [inner + first, torch.tensor([[node, first], [first, node]])]
        truth += [torch.ones(inner.size(1), dtype=torch.bool), torch.zeros(2, dtype=torch.bool)]
        roles = shape.get("y")
        role.append(1 + (torch.zeros(size, dtype=torch.long) if roles is None else roles))
        motif.append(torch.full((size,), number))
        first += size
    x, edge_index = torch.ones(first, FEATURES), torch.cat(edges, dim=1)
    graph = Data(x=x, edge_index=edge_index, y=torch.cat(role), edge_truth=torch.cat(truth))
    return MotifGraph(graph, torch.cat(motif))
