"""Node tasks: the computation graph of each explained node becomes a graph of its own."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor
from torch_geometric.data import Batch, Data
from torch_geometric.utils import k_hop_subgraph

from nicegnn.errors import TargetError
from nicegnn.explanation import Explanation
from nicegnn.graphs import find_bonds
from nicegnn.messages import intervene, message_flow
from nicegnn.query import make_case
from nicegnn.target import Target

_TOLERANCE = 1e-4


def check_index(index: int | Tensor | list[int], num_nodes: int) -> Tensor:
    """Returns the explained nodes as a checked tensor, ``[K]``."""
    nodes = torch.as_tensor(index).view(-1)
    if nodes.dtype == torch.bool and nodes.numel() == num_nodes:
        nodes = nodes.nonzero().view(-1)
    if nodes.is_floating_point() or nodes.dtype == torch.bool or nodes.numel() == 0:
        raise TargetError("`index` must hold at least one node number, or a mask over all nodes.")
    if int(nodes.min()) < 0 or int(nodes.max()) >= num_nodes:
        raise TargetError(
            f"`index` must lie between 0 and {num_nodes - 1} "
            f"(got {int(nodes.min())} to {int(nodes.max())})."
        )
    return nodes.long()


def computation_graphs(target: Target, graph: Batch, index: Tensor) -> tuple[list[Data], bool]:
    """Returns one graph per explained node, and whether each is only the node's surroundings.

    A graph holds all nodes within one hop more than the model reaches, so that degrees are right
    at its rim. It carries ``root_index`` (the explained node), ``edge_reached`` (edges that can
    influence it) and ``edge_origin`` (their column in the whole graph). If the model answers
    differently on the surroundings alone (a norm over all nodes, say), whole graphs are used.
    """
    clean, hops = _answer_and_hops(target, graph)
    parts = [_surroundings(graph, int(node), hops, message_flow(target.model)) for node in index]
    small = Batch.from_data_list(parts)
    with torch.no_grad():
        answer = target.call(small)[small.root_index]
    if torch.allclose(answer, clean[index], rtol=_TOLERANCE, atol=_TOLERANCE):
        return parts, True
    return [_whole(graph, int(node), hops, message_flow(target.model)) for node in index], False


def _answer_and_hops(target: Target, graph: Batch) -> tuple[Tensor, int]:
    gate = torch.ones(graph.num_edges, device=graph.edge_index.device)
    with (
        torch.no_grad(),
        intervene(
            target.model, lambda message, gate, site: message, gate, edge_index=graph.edge_index
        ) as report,
    ):
        out = target.call(graph)
    if out.size(0) != graph.num_nodes:
        raise TargetError(
            f"`index` explains nodes, but the model returns {out.size(0)} rows for "
            f"{graph.num_nodes} nodes; leave `index` out for graph predictions."
        )
    return out, len(report.layers)


def _surroundings(graph: Batch, node: int, hops: int, flow: str) -> Data:
    near, edge_index, root, kept = k_hop_subgraph(
        node, hops + 1, graph.edge_index, relabel_nodes=True, num_nodes=graph.num_nodes, flow=flow
    )
    part = Data(edge_index=edge_index, num_nodes=near.numel())
    for key, value in graph.to_dict().items():
        if key in ("edge_index", "batch", "ptr", "num_nodes"):
            continue
        if isinstance(value, Tensor) and graph.is_node_attr(key):
            part[key] = value[near]
        elif isinstance(value, Tensor) and graph.is_edge_attr(key):
            part[key] = value[kept]
    part.root_index = root.view(1)
    part.edge_origin = kept.nonzero().view(-1)
    part.edge_reached = _reached(edge_index, int(root), near.numel(), hops, flow)
    return part


def _whole(graph: Batch, node: int, hops: int, flow: str) -> Data:
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


def spread_over_graph(
    compact: Explanation, units: list[Data], graph: Batch, nodes: Tensor, undirected: bool
) -> Explanation:
    """Puts scores of computation graphs back on the edges of the whole graph, one copy per node."""
    num, num_nodes, num_edges = len(units), int(graph.num_nodes), graph.num_edges
    device = graph.edge_index.device
    whole = find_bonds(
        graph.edge_index,
        torch.zeros(num_edges, dtype=torch.long, device=device),
        undirected=undirected,
    )
    copies = torch.arange(num, device=device).repeat_interleave(num_edges)
    edge_index = graph.edge_index.repeat(1, num) + copies * num_nodes
    case = make_case(
        Batch(
            edge_index=edge_index,
            batch=torch.arange(num, device=device).repeat_interleave(num_nodes),
            _num_graphs=num,
        ),
        undirected=undirected,
    )
    num_bonds = whole.index.size(1)
    origin = torch.cat([unit.edge_origin for unit in units])  # column of each unit edge
    home = compact.edge_batch * num_bonds + whole.edge_bond[origin]  # bond in the result
    place = torch.empty_like(compact.bonds.batch)
    place[compact.bonds.edge_bond] = home

    def scatter(value: Tensor) -> Tensor:
        out = torch.zeros(num * num_bonds, dtype=value.dtype, device=device)
        return out.index_copy(0, place, value)

    return replace(
        compact,
        edge_index=edge_index,
        bonds=case.bonds,
        ptr=torch.arange(num + 1, device=device) * num_nodes,
        bond_score=scatter(compact.bond_score),
        bond_big=scatter(compact.bond_big),
        bond_stderr=scatter(compact.bond_stderr),
        bond_gate=scatter(compact.bond_gate),
        bond_reached=scatter(compact.bond_reached),
        index=nodes,
    )
