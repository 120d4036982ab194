"""What an explanation will cost, from timing a small part of the graphs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch_geometric.data import Data
from torch_geometric.utils import to_scipy_sparse_matrix

from nicegnn.errors import GraphError
from nicegnn.explain.call import read_graphs
from nicegnn.explain.explainer import Explainer
from nicegnn.graph.batch import graph_list, to_batch
from nicegnn.graph.case import Case, make_case
from nicegnn.intervention.pieces import Reach
from nicegnn.intervention.query import chosen_chunk
from nicegnn.target.message_layers import capture_states

_BONDS, _ENOUGH = (50, 200, 800), 0.25  # bonds that are timed, more if it takes fewer seconds
_OF_CHUNK, _OF_GRAPH = 8, 36  # tensors of all messages that are held at the peak


@dataclass(frozen=True)
class Estimate:
    """What an explanation will cost, within a factor of about two."""

    bonds: int  # bonds to explain
    seconds: float
    memory: int  # bytes at the peak, beside model and graphs
    is_local: bool  # whether only what a bond reaches is run, so that cost is linear in bonds

    def __str__(self) -> str:
        time = f"{self.seconds:.0f} s" if self.seconds < 120 else f"{self.seconds / 60:.0f} min"
        return f"about {time} and {self.memory / 1e9:.1f} GB for {self.bonds:,} bonds"


def estimate(explainer: Explainer, graphs: Any) -> Estimate:
    """Returns what `explainer.explain` would cost; see `Explainer.estimate`.

    Some of the graphs, or a connected part of a large one, are explained three times; the shortest
    time counts, and more of them are timed if it was short. Cost grows with what all bonds reach if
    differences can be followed through the model, otherwise with bonds times edges of their graph.
    Memory is that of the largest batch.
    """
    graphs, kinds = read_graphs(graphs, explainer.target)
    if kinds is not None:
        raise GraphError("`graphs` must have one kind of nodes and edges (got HeteroData).")
    listed = graph_list(graphs)
    for number in _BONDS:
        sample = sample_of(listed, number)
        times = []
        for _ in range(3):  # the first one fills caches; another program may hold up the second
            start = time.perf_counter()
            explainer.explain(sample)
            times.append(time.perf_counter() - start)
        seconds = min(times)
        if seconds > _ENOUGH:
            break
    target = explainer.target.private()
    is_local = True
    with torch.no_grad(), capture_states(target.model) as states:
        target.call(to_batch(sample[:1]).to(target.device))
    widest = max(state.size(1) * state.element_size() for state in states)  # bytes of a message
    size, undirected = explainer.config.batch_size, explainer.config.undirected
    whole, part = (make_case(to_batch(g), undirected=undirected) for g in (listed, sample))
    scale = _work(whole, len(states), is_local) / max(1.0, _work(part, len(states), is_local))
    most = max(
        sum(int(graph.num_edges) for graph in listed[first : first + size])
        for first in range(0, len(listed), size)
    )
    chunk = explainer.config.chunk_edges or chosen_chunk(list(states))
    memory = (_OF_CHUNK * min(chunk, most * most) + _OF_GRAPH * most) * widest
    return Estimate(whole.bonds.batch.numel(), scale * seconds, memory, is_local)


def sample_of(graphs: Sequence[Data], num_bonds: int) -> list[Data]:
    """Returns evenly spaced graphs of about `num_bonds` in all; a large graph is cut down."""
    mean = sum(int(graph.num_edges) for graph in graphs) / 2 / len(graphs)
    number = min(len(graphs), max(1, round(num_bonds / max(1.0, mean))))
    chosen = [graphs[place * len(graphs) // number] for place in range(number)]
    return [part_of(graph, 2 * num_bonds) for graph in chosen]


def part_of(graph: Data, num_edges: int) -> Data:
    """Returns a connected part of a graph with about `num_edges` directed edges, or the graph."""
    if int(graph.num_edges) <= num_edges:
        return graph
    from scipy.sparse.csgraph import breadth_first_order

    first = int(graph.edge_index[0, 0])
    near = breadth_first_order(to_scipy_sparse_matrix(graph.edge_index.cpu()), first)[0]
    kept = torch.as_tensor(near, dtype=torch.long, device=graph.edge_index.device)
    degree = torch.bincount(graph.edge_index[0], minlength=int(graph.num_nodes))
    return graph.subgraph(kept[: max(2, int((degree[kept].cumsum(0) <= num_edges).sum()))])


def _work(case: Case, num_layers: int, is_local: bool) -> float:
    """Returns how much is sent through the model, in edges."""
    if is_local:
        return float(Reach(case, num_layers).sizes["bond"].sum())
    bonds, edges = (
        torch.bincount(where, minlength=case.num_graphs)
        for where in (case.bonds.batch, case.edge_batch)
    )
    return float((bonds.double() * edges).sum())
