"""Node tasks: each explained node gets its own graph, its computation graph."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Batch, Data

from nicegnn.errors import TargetError
from nicegnn.explain.checks import whole_numbers
from nicegnn.explain.explanation import PER_ATOM, PER_BOND, Explanation, Whole, smiles_of
from nicegnn.graph.case import Bonds, find_bonds
from nicegnn.graph.minibatches import gather_items
from nicegnn.intervention.intervene import intervene
from nicegnn.target.frozen_model import LINKS, Target
from nicegnn.target.message_layers import message_flow

_TOLERANCE = 1e-4


def check_index(index: int | Tensor | list[int], num_nodes: int, unit: str = "node") -> Tensor:
    """Returns the explained nodes (or graphs) as a checked tensor, ``[K]``."""
    nodes = whole_numbers("index", index, f"{unit} numbers or a mask over all {num_nodes} {unit}s")
    if nodes.dtype == torch.bool and nodes.numel() == num_nodes:
        nodes = nodes.nonzero().view(-1)
    if nodes.dtype == torch.bool or nodes.numel() == 0:
        raise TargetError(
            f"`index` must hold at least one {unit} number, or be a mask over all {num_nodes} "
            f"{unit}s (got a mask of {torch.as_tensor(index).numel()} with {nodes.numel()} kept)."
        )
    if int(nodes.min()) < 0 or int(nodes.max()) >= num_nodes:
        raise TargetError(
            f"`index` must lie between 0 and {num_nodes - 1} "
            f"(got {int(nodes.min())} to {int(nodes.max())})."
        )
    return nodes.long()


@dataclass(frozen=True)
class Survey:
    """What is found out once about a graph whose nodes are explained."""

    graph: Batch  # on the model's device
    clean: Tensor  # raw output of each node, [V, C]
    hops: int  # layers of the model
    flow: str  # which way messages go, as in PyG
    pointer: Tensor  # first of each receiver's edges, and one past the last, [V + 1]
    incoming: Tensor  # edges by their receiver, [E]


class SurveyOfLast:
    """Remembers the survey of the last graph, so that its next node needs no pass over all of it.

    A survey is made anew if a tensor of the graph or of the model is another one, or has changed.
    """

    def __init__(self) -> None:
        self._last: tuple[tuple[object, ...], Data, Survey] | None = None

    def __call__(self, target: Target, graph: Data, prepare: Callable[[Data], Batch]) -> Survey:
        """Returns the survey of a graph; ``prepare`` checks it and moves it to the device."""
        tensors = {k: v for k, v in graph.to_dict().items() if isinstance(v, Tensor)}
        marks = [(key, id(value), value._version) for key, value in tensors.items()]
        now = (*marks, target.weights(), graph.get("num_nodes"))
        last = self._last  # another thread may replace it
        if last is not None and last[0] == now:
            return last[2]
        surveyed = survey(target, prepare(graph))
        held = Data(**tensors)  # keeps the tensors, so that no other one gets their id
        self._last = now, held, surveyed
        return surveyed

    def __reduce__(self) -> tuple[Any, ...]:  # it can be made again
        return SurveyOfLast, ()


def survey(target: Target, graph: Batch) -> Survey:
    """Runs the model on a whole graph once, and sorts its edges by their receiver."""
    edges = graph.edge_index
    gate = torch.ones(graph.num_edges, device=edges.device)
    watched = intervene(target.model, lambda message, gate, site: message, gate, edge_index=edges)
    with torch.no_grad(), watched as seen:
        clean = target.call(graph)
    if clean.size(0) != graph.num_nodes:
        raise TargetError(
            f"The model must return one row per node with `index` (got {clean.size(0)} rows for "
            f"{graph.num_nodes} nodes). Leave `index` out for graph predictions. {LINKS}"
        )
    hops, flow = len(seen.layers), message_flow(target.model)
    receiver = edges[1] if flow == "source_to_target" else edges[0]
    number = torch.bincount(receiver, minlength=int(graph.num_nodes))
    pointer = torch.cat([number.new_zeros(1), number.cumsum(0)])
    return Survey(graph, clean, hops, flow, pointer, receiver.argsort(stable=True))


def computation_graphs(target: Target, surveyed: Survey, index: Tensor) -> tuple[list[Data], bool]:
    """Returns one graph per explained node, and whether each is only the node's surroundings.

    A graph holds one hop more than the model reaches, so that degrees are right at its border, and
    ``root_index`` (the explained node), ``edge_reached`` (edges that can influence it),
    ``edge_origin`` (their column in the whole graph) and ``node_origin`` (the nodes there). Whole
    graphs are used if the model predicts otherwise from the surroundings, for example because it
    normalises over all nodes.
    """
    parts = [surroundings(surveyed, int(node)) for node in index]
    small = Batch.from_data_list(parts)
    with torch.no_grad():
        answer = target.call(small)[small.root_index]
    if answer.size(1) != surveyed.clean.size(1):
        raise TargetError(
            "The model must return as many columns for every graph (got "
            f"{surveyed.clean.size(1)} for {surveyed.graph.num_nodes} nodes and {answer.size(1)} "
            f"for {small.num_nodes}). {LINKS}"
        )
    if torch.allclose(answer, surveyed.clean[index], rtol=_TOLERANCE, atol=_TOLERANCE):
        return parts, True
    whole = surveyed.graph, surveyed.hops, surveyed.flow
    return [whole_graph(whole[0], int(node), *whole[1:]) for node in index], False


def surroundings(surveyed: Survey, node: int) -> Data:
    """Returns the part of a graph within one hop more of a node than the model reaches."""
    graph, flow = surveyed.graph, surveyed.flow
    sender = graph.edge_index[0 if flow == "source_to_target" else 1]
    near = newest = torch.tensor([node], device=sender.device)
    for _ in range(surveyed.hops + 1):
        edges, _ = gather_items(surveyed.pointer, newest)
        senders = sender[surveyed.incoming[edges]].unique()
        newest = senders[~torch.isin(senders, near)]
        near = torch.cat([near, newest])
    near = near.sort().values
    kept = surveyed.incoming[gather_items(surveyed.pointer, near)[0]]
    kept = kept[torch.isin(sender[kept], near)].sort().values
    edge_index = torch.searchsorted(near, graph.edge_index[:, kept])
    part = Data(edge_index=edge_index, num_nodes=near.numel())
    for key, value in graph.to_dict().items():
        if key not in ("edge_index", "batch", "ptr") and isinstance(value, Tensor):
            if graph.is_node_attr(key):
                part[key] = value[near]
            elif graph.is_edge_attr(key):
                part[key] = value[kept]
    part.root_index = torch.searchsorted(near, near.new_tensor([node]))
    part.node_origin, part.edge_origin = near, kept
    root = int(part.root_index)
    part.edge_reached = _reached(edge_index, root, near.numel(), surveyed.hops, flow)
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


def on_whole_graph(
    compact: Explanation, units: list[Data], graph: Batch, nodes: Tensor, undirected: bool
) -> Explanation:
    """Gives scores of computation graphs the numbers of the whole graph.

    Each explained node has a graph of its own, with all nodes of the whole graph but only the bonds
    within reach.
    """
    num_nodes, bonds = int(graph.num_nodes), compact.bonds
    sizes = compact.ptr.diff()
    copy_of = torch.arange(len(units), device=sizes.device).repeat_interleave(sizes)
    atom = torch.cat([unit.node_origin for unit in units]) + copy_of * num_nodes
    kept, place = compact.bond_reached, compact.bond_reached.cumsum(0) - 1
    edges = kept[bonds.edge_bond]
    carried = smiles_of(graph)
    values: dict[str, Any] = {name: getattr(compact, name)[kept] for name in PER_BOND}
    for name in PER_ATOM:
        value = getattr(compact, name)
        if value is not None:
            values[name] = value.new_zeros(len(units) * num_nodes).index_copy(0, atom, value)
    return replace(
        compact,
        edge_index=atom[compact.edge_index[:, edges]],
        bonds=Bonds(
            atom[bonds.index[:, kept]],
            place[bonds.edge_bond[edges]],
            bonds.batch[kept],
            bonds.count[kept],
        ),
        ptr=torch.arange(len(units) + 1, device=sizes.device) * num_nodes,
        index=nodes,
        smiles=None if carried is None else carried * len(units),
        edge_origin=torch.cat([unit.edge_origin for unit in units])[edges],
        whole=Whole(graph.edge_index, undirected),
        **values,
    )


def to_dense(out: Explanation) -> Explanation:
    """Returns nodes times bonds: a copy of the whole graph for each explained node."""
    if out.whole is None or out.edge_origin is None:
        return out
    num, num_nodes, device = out.num_graphs, int(out.ptr[1]), out.edge_index.device
    whole_index, undirected = out.whole.edge_index, out.whole.undirected
    num_edges = whole_index.size(1)
    first = torch.zeros(num_edges, dtype=torch.long, device=device)
    whole = find_bonds(whole_index, first, undirected=undirected)
    num_bonds = whole.index.size(1)
    copies = torch.arange(num, device=device)
    place = torch.empty_like(out.bonds.batch)  # of each stored bond in the result
    place[out.bonds.edge_bond] = out.edge_batch * num_bonds + whole.edge_bond[out.edge_origin]

    def side_by_side(value: Tensor, step: int) -> Tensor:
        return (value.unsqueeze(-2) + step * copies.unsqueeze(1)).flatten(-2)

    def scatter(value: Tensor) -> Tensor:
        return value.new_zeros(num * num_bonds).index_copy(0, place, value)

    values: dict[str, Any] = {name: scatter(getattr(out, name)) for name in PER_BOND}
    return replace(
        out,
        edge_index=side_by_side(whole_index, num_nodes),
        bonds=Bonds(
            side_by_side(whole.index, num_nodes),
            side_by_side(whole.edge_bond, num_bonds),
            copies.repeat_interleave(num_bonds),
            whole.count.repeat(num),
        ),
        edge_origin=None,
        whole=None,
        **values,
    )
