"""Bond-wise attribution against hand numbers."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.nn import MessagePassing, global_add_pool

from nicegnn.attribution.bond_by_bond import bond_wise_gradient, removal_loss
from nicegnn.config import AttributionConfig
from nicegnn.graph.batch import to_batch
from nicegnn.graph.case import edge_slots, make_case
from nicegnn.intervention.mechanisms import ElementMask, NoiseCorruption
from nicegnn.intervention.query import Query
from nicegnn.target.frozen_model import Target
from nicegnn.target.zoo import GCN, GIN
from tests.conftest import NUM_FEATURES, make_graph, random_graph

CONFIG = AttributionConfig(num_draws=8, beta=0.0)


class Sum(MessagePassing):
    """Adds up what the neighbours hold."""

    def __init__(self) -> None:
        super().__init__(aggr="sum")

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.propagate(edge_index, x=x)


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


@pytest.mark.parametrize("mechanism", [ElementMask(), NoiseCorruption(antithetic=True)], ids=repr)
def test_a_linear_model_loses_exactly_what_the_bond_adds(mechanism):
    """Opposite noise directions cancel in a linear model, so both mechanisms agree."""
    model = Linear()
    graphs = [random_graph(size, seed, torch.float64) for seed, size in enumerate((4, 7))]
    query = query_of(model, graphs, mechanism)
    found = bond_wise_gradient(query, CONFIG, seed=0)
    batch = query.case.batch
    logits = model.head(batch.x)[batch.edge_index[0]].detach()  # [E, 2]
    own = query.explained[query.case.edge_batch]
    margin = logits.gather(1, own.view(-1, 1)) - logits.gather(1, 1 - own.view(-1, 1))
    torch.testing.assert_close(found.score, query.case.bonds.sum(margin.squeeze(1)))
    assert bool(found.completeness_gap.isnan().all())
    assert float(found.stderr.max()) < 1e-9
    assert float(found.risk_boundary.abs().max()) < 1e-9


def test_chunks_and_batches_do_not_matter():
    torch.manual_seed(0)
    model = GIN(NUM_FEATURES, 3, hidden_size=8)
    graphs = [random_graph(size, seed) for seed, size in enumerate((4, 8, 3))]
    graphs.append(make_graph([], 2, seed=9))
    mechanism = NoiseCorruption()
    whole = bond_wise_gradient(query_of(model, graphs, mechanism), CONFIG, seed=1).score
    for chunk_edges in (1, 100):
        query = query_of(model, graphs, mechanism, chunk_edges=chunk_edges)
        torch.testing.assert_close(bond_wise_gradient(query, CONFIG, seed=1).score, whole)
    alone = [
        bond_wise_gradient(query_of(model, [graph], mechanism), CONFIG, seed=1).score
        for graph in graphs
    ]
    torch.testing.assert_close(torch.cat(alone), whole, rtol=1e-5, atol=1e-5)


def test_bonds_out_of_reach_score_nothing_and_the_others_as_they_would():
    torch.manual_seed(0)
    model = GIN(NUM_FEATURES, 2, hidden_size=8)
    batch = to_batch([random_graph(7, 3), random_graph(5, 4)])
    everything = make_case(batch)
    number = edge_slots(everything.bonds.batch, 2)  # of each bond in its graph
    some = make_case(batch, reached_edge=(number > 1)[everything.bonds.edge_bond])
    queries = [Query(Target(model.eval()), case, NoiseCorruption()) for case in (everything, some)]
    whole, part = (bond_wise_gradient(query, CONFIG, seed=1).score for query in queries)
    torch.testing.assert_close(part[some.reached], whole[some.reached])
    assert float(part[~some.reached].abs().max()) < 1e-6


def test_seeds_give_other_noise():
    torch.manual_seed(0)
    query = query_of(GIN(NUM_FEATURES, 2, hidden_size=8), [random_graph(6, 1)], NoiseCorruption())
    one, two = (bond_wise_gradient(query, CONFIG, seed=seed).score for seed in (0, 1))
    assert not torch.allclose(one, two)


def test_what_is_lost_without_a_bond():
    torch.manual_seed(0)
    model = GCN(NUM_FEATURES, 2, hidden_size=8)
    graph = random_graph(6, 2)
    query = query_of(model, [graph, random_graph(4, 5)], ElementMask())
    masked = bond_wise_gradient(query, CONFIG, seed=0).score
    found = removal_loss(query, "signed-margin", masked)
    bonds = query.case.bonds
    kept = (bonds.edge_bond[: graph.num_edges] != 1).nonzero().view(-1)
    left = graph.clone()
    left.edge_index, left.edge_attr = graph.edge_index[:, kept], graph.edge_attr[kept]
    with torch.no_grad():
        odds = [model(g.x, g.edge_index, torch.zeros(6).long())[0] for g in (graph, left)]
    own = int(query.explained[0])
    margin = [float(value[own] - value[1 - own]) for value in odds]
    assert float(found[1]) == pytest.approx(margin[0] - margin[1], abs=1e-4)


def test_layers_that_only_add_up_have_nothing_to_add():
    torch.manual_seed(0)
    model = GIN(NUM_FEATURES, 2, hidden_size=8)
    query = query_of(model, [random_graph(6, 2), random_graph(4, 5)], ElementMask())
    masked = bond_wise_gradient(query, CONFIG, seed=0).score
    assert float(masked.abs().max()) > 0.01
    assert float(removal_loss(query, "signed-margin", masked).abs().max()) == 0
    other = removal_loss(query, "signed-margin", masked + 1.0)  # as if masking had said otherwise
    torch.testing.assert_close(other, masked, rtol=1e-3, atol=1e-3)
