"""Nodes and pairs of one graph: each explained one gets a graph of its own, its surroundings."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Batch, Data
from torch_geometric.utils import k_hop_subgraph

from nicegnn.errors import TargetError
from nicegnn.explain.checks import explained_nodes, explained_pairs
from nicegnn.explain.explanation import PER_ATOM, PER_BOND, Explanation, Whole, smiles_of
from nicegnn.graph.case import Bonds, find_bonds
from nicegnn.intervention.intervene import intervene
from nicegnn.target.frozen_model import LINKS, Target
from nicegnn.target.message_layers import message_layers

_TOLERANCE = 1e-4
_NOT_COPIED = ("edge_index", "batch", "ptr", "edge_label", "edge_label_index")


@dataclass(frozen=True)
class Roots:
    """The explained nodes, or pairs, of a graph, each with a computation graph of its own."""

    graph: Batch  # the whole graph
    index: Tensor  # explained nodes, [B], or pairs of nodes, [2, B]
    units: list[Data]  # the computation graphs
    is_local: bool  # whether each of them is only the surroundings


def choose_roots(work: Target, batch: Batch, index: Any, pairs: Any) -> Roots:
    """Returns the nodes, or pairs, of a graph to explain, each with its computation graph."""
    if pairs is not None:
        if index is not None or work.kinds is not None:
            raise TargetError(
                "`pairs` must come without `index`, for a graph with one kind of nodes (got "
                f"{'HeteroData' if index is None else 'both'}). {LINKS}"
            )
        batch = copy.copy(batch)
        roots = batch.edge_label_index = explained_pairs(pairs, batch.num_nodes).to(work.device)
    elif work.kinds is not None:
        roots = _of_kind(work, batch, index)
    else:
        roots = explained_nodes(index, batch.num_nodes).to(work.device)
    return Roots(batch, roots, *computation_graphs(work, batch, roots))


def _of_kind(work: Target, batch: Batch, index: Any) -> Tensor:
    """Returns nodes of one kind by their numbers in the whole graph, ``[K]``; tells `work`."""
    assert work.kinds is not None
    kinds, kind = work.kinds, None
    if isinstance(index, tuple) and len(index) == 2 and isinstance(index[0], str):
        kind, index = index
        if kind not in kinds.nodes:
            raise TargetError(
                f"`index` must name a kind of nodes, one of {kinds.nodes} (got {kind!r})."
            )
    else:
        rows = work.call(batch).size(0)
        sizes = torch.bincount(batch.node_type, minlength=len(kinds.nodes)).tolist()
        fit = [one for one, size in zip(kinds.nodes, sizes, strict=True) if size == rows]
        if len(fit) != 1:
            raise TargetError(
                f"`index` must name the kind of its nodes: the model returns {rows} rows, and "
                f"there are {dict(zip(kinds.nodes, sizes, strict=True))} nodes. Pass "
                f"index=('{kinds.nodes[0]}', [0]), for example."
            )
        kind = fit[0]
    work.kinds = replace(kinds, answer=kind)
    own = (batch.node_type == kinds.nodes.index(kind)).nonzero().view(-1)
    return own[explained_nodes(index, own.numel()).to(own.device)]


def computation_graphs(target: Target, graph: Batch, index: Tensor) -> tuple[list[Data], bool]:
    """Returns one graph per explained node, ``[K]``, or pair, ``[2, K]``, and whether it is local.

    A graph holds one hop more than the model reaches, so that degrees are right at its border, and
    ``root_index`` (the explained node) or ``edge_label_index`` (the pair), ``edge_reached`` (edges
    that can influence it), ``edge_origin`` (their column in the whole graph) and ``node_origin``
    (the nodes there). Whole graphs are used if the model predicts otherwise from the surroundings,
    for example because it normalises over all nodes.
    """
    gate, edges = torch.ones(graph.num_edges, device=index.device), graph.edge_index
    same = intervene(target.model, lambda message, gate, site: message, gate, edge_index=edges)
    with torch.no_grad(), same as seen:
        clean = target.call(graph)
    is_pairs = target.level == "pair"
    wanted = index.size(1) if is_pairs else graph.num_nodes
    if clean.size(0) != wanted:
        unit, name = ("pair", "pairs") if is_pairs else ("node", "index")
        raise TargetError(
            f"The model must return one row per {unit} with `{name}` (got {clean.size(0)} rows for "
            f"{wanted} {unit}s). Leave `{name}` out for graph predictions. {LINKS}"
        )
    flow = getattr(message_layers(target.model)[0][1], "flow", "source_to_target")
    cut = partial(surroundings, graph, hops=depth(seen.layers), flow=flow)
    roots = [root.view(-1) for root in index.t()]
    small = [cut(root) for root in roots]
    joined = Batch.from_data_list(small)
    with torch.no_grad():
        answer = target.call(joined)
    if not is_pairs:
        clean, answer = clean[index], answer[joined.root_index]
    if answer.size(1) != clean.size(1):
        raise TargetError(
            "The model must return as many columns for every graph (got "
            f"{clean.size(1)} for {graph.num_nodes} nodes and {answer.size(1)} "
            f"for {joined.num_nodes}). {LINKS}"
        )
    if torch.allclose(answer, clean, rtol=_TOLERANCE, atol=_TOLERANCE):
        return small, True
    return [cut(root, is_whole=True) for root in roots], False


def depth(layers: list[str]) -> int:
    """Returns how many layers follow each other; those of several kinds of edges side by side.

    >>> depth(["conv1.a__to__b", "conv1.b__to__a", "conv2.a__to__b", "conv2.b__to__a", "last"])
    3
    """
    number, together = 0, list[str]()
    for name in layers:
        inside = [one for one in together if one.rpartition(".")[0] == name.rpartition(".")[0]]
        if "__" not in name or name in together or len(inside) < len(together) or not together:
            number, together = number + 1, []
        together.append(name)
    return number


def surroundings(
    graph: Batch, root: Tensor, hops: int, flow: str, *, is_whole: bool = False
) -> Data:
    """Returns the part of a graph that a node, or pair, ``[1]`` or ``[2]``, depends on, or all.

    It reaches one hop further than a model of so many layers, whose messages go by ``flow``.
    """
    edges, size = graph.edge_index, int(graph.num_nodes)
    own, near = root, torch.arange(size, device=root.device)
    kept = torch.arange(edges.size(1), device=root.device)
    if not is_whole:
        reach = {"relabel_nodes": True, "num_nodes": size, "flow": flow}
        near, edges, own, inside = k_hop_subgraph(root, hops + 1, edges, **reach)
        kept = inside.nonzero().view(-1)
    part = Data(edge_index=edges, num_nodes=near.numel())
    for key, value in graph.to_dict().items():
        if key in _NOT_COPIED or not isinstance(value, Tensor):
            continue
        if graph.is_node_attr(key):
            part[key] = value[near]
        elif graph.is_edge_attr(key):
            part[key] = value[kept]
        elif is_whole:  # it has all that the graph had
            part[key] = value
    if own.numel() == 2:
        part.edge_label_index = own.view(2, 1)
    else:
        part.root_index = own
    part.node_origin, part.edge_origin = near, kept
    part.edge_reached = reached_edges(edges, own, near.numel(), hops, flow)
    return part


def reached_edges(edge_index: Tensor, root: Tensor, num_nodes: int, hops: int, flow: str) -> Tensor:
    """Returns which edges send a message that can reach the roots, ``[E]``."""
    sender, receiver = edge_index if flow == "source_to_target" else edge_index.flip(0)
    inside = torch.zeros(num_nodes, dtype=torch.bool, device=edge_index.device)
    inside[root] = True
    for _ in range(hops - 1):
        inside = inside.clone()
        inside[sender[inside[receiver]]] = True
    return inside[receiver]


def own_edges(roots: Roots) -> int:
    """Returns how many pairs are joined by an edge of the graph."""
    edges, pairs = (ends.sort(0).values for ends in (roots.graph.edge_index, roots.index))
    size = int(roots.graph.num_nodes)
    return int(torch.isin(pairs[0] * size + pairs[1], edges[0] * size + edges[1]).sum())


def on_whole_graph(compact: Explanation, roots: Roots, undirected: bool) -> Explanation:
    """Gives scores of computation graphs the numbers of the whole graph.

    Each explained node, or pair, has a graph of its own, with all nodes of the whole graph but only
    the bonds within reach.
    """
    graph, units, num_nodes = roots.graph, roots.units, int(roots.graph.num_nodes)
    bonds, kept = compact.bonds, compact.bond_reached
    edges = kept[bonds.edge_bond]
    copy_of = torch.arange(len(units), device=kept.device).repeat_interleave(compact.ptr.diff())
    atom = torch.cat([unit.node_origin for unit in units]) + copy_of * num_nodes
    kind = None if compact.edge_kind is None else graph.edge_type
    first, carried = torch.zeros_like(graph.edge_index[0]), smiles_of(graph)
    whole = find_bonds(graph.edge_index, first, undirected=undirected, kind=kind)
    values: dict[str, Any] = {name: getattr(compact, name)[kept] for name in PER_BOND}
    for name in PER_ATOM:
        value = getattr(compact, name)
        if value is not None:
            zeros = value.new_zeros(len(units) * num_nodes, *value.shape[1:])
            values[name] = zeros.index_copy(0, atom, value)
    return replace(
        compact,
        edge_index=atom[compact.edge_index[:, edges]],
        bonds=Bonds(
            atom[bonds.index[:, kept]],
            (kept.cumsum(0) - 1)[bonds.edge_bond[edges]],
            bonds.batch[kept],
            bonds.count[kept],
        ),
        ptr=torch.arange(len(units) + 1, device=kept.device) * num_nodes,
        index=roots.index if roots.index.dim() == 1 else roots.index.t(),
        smiles=None if carried is None else carried * len(units),
        edge_origin=torch.cat([unit.edge_origin for unit in units])[edges],
        edge_kind=None if compact.edge_kind is None else compact.edge_kind[edges],
        whole=Whole(graph.edge_index, whole, kind),
        **values,
    )


def to_dense(out: Explanation) -> Explanation:
    """Returns nodes times bonds: a copy of the whole graph for each explained node."""
    if out.whole is None or out.edge_origin is None:
        return out
    whole, num, num_nodes = out.whole.bonds, out.num_graphs, int(out.ptr[1])
    num_bonds, kind = whole.index.size(1), out.whole.edge_kind
    copies = torch.arange(num, device=out.ptr.device)
    place = torch.empty_like(out.bonds.batch)  # of each stored bond in the result
    place[out.bonds.edge_bond] = out.edge_batch * num_bonds + whole.edge_bond[out.edge_origin]

    def side_by_side(value: Tensor, step: int) -> Tensor:
        return (value.unsqueeze(-2) + step * copies.unsqueeze(1)).flatten(-2)

    def scatter(value: Tensor) -> Tensor:
        return value.new_zeros(num * num_bonds).index_copy(0, place, value)

    values: dict[str, Any] = {name: scatter(getattr(out, name)) for name in PER_BOND}
    return replace(
        out,
        edge_index=side_by_side(out.whole.edge_index, num_nodes),
        bonds=Bonds(
            side_by_side(whole.index, num_nodes),
            side_by_side(whole.edge_bond, num_bonds),
            copies.repeat_interleave(num_bonds),
            whole.count.repeat(num),
        ),
        edge_kind=None if kind is None else kind.repeat(num),
        edge_origin=None,
        whole=None,
        **values,
    )
