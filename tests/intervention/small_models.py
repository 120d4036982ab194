"""Layers of many kinds, a small model made of them, gates and mechanisms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric import nn as gnn
from torch_geometric.data import Data

from nicegnn.intervention.intervene import Site

F, D, H = 5, 3, 8  # features of nodes and edges in conftest, hidden size


class Own(gnn.MessagePassing):
    """A user's layer: messages from both ends and the edge, mean aggregation."""

    def __init__(self, in_size: int, out_size: int) -> None:
        super().__init__(aggr="mean")
        self.lin = nn.Linear(2 * in_size + D, out_size)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor:
        return self.propagate(edge_index, x=x, edge_attr=edge_attr)

    def message(self, x_i: Tensor, x_j: Tensor, edge_attr: Tensor) -> Tensor:
        return self.lin(torch.cat([x_i, x_j, edge_attr], dim=1)).tanh()


class OwnChild(gnn.GINConv):
    """A user's layer derived from one of PyG's."""

    def message(self, x_j: Tensor) -> Tensor:
        return 2 * x_j


def mlp(a: int, b: int) -> nn.Module:
    return nn.Sequential(nn.Linear(a, b), nn.ReLU(), nn.Linear(b, b))


def _child(a: int, b: int) -> nn.Module:
    gnn.GINConv(mlp(a, b))  # PyG compiles the parent's propagate() when one is made
    return OwnChild(mlp(a, b))


PLAIN: dict[str, Callable[[int, int], nn.Module]] = {
    "gin": lambda a, b: gnn.GINConv(mlp(a, b), train_eps=True),
    "gcn": gnn.GCNConv,
    "gcn-without-loops": lambda a, b: gnn.GCNConv(a, b, add_self_loops=False),
    "gat": lambda a, b: gnn.GATConv(a, b // 2, heads=2),
    "gat-mean-of-heads": lambda a, b: gnn.GATConv(a, b, heads=3, concat=False),
    "gatv2": lambda a, b: gnn.GATv2Conv(a, b // 4, heads=4),
    "sage": gnn.SAGEConv,
    "sage-max": lambda a, b: gnn.SAGEConv(a, b, aggr="max"),
    "graph": gnn.GraphConv,
    "gated": lambda a, b: gnn.GatedGraphConv(b, num_layers=3),
    "cheb": lambda a, b: gnn.ChebConv(a, b, K=3),
    "tag": lambda a, b: gnn.TAGConv(a, b, K=3),
    "pna-like": lambda a, b: gnn.SAGEConv(a, b, aggr=["mean", "max", "std"]),
    "edge": lambda a, b: gnn.EdgeConv(mlp(2 * a, b)),
    "child": _child,
}
WITH_EDGES: dict[str, Callable[[int, int], nn.Module]] = {
    "gine": lambda a, b: gnn.GINEConv(mlp(a, b), edge_dim=D),
    "transformer": lambda a, b: gnn.TransformerConv(a, b // 2, heads=2, edge_dim=D, beta=True),
    "gat-edges": lambda a, b: gnn.GATConv(a, b // 2, heads=2, edge_dim=D),
    "gatv2-edges": lambda a, b: gnn.GATv2Conv(a, b // 2, heads=2, edge_dim=D),
    "own": Own,
}
CONVS = {**PLAIN, **WITH_EDGES}
PROPAGATIONS = {"gated": 3, "cheb": 2, "tag": 3}  # per layer, where not 1


class Net(nn.Module):
    """Two layers with something in between, a sum readout and two logits."""

    def __init__(self, conv: str = "gin", middle: nn.Module | None = None) -> None:
        super().__init__()
        self.uses_edges = conv in WITH_EDGES
        self.first = CONVS[conv](F, H)
        self.middle = middle or nn.ReLU()
        self.second = CONVS[conv](H, H)
        self.head = nn.Linear(H, 2)

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor,
        batch: Tensor | None = None,
        edge_attr: Tensor | None = None,
    ) -> Tensor:
        extra = (edge_attr,) if self.uses_edges else ()
        h = self.middle(self.first(x, edge_index, *extra))
        h = self.second(h, edge_index, *extra)
        return self.head(gnn.global_add_pool(h, batch))


def make_net(*args: Any, **kwargs: Any) -> Net:
    torch.manual_seed(0)
    return Net(*args, **kwargs).eval()


def call(model: nn.Module, data: Data) -> Tensor:
    return model(data.x, data.edge_index, data.get("batch"), data.edge_attr)


def gates(data: Data, seed: int = 0) -> Tensor:
    return torch.rand(data.num_edges, generator=torch.Generator().manual_seed(seed))


def add_one(message: Tensor, gate: Tensor, site: Site) -> Tensor:
    return message + 1


def double(message: Tensor, gate: Tensor, site: Site) -> Tensor:
    return 2 * message
