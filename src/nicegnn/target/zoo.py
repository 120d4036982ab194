"""Reference graph models: the targets of the paper and a few other backbones."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric import nn as gnn

from nicegnn.config import check_choice

Maybe = Tensor | None
READOUTS = {"sum": gnn.global_add_pool, "mean": gnn.global_mean_pool, "max": gnn.global_max_pool}


class GraphClassifier(nn.Module):
    """Message-passing layers, a readout, and a linear head with one logit per class, or one value.

    Subclasses define the layer. Activations are modules, which guided backpropagation hooks.
    """

    uses_edges = False  # whether layers read ``edge_attr``
    is_normed = True  # whether a normalisation follows each layer
    layer: Any  # makes a layer of three sizes: in, out, and of edge features

    def __init__(
        self,
        in_size: int,
        num_classes: int,
        *,
        hidden_size: int = 32,
        num_layers: int = 3,
        readout: str = "sum",
        edge_size: int = 0,
    ) -> None:
        super().__init__()
        check_choice("readout", readout, READOUTS)
        self.settings: dict[str, Any] = {"in_size": in_size, "num_classes": num_classes}
        self.settings |= {"hidden_size": hidden_size, "num_layers": num_layers}
        self.settings |= {"readout": readout, "edge_size": edge_size}
        self.readout = READOUTS[readout]
        sizes = [in_size] + [hidden_size] * num_layers
        self.convs = nn.ModuleList(self.layer(a, b, edge_size) for a, b in pairwise(sizes))
        self.acts = nn.ModuleList(self._activation(hidden_size) for _ in range(num_layers))
        self.head = nn.Linear(hidden_size, num_classes)

    def _activation(self, size: int) -> nn.Module:
        return nn.Sequential(nn.BatchNorm1d(size), nn.ReLU()) if self.is_normed else nn.ReLU()

    def embed(
        self, x: Tensor, edge_index: Tensor, batch: Maybe = None, edge_attr: Maybe = None
    ) -> Tensor:
        """Returns the representation of each graph, ``[B, F]``."""
        for conv, act in zip(self.convs, self.acts, strict=True):
            h = conv(x, edge_index, edge_attr) if self.uses_edges else conv(x, edge_index)
            x = act(h)
        return self.readout(x, edge_index.new_zeros(x.size(0)) if batch is None else batch)

    def forward(
        self, x: Tensor, edge_index: Tensor, batch: Maybe = None, edge_attr: Maybe = None
    ) -> Tensor:
        """Returns logits, ``[B, C]``."""
        return self.head(self.embed(x, edge_index, batch, edge_attr))


def _mlp(in_size: int, out_size: int) -> nn.Module:
    first, last = nn.Linear(in_size, out_size), nn.Linear(out_size, out_size)
    return nn.Sequential(first, nn.BatchNorm1d(out_size), nn.ReLU(), last)


class GIN(GraphClassifier):
    """Graph isomorphism network, the target of the paper: a two-layer MLP after each sum."""

    is_normed = False
    layer = staticmethod(lambda a, b, edges: gnn.GINConv(_mlp(a, b)))


class GCN(GraphClassifier):
    """Graph convolutional network."""

    layer = staticmethod(lambda a, b, edges: gnn.GCNConv(a, b))


class SAGE(GraphClassifier):
    """GraphSAGE with mean aggregation."""

    layer = staticmethod(lambda a, b, edges: gnn.SAGEConv(a, b))


class GAT(GraphClassifier):
    """Graph attention network (v2) with four heads."""

    layer = staticmethod(lambda a, b, edges: gnn.GATv2Conv(a, b // 4, heads=4))


class GINE(GIN):
    """GIN that reads bond features; needs ``edge_attr``."""

    uses_edges = True
    layer = staticmethod(lambda a, b, edges: gnn.GINEConv(_mlp(a, b), edge_dim=edges))


class Transformer(GraphClassifier):
    """Graph transformer layers that read bond features; needs ``edge_attr``."""

    uses_edges = True
    layer = staticmethod(
        lambda a, b, edges: gnn.TransformerConv(a, b // 4, heads=4, edge_dim=edges)
    )


MODELS: dict[str, type[GraphClassifier]] = {  # "gin", "gcn", ..., "transformer"
    kind.__name__.lower(): kind for kind in (GIN, GCN, SAGE, GAT, GINE, Transformer)
}


def make_model(name: str, in_size: int, num_classes: int, **settings: Any) -> GraphClassifier:
    """Builds a reference classifier by name."""
    check_choice("name", name, MODELS)
    return MODELS[name](in_size, num_classes, **settings)


def device_of(name: str | None = None) -> torch.device:
    """Returns the named device, or CUDA where there is one."""
    return torch.device(name or ("cuda" if torch.cuda.is_available() else "cpu"))
