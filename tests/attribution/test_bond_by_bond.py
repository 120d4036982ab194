"""Bond-wise attribution against hand numbers."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch_geometric.nn import global_add_pool

from nicegnn.attribution.one_by_one import bond_wise_loss
from nicegnn.graph.batch import to_batch
from nicegnn.graph.case import make_case
from nicegnn.intervention.exchange import Exchange, Prototypes
from nicegnn.intervention.mechanisms import ElementMask
from nicegnn.intervention.query import Query
from nicegnn.target.frozen_model import Target
from tests.conftest import NUM_FEATURES, make_graph, random_graph
from tests.explain.score_properties import Sum


class Linear(nn.Module):
    r"""Logits are sums over edges, :math:`f_c = \sum_{(u, v)} (W x_u)_c`."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv = Sum()
        self.head = nn.Linear(NUM_FEATURES, 2, bias=False, dtype=torch.float64)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        return self.head(global_add_pool(self.conv(x, edge_index), batch))


def query_of(model: nn.Module, graphs: list, mechanism, **settings) -> Query:
    return Query(Target(model.eval()), make_case(to_batch(graphs)), mechanism, **settings)


def test_a_linear_model_loses_exactly_what_the_bond_adds():
    model = Linear()
    graphs = [random_graph(size, seed, torch.float64) for seed, size in enumerate((4, 7))]
    query = query_of(model, graphs, ElementMask())
    found = bond_wise_loss(query, 8, seed=0)
    batch = query.case.batch
    logits = model.head(batch.x)[batch.edge_index[0]].detach()  # [E, 2]
    own = query.explained[query.case.edge_batch]
    margin = logits.gather(1, own.view(-1, 1)) - logits.gather(1, 1 - own.view(-1, 1))
    wanted = query.case.bonds.sum(margin.squeeze(1))
    torch.testing.assert_close(found.bond_change, wanted)
    torch.testing.assert_close(found.bond_loss, wanted.clamp(min=0))  # gains count as nothing


def test_only_falls_count_prototype_by_prototype_and_values_keep_their_sign():
    """One prototype takes 3 of the odds, the other adds 1: the loss is 3 / 2, the change 1."""
    model = Linear().float()
    graph = make_graph([(0, 1)], 2, seed=0)
    query = query_of(model, [graph], ElementMask())
    own = int(query.explained[0])
    direction = model.head.weight[own] - model.head.weight[1 - own]
    step = (direction / direction.square().sum()).detach()  # raises the odds by 1
    sent = graph.x.mean(0)  # both directions together send twice this
    donors = torch.stack([sent - 1.5 * step, sent + 0.5 * step])
    exchange = Exchange(Prototypes((donors,), (donors.mean(0, keepdim=True),), ("conv",), 2))
    found = bond_wise_loss(query.under(exchange), 8, seed=0)
    torch.testing.assert_close(found.bond_loss, torch.tensor([1.5]))
    torch.testing.assert_close(found.bond_change, torch.tensor([1.0]))
    torch.testing.assert_close(found.bond_stderr, torch.tensor([1.5]))  # of 3 and 0
