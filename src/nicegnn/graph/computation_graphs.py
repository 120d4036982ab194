"""Computation graphs: what a message-passing model reads to answer for one node."""

from __future__ import annotations

import torch
from torch import Tensor
from torch_geometric.data import Batch, Data
from torch_geometric.utils import k_hop_subgraph

from nicegnn.errors import TargetError


def check_index(index: int | Tensor | list[int], num_nodes: int) -> Tensor:
    """Returns the explained nodes as a checked tensor, ``[K]``."""
    nodes = torch.as_tensor(index).view(-1)
    if nodes.dtype == torch.bool and nodes.numel() == num_nodes:
        nodes = nodes.nonzero().view(-1)
    if nodes.is_floating_point() or nodes.dtype == torch.bool or nodes.numel() == 0:
        raise TargetError(
            "`index` must hold at least one node number, or be a mask over all nodes "
            f"(got {nodes.numel()} values of {nodes.dtype})."
        )
    if int(nodes.min()) < 0 or int(nodes.max()) >= num_nodes:
        raise TargetError(
            f"`index` must lie between 0 and {num_nodes - 1} "
            f"(got {int(nodes.min())} to {int(nodes.max())})."
        )
    return nodes.long()


def surroundings(graph: Batch, node: int, hops: int, flow: str) -> Data:
    """Returns the part of a graph within ``hops + 1`` of a node, with what `Case` needs to know.

    The model has ``hops`` message-passing layers; ``flow`` is PyG's.
    """
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
    part.edge_origin = kept.nonzero().view(-1)
    part.edge_reached = _reached(edge_index, int(root), near.numel(), hops, flow)
    return part


def whole_graph(graph: Batch, node: int, hops: int, flow: str) -> Data:
    """Returns the whole graph for one explained node; arguments as for `surroundings`."""
    part = Data(**{k: v for k, v in graph.to_dict().items() if k not in ("batch", "ptr")})
    device = graph.edge_index.device
    part.root_index = torch.tensor([node], device=device)
    part.edge_origin = torch.arange(graph.num_edges, device=device)
    part.edge_reached = _reached(graph.edge_index, node, graph.num_nodes, hops, flow)
    return part


def _reached(edge_index: Tensor, root: int, num_nodes: int, hops: int, flow: str) -> Tensor:
    """Returns which edges send a message that can still arrive at the root in time, ``[E]``."""
    sender, receiver = edge_index if flow == "source_to_target" else edge_index.flip(0)
    inside = torch.zeros(num_nodes, dtype=torch.bool, device=edge_index.device)
    inside[root] = True
    for _ in range(hops - 1):
        inside = inside.clone()
        inside[sender[inside[receiver]]] = True
    return inside[receiver]
