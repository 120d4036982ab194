"""A linear model and mechanisms whose losses are known by hand."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import SimpleConv, global_add_pool

from nicegnn.graph.batch import to_batch
from nicegnn.graph.case import make_case
from nicegnn.intervention.intervene import Mechanism, Site
from nicegnn.intervention.mechanisms import ElementMask
from nicegnn.intervention.query import Query
from nicegnn.target.frozen_model import Target


class LogOdds(nn.Module):
    """Log-odds of class 0 are the sum of all messages, which are features of the senders."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = SimpleConv(aggr="sum")

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        total = global_add_pool(self.conv(x, edge_index), batch)
        return torch.cat([total, torch.zeros_like(total)], dim=1)


class Halves:
    """A mechanism whose even draws take a message away and whose odd draws halve it."""

    is_random = True

    def __init__(self) -> None:
        self.streams: list[int] = []  # of each call

    def __call__(self, message: Tensor, gate: Tensor, site: Site) -> Tensor:
        self.streams.append(site.stream)
        left = 0.5 * (site.draw % 2).to(message.dtype)
        return message * (gate + (1 - gate) * left).unsqueeze(1)


def path_graph(*feature: float) -> Data:
    """A path with one feature per node; a bond carries the sum of the features of its ends."""
    source = torch.arange(len(feature) - 1)
    edge_index = torch.stack([torch.cat([source, source + 1]), torch.cat([source + 1, source])])
    return Data(x=torch.tensor(feature, dtype=torch.float64).view(-1, 1), edge_index=edge_index)


def two_paths(mechanism: Mechanism | None = None, **settings: Any) -> Query:
    """Bonds of 3 and 5 in the first graph, a bond of 2 in the second; losses are of log-odds."""
    graphs = [path_graph(1.0, 2.0, 3.0), path_graph(1.0, 1.0)]
    mechanism = ElementMask() if mechanism is None else mechanism
    case = make_case(to_batch(graphs))
    return Query(Target(LogOdds()), case, mechanism, degradation="margin", **settings)
