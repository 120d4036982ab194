"""One bond damaged at a time: every bond and draw once, the same however a batch is copied."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from nicegnn.errors import GraphError
from nicegnn.graph.batch import to_batch
from nicegnn.graph.case import make_case
from nicegnn.intervention.mechanisms import ElementMask, NoiseCorruption
from nicegnn.intervention.one_part import damage_each_bond
from nicegnn.intervention.query import Query
from nicegnn.target.frozen_model import Target
from nicegnn.target.zoo import GIN
from tests.conftest import NUM_FEATURES, make_graph, random_graph

SIZES = (4, 9, 3)


class ReadsAll(nn.Module):
    """Takes whole graphs, and a number that belongs to the batch, not to a graph."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = GIN(NUM_FEATURES, 2, hidden_size=8)

    def forward(self, data) -> Tensor:
        return self.inner(data.x, data.edge_index, data.batch) * data.get("scale", 1.0)


def graphs_of(sizes=SIZES) -> list:
    return [random_graph(size, seed) for seed, size in enumerate(sizes)]


def query_of(model: nn.Module, batch, mechanism, **settings) -> Query:
    target = Target(model.eval(), batched=settings.pop("batched", None))
    return Query(target, make_case(batch), mechanism, **settings)


def answers(query: Query, num_draws: int) -> Tensor:
    """Returns raw outputs by draw and bond, ``[N, M, C]``; each must come exactly once."""
    found = torch.full((num_draws, query.case.bonds.batch.numel(), 2), torch.nan)
    with torch.no_grad():
        for some in damage_each_bond(query, num_draws, stream=5):
            assert bool(found[some.draw, some.item].isnan().all())
            found[some.draw, some.item] = some.output
    return found


@pytest.mark.parametrize("mechanism", [ElementMask(), NoiseCorruption()], ids=repr)
def test_answers_are_those_of_each_graph_alone(mechanism):
    torch.manual_seed(0)
    model = GIN(NUM_FEATURES, 2, hidden_size=8)
    graphs = [*graphs_of(), make_graph([], 2, seed=9)]
    found = answers(query_of(model, to_batch(graphs), mechanism), 4)
    alone = []
    for graph in graphs:
        query = query_of(model, to_batch(graph), mechanism)
        number = torch.arange(query.case.bonds.batch.numel())
        rows = [torch.zeros(4, 0, 2)]
        for bond in number:
            gate = query.case.edge_gate((number != bond).float()).expand(4, -1)
            rows.append(query.outputs(gate, 5))
        alone.append(torch.cat(rows, dim=1))
    torch.testing.assert_close(found, torch.cat(alone, dim=1), rtol=1e-5, atol=1e-5)


def test_batches_that_cannot_be_cut_are_refused():
    batch = to_batch(graphs_of())
    batch.scale = torch.tensor(2.0)  # the model may read it
    with pytest.raises(GraphError, match=r"belong to no node, edge or graph: \['scale'\]"):
        answers(query_of(ReadsAll(), batch, ElementMask()), 1)
