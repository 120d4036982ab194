"""One smooth model that is called in many ways."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch_geometric import nn as gnn
from torch_geometric.data import Batch

F, D, H, C = 5, 3, 8, 3


class Core(nn.Module):
    """Two smooth layers and a readout; subclasses say how they are called."""

    def __init__(self, num_out: int = C) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = gnn.GraphConv(F, H), gnn.GraphConv(H, H)
        self.head = nn.Linear(H, num_out)

    def run(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None, weight=None):
        h = self.first(x, edge_index, weight).tanh()
        h = self.second(h, edge_index, weight).tanh()
        return self.head(gnn.global_mean_pool(h, batch))


class Single(Core):
    def forward(self, x, edge_index):
        return self.run(x, edge_index)


class Batched(Core):
    def forward(self, x, edge_index, batch=None):
        return self.run(x, edge_index, batch)


class Weighted(Core):
    def forward(self, x, edge_index, edge_weight, batch):
        return self.run(x, edge_index, batch, edge_weight)


class Featured(Core):
    def forward(self, x, edge_index, edge_attr, batch):
        return self.run(x, edge_index, batch, edge_attr[:, 0])


class Sized(Core):
    """Asks for the number of graphs as well."""

    def forward(self, x, edge_index, batch, batch_size):
        out = self.run(x, edge_index, batch)
        assert out.size(0) == batch_size
        return out


class Whole(Core):
    def forward(self, data):
        return self.run(data.x, data.edge_index, data.batch)


class Odd(Core):
    """Names nothing as PyG does."""

    def forward(self, features, links, member):
        return self.run(features, links, member)


class Pairs(Core):
    """Returns more than the logits."""

    def forward(self, x, edge_index, batch):
        return self.run(x, edge_index, batch), {"loss": 0.0}


class Nodes(Core):
    def forward(self, x, edge_index):
        return self.head(self.second(self.first(x, edge_index).tanh(), edge_index).tanh())


def reference(model: Core, batch: Batch, weight: Tensor | None = None) -> Tensor:
    return model.run(batch.x, batch.edge_index, batch.batch, weight)
