"""Node tasks: the computation graph of each explained node becomes a graph of its own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Batch, Data

from nicegnn.errors import TargetError
from nicegnn.explain.explanation import PER_BOND, Explanation
from nicegnn.graph.case import find_bonds
from nicegnn.graph.computation_graphs import surroundings, whole_graph
from nicegnn.intervention.intervene import intervene
from nicegnn.target.frozen_model import Target
from nicegnn.target.message_layers import message_flow

_TOLERANCE = 1e-4


def computation_graphs(target: Target, graph: Batch, index: Tensor) -> tuple[list[Data], bool]:
    """Returns one graph per explained node, and whether each is only the node's surroundings.

    A graph holds all nodes within one hop more than the model reaches, so that degrees are right
    at its border. It carries ``root_index`` (the explained node), ``edge_reached`` (edges that can
    influence it) and ``edge_origin`` (their column in the whole graph). Whole graphs are used if
    the model answers differently on the surroundings alone, because it normalises over all nodes,
    for example.
    """
    clean, hops = _answer_and_hops(target, graph)
    flow = message_flow(target.model)
    parts = [surroundings(graph, int(node), hops, flow) for node in index]
    small = Batch.from_data_list(parts)
    with torch.no_grad():
        answer = target.call(small)[small.root_index]
    if torch.allclose(answer, clean[index], rtol=_TOLERANCE, atol=_TOLERANCE):
        return parts, True
    return [whole_graph(graph, int(node), hops, flow) for node in index], False


def _answer_and_hops(target: Target, graph: Batch) -> tuple[Tensor, int]:
    edges = graph.edge_index
    gate = torch.ones(graph.num_edges, device=edges.device)
    watched = intervene(target.model, lambda message, gate, site: message, gate, edge_index=edges)
    with torch.no_grad(), watched as report:
        out = target.call(graph)
    if out.size(0) != graph.num_nodes:
        raise TargetError(
            f"`index` explains nodes, but the model returns {out.size(0)} rows for "
            f"{graph.num_nodes} nodes; leave `index` out for graph predictions."
        )
    return out, len(report.layers)


def spread_over_graph(
    compact: Explanation, units: list[Data], graph: Batch, nodes: Tensor, undirected: bool
) -> Explanation:
    """Puts scores of computation graphs back on the edges of the whole graph, one copy per node."""
    num, num_nodes, num_edges = len(units), int(graph.num_nodes), graph.num_edges
    device = graph.edge_index.device
    first = torch.zeros(num_edges, dtype=torch.long, device=device)
    whole = find_bonds(graph.edge_index, first, undirected=undirected)
    copies = torch.arange(num, device=device).repeat_interleave(num_edges)
    edge_index = graph.edge_index.repeat(1, num) + copies * num_nodes
    bonds = find_bonds(edge_index, copies, undirected=undirected)
    num_bonds = whole.index.size(1)
    origin = torch.cat([unit.edge_origin for unit in units])  # column of each unit edge
    home = compact.edge_batch * num_bonds + whole.edge_bond[origin]  # bond in the result
    place = torch.empty_like(compact.bonds.batch)
    place[compact.bonds.edge_bond] = home

    def scatter(value: Tensor) -> Tensor:
        out = torch.zeros(num * num_bonds, dtype=value.dtype, device=device)
        return out.index_copy(0, place, value)

    values: dict[str, Any] = {name: scatter(getattr(compact, name)) for name in PER_BOND}
    return replace(
        compact,
        edge_index=edge_index,
        bonds=bonds,
        ptr=torch.arange(num + 1, device=device) * num_nodes,
        index=nodes,
        **values,
    )
