"""Node tasks: each explained node gets its own graph, its computation graph."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Batch, Data
from torch_geometric.utils import k_hop_subgraph

from nicegnn.errors import TargetError
from nicegnn.explain.explanation import PER_ATOM, PER_BOND, Explanation, smiles_of
from nicegnn.graph.case import find_bonds
from nicegnn.intervention.intervene import intervene
from nicegnn.target.frozen_model import Target
from nicegnn.target.message_layers import message_flow

_TOLERANCE = 1e-4


def check_index(index: int | Tensor | list[int], num_nodes: int, unit: str = "node") -> Tensor:
    """Returns the explained nodes (or graphs) as a checked tensor, ``[K]``."""
    nodes = torch.as_tensor(index).view(-1)
    if nodes.dtype == torch.bool and nodes.numel() == num_nodes:
        nodes = nodes.nonzero().view(-1)
    if nodes.is_floating_point() or nodes.dtype == torch.bool or nodes.numel() == 0:
        raise TargetError(
            f"`index` must hold at least one {unit} number, or be a mask over all {num_nodes} "
            f"{unit}s (got {nodes.numel()} values of {nodes.dtype})."
        )
    if int(nodes.min()) < 0 or int(nodes.max()) >= num_nodes:
        raise TargetError(
            f"`index` must lie between 0 and {num_nodes - 1} "
            f"(got {int(nodes.min())} to {int(nodes.max())})."
        )
    return nodes.long()


def computation_graphs(target: Target, graph: Batch, index: Tensor) -> tuple[list[Data], bool]:
    """Returns one graph per explained node, and whether each is only the node's surroundings.

    A graph holds one hop more than the model reaches, so that degrees are right at its border, and
    ``root_index`` (the explained node), ``edge_reached`` (edges that can influence it),
    ``edge_origin`` (their column in the whole graph) and ``node_origin`` (the nodes there). Whole
    graphs are used if the model predicts otherwise from the surroundings, for example because it
    normalises over all nodes.
    """
    edges = graph.edge_index
    gate = torch.ones(graph.num_edges, device=edges.device)
    watched = intervene(target.model, lambda message, gate, site: message, gate, edge_index=edges)
    with torch.no_grad(), watched as seen:
        clean = target.call(graph)
    if clean.size(0) != graph.num_nodes:
        raise TargetError(
            f"The model must return one row per node with `index` (got {clean.size(0)} rows for "
            f"{graph.num_nodes} nodes). Leave `index` out for graph predictions."
        )
    hops, flow = len(seen.layers), message_flow(target.model)
    parts = [surroundings(graph, int(node), hops, flow) for node in index]
    small = Batch.from_data_list(parts)
    with torch.no_grad():
        answer = target.call(small)[small.root_index]
    if torch.allclose(answer, clean[index], rtol=_TOLERANCE, atol=_TOLERANCE):
        return parts, True
    return [whole_graph(graph, int(node), hops, flow) for node in index], False


def surroundings(graph: Batch, node: int, hops: int, flow: str) -> Data:
    """Returns the part of a graph within ``hops + 1`` of a node, for a model of ``hops`` layers."""
    near, edge_index, root, kept = k_hop_subgraph(
        node, hops + 1, graph.edge_index, relabel_nodes=True, num_nodes=graph.num_nodes, flow=flow
    )
    part = Data(edge_index=edge_index, num_nodes=near.numel())
    for key, value in graph.to_dict().items():
        if key not in ("edge_index", "batch", "ptr") and isinstance(value, Tensor):
            if graph.is_node_attr(key):
                part[key] = value[near]
            elif graph.is_edge_attr(key):
                part[key] = value[kept]
    part.root_index = root.view(1)
    part.node_origin = near
    part.edge_origin = kept.nonzero().view(-1)
    part.edge_reached = _reached(edge_index, int(root), near.numel(), hops, flow)
    return part


def whole_graph(graph: Batch, node: int, hops: int, flow: str) -> Data:
    """Returns the whole graph for one explained node."""
    part = Data(**{k: v for k, v in graph.to_dict().items() if k not in ("batch", "ptr")})
    device = graph.edge_index.device
    part.root_index = torch.tensor([node], device=device)
    part.node_origin = torch.arange(graph.num_nodes, device=device)
    part.edge_origin = torch.arange(graph.num_edges, device=device)
    part.edge_reached = _reached(graph.edge_index, node, graph.num_nodes, hops, flow)
    return part


def _reached(edge_index: Tensor, root: int, num_nodes: int, hops: int, flow: str) -> Tensor:
    """Returns which edges send a message that can reach the root, ``[E]``."""
    sender, receiver = edge_index if flow == "source_to_target" else edge_index.flip(0)
    inside = torch.zeros(num_nodes, dtype=torch.bool, device=edge_index.device)
    inside[root] = True
    for _ in range(hops - 1):
        inside = inside.clone()
        inside[sender[inside[receiver]]] = True
    return inside[receiver]


def spread_over_graph(
    compact: Explanation, units: list[Data], graph: Batch, nodes: Tensor, undirected: bool
) -> Explanation:
    """Moves scores of computation graphs to copies of the whole graph, one per node."""
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

    carried = smiles_of(graph)
    values: dict[str, Any] = {name: scatter(getattr(compact, name)) for name in PER_BOND}
    sizes = compact.ptr.diff()
    copy_of = torch.arange(num, device=device).repeat_interleave(sizes)
    atom = torch.cat([unit.node_origin for unit in units]) + copy_of * num_nodes
    for name in PER_ATOM:
        value = getattr(compact, name)
        if value is not None:
            values[name] = value.new_zeros(num * num_nodes).index_copy(0, atom, value)
    return replace(
        compact,
        edge_index=edge_index,
        bonds=bonds,
        ptr=torch.arange(num + 1, device=device) * num_nodes,
        index=nodes,
        smiles=None if carried is None else carried * num,
        **values,
    )
