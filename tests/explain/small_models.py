"""Small models that are called, and fail, in many ways; settings that are quick."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv, GINConv, GraphConv, MessagePassing, global_add_pool

from nicegnn import NICEConfig
from nicegnn.target.zoo import MODELS, make_model
from tests.conftest import NUM_EDGE_FEATURES, NUM_FEATURES

FAST = NICEConfig()  # the default is fast
PAPER = NICEConfig.paper().with_(
    boundary__num_draws=4,
    boundary__steps=8,
    boundary__batch_size=4,
    attribution__num_draws=4,
    attribution__num_nodes=4,
)


class Custom(MessagePassing):
    """A user's own layer: gated messages from both ends."""

    def __init__(self, in_size: int, out_size: int) -> None:
        super().__init__(aggr="max")
        self.lin = nn.Linear(2 * in_size, out_size)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.propagate(edge_index, x=x)

    def message(self, x_i: Tensor, x_j: Tensor) -> Tensor:
        return self.lin(torch.cat([x_i, x_j - x_i], dim=1)).tanh()


class CustomModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = Custom(NUM_FEATURES, 8), Custom(8, 8)
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        x = self.second(self.first(x, edge_index), edge_index)
        return self.head(global_add_pool(x, batch))


class Smooth(nn.Module):
    """A GIN of tanh, without kinks, for exact integrals."""

    def __init__(self, num_classes: int = 2, scale: float = 1.0) -> None:
        super().__init__()
        self.convs = nn.ModuleList(
            GINConv(nn.Sequential(nn.Linear(a, 6), nn.Tanh())) for a in (NUM_FEATURES, 6)
        )
        self.head = nn.Linear(6, num_classes)
        self.scale = scale

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        for conv in self.convs:
            x = conv(x, edge_index)
        if batch is None:
            batch = edge_index.new_zeros(x.size(0))
        return self.scale * self.head(global_add_pool(x, batch))


class PlainCall(nn.Module):
    """Takes one graph per call, no batch vector."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.inner(x, edge_index, edge_index.new_zeros(x.size(0)))


class DataCall(PlainCall):
    def forward(self, data: Data) -> Tensor:
        return self.inner(data.x, data.edge_index, data.batch)


class RenamedCall(PlainCall):
    def forward(self, feats: Tensor, edges: Tensor, which: Tensor) -> Tensor:
        return self.inner(feats, edges, which)


class Weighted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = GraphConv(NUM_FEATURES, 2)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor, batch: Tensor) -> Tensor:
        return global_add_pool(self.conv(x, edge_index, edge_weight), batch)


class NodeGCN(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = GCNConv(NUM_FEATURES, 8), GCNConv(8, 3)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.second(self.first(x, edge_index).tanh(), edge_index)


def make(name: str) -> nn.Module:
    torch.manual_seed(0)
    if name == "custom":
        return CustomModel()
    return make_model(name, NUM_FEATURES, 3, edge_size=NUM_EDGE_FEATURES, hidden_size=8)


BACKBONES = [*MODELS, "custom"]
